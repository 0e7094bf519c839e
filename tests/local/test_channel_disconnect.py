"""Channel: disconnection is asynchronous and graceful, and bytes never vanish in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hocket.errors import Disconnected, Timeout
from hocket.local import Channel
from tests.support.threads import Running, noise


def read_until_disconnected(end: Channel, size: int = 1000) -> bytes:
    out, target = bytearray(), bytearray(size)
    while True:
        try:
            count = end.read(target, timeout=10)
        except Disconnected:
            return bytes(out)
        out += target[:count]


USES: dict[str, Callable[[Channel], Any]] = {
    "read": lambda end: end.read(bytearray(3)),
    "write": lambda end: end.write(b"xyz"),
    "read_exactly": lambda end: end.read_exactly(3),
    "write_all": lambda end: end.write_all(b"xyz"),
    "read with a timeout": lambda end: end.read(bytearray(3), timeout=10),
    "write with a timeout": lambda end: end.write(b"xyz", timeout=10),
    "read_exactly with a timeout": lambda end: end.read_exactly(3, timeout=10),
    "write_all with a timeout": lambda end: end.write_all(b"xyz", timeout=10),
}


# --- the side that disconnects ------------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
def test_the_side_that_disconnects_may_no_longer_read_or_write(use: str):
    a, b = Channel.pair()
    b.write_all(b"unread")
    a.disconnect()
    with pytest.raises(Disconnected):
        USES[use](a)
    assert a.disconnected


def test_a_fresh_channel_is_connected_at_both_ends():
    a, b = Channel.pair()
    assert (a.disconnected, b.disconnected) == (False, False)


def test_disconnected_is_true_at_once_on_the_side_that_disconnects():
    a, b = Channel.pair()
    a.write_all(b"x")
    a.disconnect()
    assert (a.disconnected, b.disconnected) == (True, False)
    b.disconnect()
    assert (a.disconnected, b.disconnected) == (True, True)


def test_a_with_block_disconnects_at_its_end():
    a, b = Channel.pair()
    with a as same:
        assert same is a
        a.write_all(b"bye")
        assert not a.disconnected
    assert a.disconnected
    assert read_until_disconnected(b) == b"bye"


def test_a_with_block_that_fails_disconnects_and_lets_the_failure_through():
    a, b = Channel.pair()

    def body() -> None:
        with a:
            a.write_all(b"bye")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert a.disconnected
    assert read_until_disconnected(b) == b"bye"


def test_disconnecting_twice_is_fine():
    a, b = Channel.pair()
    a.write_all(b"x")
    for _ in range(3):
        a.disconnect()
    assert read_until_disconnected(b) == b"x"
    for _ in range(3):
        b.disconnect()
    assert (a.disconnected, b.disconnected) == (True, True)


def test_disconnecting_from_both_ends_at_once_is_fine():
    for _ in range(200):
        a, b = Channel.pair()
        start = threading.Barrier(4)

        def leave(end: Channel, start: threading.Barrier = start) -> None:
            start.wait(10)
            end.disconnect()

        with Running(leave, a), Running(leave, b), Running(leave, a), Running(leave, b):
            pass
        assert (a.disconnected, b.disconnected) == (True, True)


# --- the other side -----------------------------------------------------------------------------


def test_the_other_side_reads_every_byte_in_transit_and_only_then_is_disconnected():
    a, b = Channel.pair()
    a.write_all(b"abcdef")
    a.disconnect()
    history: list[object] = []
    target = bytearray(4)
    for _ in range(6):
        history.append(b.disconnected)
        assert b.read(target, 0, 1) == 1
        history.append(bytes(target[:1]))
    history.append(b.disconnected)
    assert history == [
        False,
        b"a",
        False,
        b"b",
        False,
        b"c",
        False,
        b"d",
        False,
        b"e",
        False,
        b"f",
        True,
    ]
    for _ in range(2):
        with pytest.raises(Disconnected):
            b.read(target)


def test_with_nothing_in_transit_the_other_side_is_disconnected_at_once():
    a, b = Channel.pair()
    a.write_all(b"x")
    assert b.read_exactly(1) == b"x"
    a.disconnect()
    assert b.disconnected
    with pytest.raises(Disconnected):
        b.read(bytearray(1))


@pytest.mark.parametrize("use", [use for use in USES if use.startswith("write")])
@pytest.mark.parametrize("in_transit", [b"", b"still to be read"])
def test_a_write_to_a_side_that_has_gone_raises_even_with_room(use: str, in_transit: bytes):
    a, b = Channel.pair()
    a.write_all(in_transit)
    a.disconnect()
    with pytest.raises(Disconnected) as cut:
        USES[use](b)
    assert (cut.value.written, cut.value.partial) == (0, b"")
    assert read_until_disconnected(b) == in_transit


def test_a_full_buffer_can_still_be_read_after_the_writer_left():
    a, b = Channel.pair(buffer_bytes=1 << 16)
    data = noise(1 << 16)
    a.write_all(data)
    a.disconnect()
    assert read_until_disconnected(b) == data


def test_what_the_peer_had_sent_is_gone_for_the_side_that_disconnects_but_not_the_reverse():
    a, b = Channel.pair()
    a.write_all(b"to b")
    b.write_all(b"to a")
    a.disconnect()
    with pytest.raises(Disconnected):
        a.read(bytearray(4))
    assert read_until_disconnected(b) == b"to b"


def test_read_exactly_cut_short_hands_over_what_was_there():
    a, b = Channel.pair()
    a.write_all(b"abc")
    a.disconnect()
    with pytest.raises(Disconnected) as cut:
        b.read_exactly(5)
    assert (cut.value.partial, cut.value.written) == (b"abc", 0)
    with pytest.raises(Disconnected) as cut:
        b.read_exactly(1)
    assert cut.value.partial == b""
    assert b.disconnected


def test_read_exactly_of_just_what_is_in_transit_succeeds():
    a, b = Channel.pair()
    a.write_all(b"abcdef")
    a.disconnect()
    assert (b.read_exactly(2), b.read_exactly(4)) == (b"ab", b"cdef")
    assert b.disconnected


def test_a_read_that_times_out_is_not_taken_for_a_disconnection():
    a, b = Channel.pair()
    with pytest.raises(Timeout):
        b.read(bytearray(1), timeout=0)
    assert not b.disconnected
    a.disconnect()
    with pytest.raises(Disconnected):
        b.read(bytearray(1), timeout=0)
    with pytest.raises(Disconnected):
        b.write(b"x", timeout=0)


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_length_zero_returns_at_once_on_a_disconnected_end(who_leaves: str):
    a, b = Channel.pair()
    (a if who_leaves == "own end" else b).disconnect()
    assert (a.read(bytearray()), a.read(bytearray(2), 1, 0)) == (0, 0)
    assert (a.write(b""), a.write(b"xy", 2)) == (0, 0)
    assert a.read_exactly(0) == b""
    a.write_all(b"")


# --- blocked tasks are woken --------------------------------------------------------------------


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
@pytest.mark.parametrize("use", USES)
def test_a_blocked_task_is_woken_with_disconnected(use: str, who_leaves: str):
    a, b = Channel.pair(buffer_bytes=2)
    a.write_all(b"ff")
    with Running(USES[use], a) as blocked:
        blocked.parked()
        (a if who_leaves == "own end" else b).disconnect()
        blocked.failure(Disconnected)
    assert a.disconnected


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_a_reader_and_a_writer_blocked_at_one_end_are_both_woken(who_leaves: str):
    a, b = Channel.pair(buffer_bytes=2)
    a.write_all(b"ff")
    with Running(a.read, bytearray(1)) as reader, Running(a.write, b"x") as writer:
        reader.parked()
        writer.parked()
        (a if who_leaves == "own end" else b).disconnect()
        reader.failure(Disconnected)
        writer.failure(Disconnected)


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_readers_blocked_at_both_ends_are_both_woken(who_leaves: str):
    a, b = Channel.pair()
    with Running(a.read, bytearray(1)) as at_a, Running(b.read, bytearray(1)) as at_b:
        at_a.parked()
        at_b.parked()
        (a if who_leaves == "own end" else b).disconnect()
        at_a.failure(Disconnected)
        at_b.failure(Disconnected)


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_writers_blocked_at_both_ends_are_woken_and_what_they_had_written_stays(
    who_leaves: str,
):
    a, b = Channel.pair(buffer_bytes=2)
    with Running(a.write_all, b"abc") as at_a, Running(b.write_all, b"xyz") as at_b:
        at_a.parked()
        at_b.parked()
        gone, left = (a, b) if who_leaves == "own end" else (b, a)
        gone.disconnect()
        assert at_a.failure(Disconnected).written == 2
        assert at_b.failure(Disconnected).written == 2
    assert read_until_disconnected(left) == (b"ab" if gone is a else b"xy")


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_a_blocked_read_exactly_is_woken_with_what_it_had(who_leaves: str):
    a, b = Channel.pair()
    a.write_all(b"abc")
    with Running(b.read_exactly, 10) as reader:
        reader.parked()
        a.write_all(b"de")
        reader.parked()
        (b if who_leaves == "own end" else a).disconnect()
        cut = reader.failure(Disconnected)
    assert (cut.partial, cut.written) == (b"abcde", 0)


@pytest.mark.parametrize("who_leaves", ["own end", "other end"])
def test_a_blocked_write_all_is_woken_and_says_how_much_was_taken(who_leaves: str):
    a, b = Channel.pair(buffer_bytes=4)
    with Running(a.write_all, b"abcdefghijkl") as writer:
        writer.parked()
        assert b.read_exactly(3) == b"abc"
        writer.parked()
        (a if who_leaves == "own end" else b).disconnect()
        cut = writer.failure(Disconnected)
    assert (cut.partial, cut.written) == (b"", 7)
    if who_leaves == "own end":
        assert read_until_disconnected(b) == b"defg"


def test_a_woken_task_leaves_no_hold_on_its_buffer():
    def blocked(call: Callable[[bytearray], int], buffer: bytearray) -> None:
        with pytest.raises(Disconnected):  # here, since a kept traceback keeps its frames
            call(buffer)

    a, b = Channel.pair(buffer_bytes=1)
    a.write(b"f")
    target, source = bytearray(1), bytearray(1)
    with Running(blocked, a.read, target) as reader, Running(blocked, a.write, source) as writer:
        reader.parked()
        writer.parked()
        b.disconnect()
    target.append(1)  # a bytearray that is still exported refuses to grow
    source.append(1)


def test_a_reader_that_drains_in_a_thread_gets_everything_before_the_end():
    data = noise(200_000)
    for size in (1 << 10, 1 << 20):
        a, b = Channel.pair(buffer_bytes=size)
        with Running(read_until_disconnected, b) as reader:
            a.write_all(data)
            a.disconnect()
            assert reader.result() == data
