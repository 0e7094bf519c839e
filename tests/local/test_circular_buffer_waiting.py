"""CircularBuffer: calls that wait for room or for bytes, and the end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from hocket.errors import Closed, OutOfRange, Timeout, WouldBlock, WrongType
from hocket.local import CircularBuffer
from tests.support.threads import Running, noise, run, settle


def read(ring: CircularBuffer, size: int, **options: Any) -> bytes:
    target = bytearray(size)
    return bytes(target[: ring.read(target, **options)])


def read_to_the_end(ring: CircularBuffer, size: int) -> bytes:
    """Everything until the ring is closed, in reads of at most `size`."""
    got = bytearray()
    try:
        while True:
            got += read(ring, size, timeout=10)
    except Closed:
        return bytes(got)


def full(capacity: int = 4) -> CircularBuffer:
    ring = CircularBuffer(capacity)
    assert ring.write(bytes(capacity)) == capacity
    return ring


# --- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 10, 10.5, float("inf")])
def test_with_a_timeout_a_read_waits_for_bytes(timeout: float | None):
    ring = CircularBuffer(8)
    with Running(read, ring, 8, timeout=timeout) as reader:
        reader.parked()
        ring.write(b"abc")
        assert reader.result() == b"abc"
    assert ring.readers == []


@pytest.mark.parametrize("timeout", [None, 10])
def test_with_a_timeout_a_write_waits_for_room_and_then_takes_what_fits(timeout: float | None):
    ring = full(4)
    with Running(ring.write, b"abcdef", timeout=timeout) as writer:
        writer.parked()
        read(ring, 3)
        assert writer.result() == 3
    assert read(ring, 8) == b"\0abc"
    assert ring.writers == []


def test_single_bytes_wait_too():
    ring = CircularBuffer(1)
    with Running(ring.pull, timeout=10) as puller:
        puller.parked()
        ring.push(7)
        assert puller.result() == 7
    ring.push(8)
    with Running(ring.push, 9, timeout=None) as pusher:
        pusher.parked()
        assert ring.pull() == 8
        pusher.result()
    assert ring.pull(timeout=10) == 9


@pytest.mark.parametrize("timeout", [0, 0.0])
def test_without_time_nothing_waits(timeout: float):
    ring = full(2)
    assert ring.write(b"x", timeout=timeout) == 0
    with pytest.raises(WouldBlock):
        ring.push(1, timeout=timeout)
    assert read(ring, 2, timeout=timeout) == bytes(2)
    assert read(ring, 2, timeout=timeout) == b""
    with pytest.raises(WouldBlock):
        ring.pull(timeout=timeout)


def test_a_call_that_waited_in_vain_raises_timeout_and_changes_nothing():
    ring = full(2)
    for call in (
        lambda: ring.write(b"x", timeout=0.001),
        lambda: ring.push(1, timeout=0.001),
    ):
        with pytest.raises(Timeout):
            call()
    assert read(ring, 4) == bytes(2)
    for call in (
        lambda: read(ring, 1, timeout=0.001),
        lambda: ring.pull(timeout=0.001),
    ):
        with pytest.raises(Timeout):
            call()
    assert (ring.readers, ring.writers) == ([], [])


def test_who_asks_for_nothing_does_not_wait():
    ring = full(2)
    assert ring.write(b"", timeout=10) == 0
    read(ring, 2)
    assert ring.read(bytearray(), timeout=None) == 0


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, OutOfRange), (float("nan"), OutOfRange), ("1", WrongType), (True, WrongType)],
)
def test_a_bad_timeout_is_refused_and_nothing_moves(timeout: Any, error: type[Exception]):
    ring = CircularBuffer(4)
    ring.write(b"ab")
    for call in (ring.push, ring.pull, ring.write, ring.read):
        arguments = {"push": [1], "pull": []}.get(call.__name__, [bytearray(1)])
        with pytest.raises(error):
            call(*arguments, timeout=timeout)
    assert read(ring, 4) == b"ab"


def test_a_long_stream_through_a_tiny_ring_is_exact():
    ring, data = CircularBuffer(7), noise(10_000, "tiny ring")

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[ring.write(rest[:11], timeout=10) :]
        ring.close()

    with Running(write):
        assert read_to_the_end(ring, 5) == data


# --- coroutines ----------------------------------------------------------------------------------


def test_coroutines_wait_unless_told_otherwise():
    async def talk() -> None:
        ring = CircularBuffer(2)
        target = bytearray(4)
        reading = asyncio.ensure_future(ring.read_async(target))
        await settle()
        assert not reading.done()
        assert await ring.write_async(b"abc") == 2
        assert await reading == 2
        pulling = asyncio.ensure_future(ring.pull_async())
        await settle()
        await ring.push_async(7)
        assert await pulling == 7

        assert await ring.write_async(b"xy") == 2
        writing = asyncio.ensure_future(ring.write_async(b"z", timeout=10))
        await settle()
        assert not writing.done()
        assert ring.pull() == ord("x")
        assert await writing == 1

        assert await ring.write_async(b"!", timeout=0) == 0
        with pytest.raises(WouldBlock):
            await ring.push_async(1, timeout=0)
        with pytest.raises(Timeout):
            await ring.push_async(1, timeout=0.001)
        assert await ring.read_async(target, 0, 2) == 2
        assert await ring.read_async(target, timeout=0) == 0
        with pytest.raises(WouldBlock):
            await ring.pull_async(timeout=0)
        with pytest.raises(Timeout):
            await ring.read_async(target, timeout=0.001)
        assert await ring.read_async(bytearray()) == 0
        assert await ring.write_async(b"") == 0
        assert (ring.readers, ring.writers) == ([], [])

    run(talk())


def test_a_thread_and_a_coroutine_share_a_ring():
    ring, data = CircularBuffer(5), noise(5_000, "a thread and a coroutine")

    async def receive() -> bytes:
        got, target = bytearray(), bytearray(3)
        while len(got) < len(data):
            got += target[: await ring.read_async(target)]
        return bytes(got)

    def send() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[ring.write(rest, timeout=10) :]

    with Running(send):
        assert run(receive()) == data


# --- the end -------------------------------------------------------------------------------------


def test_after_the_end_what_is_there_is_read_and_then_closed_is_raised():
    ring = CircularBuffer(4)
    ring.write(b"abc")
    assert ring.closed is False
    ring.close()
    ring.close()
    assert ring.closed is True
    for call in (lambda: ring.write(b"x"), lambda: ring.push(1), lambda: ring.push(1, timeout=10)):
        with pytest.raises(Closed):
            call()
    assert read(ring, 2) == b"ab"
    assert ring.pull(timeout=10) == ord("c")
    for call in (lambda: read(ring, 1), ring.pull, lambda: ring.pull(timeout=None)):
        with pytest.raises(Closed):
            call()
    assert ring.write(b"") == ring.read(bytearray()) == 0  # nothing was asked


def test_closing_wakes_who_waits():
    empty, packed = CircularBuffer(2), full(2)
    with Running(empty.pull, timeout=None) as reader, Running(packed.push, 1, timeout=10) as writer:
        reader.parked()
        writer.parked()
        empty.close()
        packed.close()
        reader.failure(Closed)
        writer.failure(Closed)

    async def wait() -> None:
        ring = CircularBuffer(2)
        reading = asyncio.ensure_future(ring.pull_async())
        await settle()
        ring.close()
        with pytest.raises(Closed):
            await reading

    run(wait())


def test_what_a_write_took_during_the_end_is_read_or_not_taken():
    """A thread writes and another closes: what the writer was told it wrote is what is read."""
    for _ in range(200):
        ring, start = CircularBuffer(4), threading.Barrier(3)
        written: list[int] = []

        def write(ring: CircularBuffer = ring, start: Any = start, to: Any = written) -> None:
            start.wait(10)
            with suppress(Closed):
                while True:
                    to.append(ring.write(b"ab", timeout=10))

        def close(ring: CircularBuffer = ring, start: Any = start) -> None:
            start.wait(10)
            ring.close()

        with Running(write), Running(close):
            start.wait(10)
            got = read_to_the_end(ring, 3)
        assert len(got) == sum(written)


class EndsDuringPut(CircularBuffer):
    """A ring that is closed, and perhaps found empty by its reader, just before a `put`."""

    drain_first = False

    def put(self, data: bytes | memoryview, size: int) -> int:
        self.close()
        if self.drain_first:
            with pytest.raises(Closed):
                self.pull()
        return super().put(data, size)


@pytest.mark.parametrize("drain_first", [True, False])
def test_a_write_that_the_end_overtakes_is_read_or_raises(drain_first: bool):
    ring = EndsDuringPut(4)
    ring.drain_first = drain_first
    if drain_first:
        with pytest.raises(Closed):
            ring.write(b"late")
        assert ring.empty()
    else:
        assert ring.write(b"in time") == 4
        assert read(ring, 8) == b"in t"
