"""Channel: what a disconnection in the middle of a read or a write leaves, step by step.

The only tests that look inside: the ring is replaced by one that stops at a named step, so that
each interleaving happens for certain instead of once in a million runs.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from hocket.errors import Disconnected
from hocket.local import Channel
from hocket.local.channel import Stream
from hocket.local.circular_buffer import allocate
from tests.support.threads import PATIENCE, Running


class Stop:
    """A step at which the first thread that comes by waits until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def wait_until_reached(self) -> None:
        assert self.reached.wait(PATIENCE), "nobody came to this step"

    def release(self) -> None:
        self.go_on.set()


class SteppedStream(Stream):
    """A stream that stops before and after `put`, and before and in the middle of `take`."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.stops: dict[str, Stop] = {}
        self._storage: Any = SteppedStorage(allocate(capacity), self)

    def stop(self, step: str) -> Stop:
        self.stops[step] = Stop()
        return self.stops[step]

    def come_by(self, step: str) -> None:
        stop = self.stops.pop(step, None)
        if stop is not None:
            stop.reached.set()
            assert stop.go_on.wait(PATIENCE), f"held for too long at {step!r}"

    def put(self, data: Any, size: int) -> int:
        self.come_by("before put")
        count = super().put(data, size)
        self.come_by("after put")
        return count

    def take(self, target: memoryview, size: int) -> int:
        self.come_by("before take")
        return super().take(target, size)


class SteppedStorage:
    def __init__(self, memory: memoryview, ring: SteppedStream) -> None:
        self.memory = memory
        self.ring = ring

    def __getitem__(self, place: slice) -> memoryview:
        self.ring.come_by("in take")  # how much was settled; the reader's counter has not moved
        return self.memory[place]

    def __setitem__(self, place: slice, data: Any) -> None:
        self.memory[place] = data


def stepped_pair() -> tuple[Channel, Channel, SteppedStream]:
    """Two ends, and the ring from the first to the second."""
    ring, back = SteppedStream(16), Stream(16)
    return Channel(back, ring), Channel(ring, back), ring


def assert_at_its_end(end: Channel) -> None:
    assert end.disconnected
    for _ in range(2):
        with pytest.raises(Disconnected):
            end.read(bytearray(8), timeout=0)


def read_bytes(end: Channel) -> bytes:
    target = bytearray(16)
    return bytes(target[: end.read(target)])


@pytest.mark.parametrize("step", ["before put", "after put"])
def test_a_write_overtaken_by_its_own_disconnection_still_arrives(step: str):
    a, b, ring = stepped_pair()
    stop = ring.stop(step)
    with Running(a.write, b"hello") as writer:
        stop.wait_until_reached()
        a.disconnect()
        stop.release()
        assert writer.result() == 5
    assert not b.disconnected
    assert b.read_exactly(5) == b"hello"
    assert_at_its_end(b)


@pytest.mark.parametrize("how", ["disconnected", "read"])
def test_a_write_that_comes_after_the_reader_was_told_of_the_end_raises(how: str):
    a, b, ring = stepped_pair()
    stop = ring.stop("before put")
    with Running(a.write, b"hello") as writer:
        stop.wait_until_reached()
        a.disconnect()
        if how == "disconnected":
            assert b.disconnected
        else:
            with pytest.raises(Disconnected):
                b.read(bytearray(8))
        stop.release()
        writer.failure(Disconnected)
    assert_at_its_end(b)


@pytest.mark.parametrize("step", ["before put", "after put"])
def test_a_write_overtaken_by_the_readers_disconnection_raises(step: str):
    a, b, ring = stepped_pair()
    stop = ring.stop(step)
    with Running(a.write, b"hello") as writer:
        stop.wait_until_reached()
        b.disconnect()
        stop.release()
        writer.failure(Disconnected)
    assert_at_its_end(a)
    assert_at_its_end(b)


def test_a_write_all_overtaken_by_the_readers_disconnection_counts_what_was_taken_before():
    a, b, ring = stepped_pair()
    a.write_all(b"0123456789")
    with Running(a.write_all, b"abcdefghij") as writer:  # 6 of 10 fit
        writer.parked()
        stop = ring.stop("before put")
        assert b.read_exactly(3) == b"012"
        stop.wait_until_reached()
        b.disconnect()
        stop.release()
        assert writer.failure(Disconnected).written == 6


@pytest.mark.parametrize("step", ["before take", "in take"])
def test_a_read_overtaken_by_the_writers_disconnection_gets_its_bytes(step: str):
    a, b, ring = stepped_pair()
    a.write_all(b"hello")
    stop = ring.stop(step)
    with Running(read_bytes, b) as reader:
        stop.wait_until_reached()
        a.disconnect()
        stop.release()
        assert reader.result() == b"hello"
    assert_at_its_end(b)


@pytest.mark.parametrize("step", ["before take", "in take"])
def test_a_read_overtaken_by_its_own_disconnection_gets_its_bytes_or_the_error(step: str):
    a, b, ring = stepped_pair()
    a.write_all(b"hello")
    stop = ring.stop(step)
    with Running(read_bytes, b) as reader:
        stop.wait_until_reached()
        b.disconnect()
        stop.release()
        reader.wait()
        with contextlib.suppress(Disconnected):
            assert reader.result() == b"hello"
    assert_at_its_end(b)
    with pytest.raises(Disconnected):
        a.write(b"more")


@pytest.mark.parametrize("earlier", [b"", b"before "])
@pytest.mark.parametrize("who_leaves", ["the writer", "the reader"])
def test_a_write_that_raised_is_not_read_by_a_read_in_full_flight(earlier: bytes, who_leaves: str):
    """Both are under way when the end comes; the write is taken back while the read copies."""
    a, b, ring = stepped_pair()
    a.write_all(earlier)
    before_put, after_put = ring.stop("before put"), ring.stop("after put")
    before_take, in_take = ring.stop("before take"), ring.stop("in take")
    with Running(a.write, b"hello") as writer, Running(read_bytes, b) as reader:
        before_put.wait_until_reached()
        before_take.wait_until_reached()
        if who_leaves == "the writer":
            a.disconnect()
            told = b.disconnected
            assert told == (not earlier)
        else:
            b.disconnect()
        before_put.release()
        after_put.wait_until_reached()
        before_take.release()
        in_take.wait_until_reached()
        after_put.release()
        writer.wait()
        in_take.release()
        reader.wait()

        written = b""
        with contextlib.suppress(Disconnected):
            written = b"hello"[: writer.result()]
        received = b""
        with contextlib.suppress(Disconnected):
            received = reader.result()
    assert received == (earlier + written)[: len(received)]
    if who_leaves == "the writer":
        assert received == earlier + written
    assert len(ring) >= 0
    assert_at_its_end(b)
