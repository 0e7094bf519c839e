"""Channel: the asyncio faces; the other end may be a coroutine or a thread."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hocket.errors import BusyResource, Disconnected, OutOfRange, ReadOnlyBuffer, Timeout, WrongType
from hocket.local import Channel
from tests.support.threads import Running, noise, run, settle, until_async


async def blocked(awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
    """A task that has started and now waits."""
    task = asyncio.ensure_future(awaitable)
    await settle()
    assert not task.done(), f"expected it to wait, but it ended: {task}"
    return task


def test_two_coroutines_talk_in_both_directions():
    async def main() -> None:
        a, b = Channel.pair()
        assert await a.write_async(b"abcdef", 1, 4) == 4
        target = bytearray(b"......")
        assert await b.read_async(target, 1, 3) == 3
        assert target == b".bcd.."
        await b.write_all_async(b"back")
        assert await b.read_exactly_async(1) == b"e"
        assert await a.read_exactly_async(4) == b"back"

    run(main())


def test_a_coroutine_waits_for_bytes_and_for_room():
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=2)
        reader = await blocked(b.read_exactly_async(5))
        writer = asyncio.ensure_future(a.write_all_async(b"abcdefg"))
        assert await reader == b"abcde"
        assert await b.read_exactly_async(2) == b"fg"
        await writer

    run(main())


def test_a_coroutine_does_not_block_its_loop_while_it_waits():
    async def main() -> list[str]:
        a, b = Channel.pair()
        history: list[str] = []

        async def read() -> None:
            history.append((await b.read_exactly_async(2)).decode())

        reader = await blocked(read())
        history.append("loop turns")
        await a.write_all_async(b"ok")
        await reader
        return history

    assert run(main()) == ["loop turns", "ok"]


def test_a_thread_writes_and_a_coroutine_reads_every_byte():
    data = noise(3_000_000)
    a, b = Channel.pair(buffer_bytes=5000)

    def write() -> None:
        a.write_all(data)
        a.disconnect()

    async def read() -> bytes:
        out, target = bytearray(), bytearray(3000)
        while True:
            try:
                count = await b.read_async(target)
            except Disconnected:
                return bytes(out)
            out += target[:count]

    with Running(write):
        assert run(read()) == data


def test_a_coroutine_writes_and_a_thread_reads_every_byte():
    data = noise(3_000_000)
    a, b = Channel.pair(buffer_bytes=5000)
    with Running(b.read_exactly, len(data)) as reader:
        run(a.write_all_async(data))
        assert reader.result() == data


def test_coroutines_on_two_loops_in_two_threads_talk_in_full_duplex():
    to_b, to_a = noise(300_000, "to b"), noise(200_000, "to a")
    a, b = Channel.pair(buffer_bytes=700)

    async def exchange(end: Channel, outgoing: bytes, incoming: int) -> bytes:
        _, received = await asyncio.gather(
            end.write_all_async(outgoing), end.read_exactly_async(incoming)
        )
        return received

    def in_thread(end: Channel, outgoing: bytes, incoming: int) -> bytes:
        return run(exchange(end, outgoing, incoming))

    with Running(in_thread, a, to_b, len(to_a)) as at_a:
        assert run(exchange(b, to_a, len(to_b))) == to_b
        assert at_a.result() == to_a


# --- the end ------------------------------------------------------------------------------------

BLOCKING: dict[str, Callable[[Channel], Awaitable[Any]]] = {
    "read_async": lambda end: end.read_async(bytearray(3)),
    "write_async": lambda end: end.write_async(b"xyz"),
    "read_exactly_async": lambda end: end.read_exactly_async(3),
    "write_all_async": lambda end: end.write_all_async(b"xyz"),
}


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
@pytest.mark.parametrize("use", BLOCKING)
def test_a_waiting_coroutine_is_woken_with_disconnected(use: str, who_leaves: str):
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=2)
        a.write_all(b"ff")
        task = await blocked(BLOCKING[use](a))
        leaver = a if who_leaves == "own end" else b
        with Running(leaver.disconnect), pytest.raises(Disconnected):
            await task
        assert a.disconnected

    run(main())


@pytest.mark.parametrize("use", BLOCKING)
def test_a_disconnected_end_refuses_coroutines(use: str):
    async def main() -> None:
        a, b = Channel.pair()
        b.write_all(b"unread")
        a.disconnect()
        with pytest.raises(Disconnected):
            await BLOCKING[use](a)

    run(main())


def test_cut_short_the_error_says_what_had_moved():
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=4)
        writer = await blocked(a.write_all_async(b"abcdefgh"))
        assert await b.read_exactly_async(3) == b"abc"
        await settle()
        a.disconnect()
        with pytest.raises(Disconnected) as cut:
            await writer
        assert (cut.value.written, cut.value.partial) == (7, b"")
        with pytest.raises(Disconnected) as cut:
            await b.read_exactly_async(10)
        assert (cut.value.written, cut.value.partial) == (0, b"defg")

    run(main())


def test_length_zero_returns_at_once():
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=1)
        a.write(b"f")
        for _ in range(2):
            assert await a.read_async(bytearray()) == 0
            assert await a.write_async(b"xyz", 3) == 0
            assert await a.read_exactly_async(0) == b""
            await a.write_all_async(b"")
            a.disconnect()
        assert b.read_exactly(1) == b"f"

    run(main())


# --- timeouts and cancellation ------------------------------------------------------------------


def test_a_timeout_moves_nothing_or_says_what_moved():
    run(what_moves_in(0.01))


def test_timeout_zero_moves_nothing_or_says_what_moved():
    run(what_moves_in(0))


async def what_moves_in(timeout: float) -> None:
    a, b = Channel.pair(buffer_bytes=3)
    with pytest.raises(Timeout):
        await a.read_async(bytearray(1), timeout=timeout)
    with pytest.raises(Timeout) as cut:
        await a.write_all_async(b"abcde", timeout=timeout)
    assert cut.value.written == 3
    with pytest.raises(Timeout):
        await a.write_async(b"x", timeout=timeout)
    with pytest.raises(Timeout) as cut:
        await b.read_exactly_async(5, timeout=timeout)
    assert cut.value.partial == b"abc"
    await a.write_all_async(b"de", timeout=timeout)
    assert await b.read_exactly_async(2, timeout=timeout) == b"de"


@pytest.mark.parametrize("timeout", [10, 1e12, float("inf")])
def test_a_long_timeout_waits(timeout: float):
    async def main() -> None:
        a, b = Channel.pair()
        reader = await blocked(b.read_exactly_async(2, timeout=timeout))
        a.write_all(b"ok")
        assert await reader == b"ok"

    run(main())


def test_a_cancelled_read_takes_no_bytes_and_leaves_the_end_free():
    async def main() -> None:
        a, b = Channel.pair()
        target = bytearray(b"...")
        reader = await blocked(b.read_async(target))
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        del reader
        a.write_all(b"abc")
        assert target == b"..."
        assert await b.read_exactly_async(3) == b"abc"

    run(main())


def test_a_cancelled_write_leaves_no_bytes_and_the_end_free():
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=2)
        a.write_all(b"ab")
        writer = await blocked(a.write_async(b"XX"))
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        assert await b.read_exactly_async(2) == b"ab"
        a.write_all(b"cd")
        assert await b.read_exactly_async(2) == b"cd"

    run(main())


def test_a_read_cancelled_just_as_bytes_arrive_loses_none_of_them():
    async def main() -> None:
        for round_number in range(200):
            a, b = Channel.pair()
            target = bytearray(3)
            reader = await blocked(b.read_async(target))
            a.write_all(b"abc")  # the wake-up is on its way, and now the reader gives up
            reader.cancel()
            outcome = (await asyncio.gather(reader, return_exceptions=True))[0]
            got = target[:outcome] if isinstance(outcome, int) else b""
            rest = await b.read_exactly_async(3 - len(got), timeout=5)
            assert got + rest == b"abc", f"in round {round_number}"

    run(main())


def test_a_reader_left_behind_on_a_closed_loop_does_not_hurt_the_writer():
    a, b = Channel.pair(buffer_bytes=2)
    a.write_all(b"ff")
    loop = asyncio.new_event_loop()
    left_behind = [
        loop.create_task(a.read_async(bytearray(1))),
        loop.create_task(a.write_async(b"x")),
    ]
    for task in left_behind:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(settle())
    assert [task.done() for task in left_behind] == [False, False]
    loop.close()
    b.write_all(b"y", timeout=5)
    assert b.read_exactly(2, timeout=5) == b"ff"
    b.disconnect()
    del task, left_behind
    gc.collect()  # the coroutines die here, quietly: a complaint would be a warning, so an error
    assert a.disconnected is False  # b"y" has not been read
    assert a.read_exactly(1, timeout=5) == b"y"  # and the end is free again


# --- two users at one end, and bad input --------------------------------------------------------


def test_a_second_reader_or_writer_is_refused_and_the_first_is_unharmed():
    async def main() -> None:
        a, b = Channel.pair(buffer_bytes=2)
        a.write_all(b"ab")
        reader = await blocked(a.read_exactly_async(2))
        writer = await blocked(a.write_all_async(b"cd"))
        with pytest.raises(BusyResource):
            await a.read_async(bytearray(1))
        with pytest.raises(BusyResource):
            a.read(bytearray(1), timeout=0)
        with pytest.raises(BusyResource):
            await a.write_async(b"X")
        with pytest.raises(BusyResource):
            a.write(b"X", timeout=0)
        b.write_all(b"in")
        assert await reader == b"in"
        assert await b.read_exactly_async(4) == b"abcd"
        await writer

    run(main())


def test_a_coroutine_is_refused_while_a_thread_reads():
    a, b = Channel.pair()
    with Running(b.read_exactly, 2) as reader:
        reader.parked()
        with pytest.raises(BusyResource):
            run(b.read_async(bytearray(1)))
        a.write_all(b"ok")
        assert reader.result() == b"ok"


BAD_CALLS: list[tuple[Callable[[Channel], Awaitable[Any]], type[Exception]]] = [
    (lambda end: end.read_async("text"), WrongType),  # type: ignore[arg-type]
    (lambda end: end.read_async(b"..."), ReadOnlyBuffer),
    (lambda end: end.read_async(bytearray(3), 4), OutOfRange),
    (lambda end: end.read_async(bytearray(3), timeout=-1), OutOfRange),
    (lambda end: end.write_async(None), WrongType),  # type: ignore[arg-type]
    (lambda end: end.write_async(b"abc", 0, 4), OutOfRange),
    (lambda end: end.write_async(b"abc", timeout=float("nan")), OutOfRange),
    (lambda end: end.write_async(b"abc", timeout="1"), WrongType),  # type: ignore[arg-type]
    (lambda end: end.read_exactly_async(-1), OutOfRange),
    (lambda end: end.read_exactly_async("1"), WrongType),  # type: ignore[arg-type]
    (lambda end: end.read_exactly_async(1, timeout=-1), OutOfRange),
    (lambda end: end.write_all_async(memoryview(bytes(4))[::2]), WrongType),
    (lambda end: end.write_all_async(b"abc", timeout=-1), OutOfRange),
]


@pytest.mark.parametrize("case", range(len(BAD_CALLS)))
def test_bad_input_is_refused_and_nothing_changes(case: int):
    call, error = BAD_CALLS[case]

    async def main() -> None:
        a, b = Channel.pair()
        b.write_all(b"in")
        with pytest.raises(error):
            await call(a)
        assert await a.read_exactly_async(2) == b"in"
        with pytest.raises(Timeout):
            b.read(bytearray(1), timeout=0)

    run(main())


def test_the_last_byte_read_by_a_coroutine_wakes_a_blocked_thread():
    a, b = Channel.pair(buffer_bytes=1)
    a.write(b"x")

    async def main() -> bytes:
        with Running(a.write, b"y") as writer:
            writer.parked()
            first = await b.read_exactly_async(1)
            await until_async(lambda: writer.done)
            return first + await b.read_exactly_async(1)

    assert run(main()) == b"xy"
