"""Channel: a full-duplex, lossless FIFO byte stream between two ends."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import signal
import threading
from pathlib import Path

import pytest

from hocket.errors import Timeout
from hocket.local import Channel
from tests.support.threads import LONG, Running, noise, until, wait_parked

TRANSFER_BYTES = 100_000 if LONG else 10_000  # through a tiny buffer


def fill(channel: Channel) -> int:
    """Write until there is no room; the number of bytes that went in."""
    total = 0
    try:
        while True:
            total += channel.write(b"f", timeout=0)
    except Timeout:
        return total


# --- the stream ---------------------------------------------------------------------------------


def test_what_one_end_writes_the_other_reads_in_order():
    a, b = Channel.pair()
    assert [a.write(b"first "), a.write(b"second")] == [6, 6]
    assert b.read_exactly(12) == b"first second"


def test_the_two_directions_are_independent():
    a, b = Channel.pair(buffer_bytes=4)
    assert (fill(a), fill(b)) == (4, 4)
    assert (a.read_exactly(4), b.read_exactly(4)) == (b"ffff", b"ffff")
    a.write_all(b"to b")
    b.write_all(b"to a")
    assert (a.read_exactly(4), b.read_exactly(4)) == (b"to a", b"to b")


def test_write_takes_at_least_one_byte_and_never_more_than_there_is_room_for():
    a, b = Channel.pair(buffer_bytes=5)
    data, sent, counts = b"abcdefgh", 0, []
    while sent < 5:
        counts.append(a.write(data, sent))
        sent += counts[-1]
    assert min(counts) >= 1
    assert sent == 5
    with pytest.raises(Timeout):
        a.write(data, sent, timeout=0)
    assert b.read_exactly(5) == b"abcde"


def test_read_gives_at_least_one_byte_and_leaves_the_rest_of_the_target_alone():
    a, b = Channel.pair()
    a.write_all(b"abc")
    target, got = bytearray(b"........"), b""
    while len(got) < 3:
        count = b.read(target, 1)
        assert 1 <= count <= 3 - len(got)
        got += target[1 : 1 + count]
        assert target[0:1] == b"."
        assert target[4:] == b"...."
    assert got == b"abc"


def test_read_takes_no_more_than_asked():
    a, b = Channel.pair()
    a.write_all(b"abcdef")
    target = bytearray(b"........")
    count = b.read(target, 2, 3)
    assert 1 <= count <= 3
    assert target == b".." + b"abcdef"[:count] + b"." * (6 - count)
    assert b.read_exactly(6 - count) == b"abcdef"[count:]


def test_write_takes_the_slice_that_offset_and_length_name():
    a, b = Channel.pair()
    assert a.write(b"abcdef", 2) == 4
    assert a.write(b"uvwxyz", offset=1, length=2) == 2
    assert b.read_exactly(6) == b"cdefvw"


def test_length_zero_returns_at_once_even_with_nothing_to_read_and_no_room():
    a, b = Channel.pair(buffer_bytes=2)
    assert fill(a) == 2
    assert a.write(b"") == 0
    assert a.write(b"abc", 3) == 0
    assert a.write(b"abc", 1, 0) == 0
    assert a.read(bytearray()) == 0
    assert a.read(bytearray(3), 1, 0) == 0
    assert a.read_exactly(0) == b""
    a.write_all(b"")
    assert b.read_exactly(2) == b"ff"


class Record(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint16 * 2)]
    _pack_ = 1


def buffers() -> list[object]:
    return [
        bytearray(12),
        memoryview(bytearray(12)),
        memoryview(bytearray(12)).cast("I"),
        memoryview(bytearray(12)).cast("B", shape=[3, 4]),
        array.array("i", [0, 0, 0]),
        (ctypes.c_uint16 * 6)(),
        Record(),
        mmap.mmap(-1, 12),
    ]


@pytest.mark.parametrize("kind", range(len(buffers())))
def test_any_bytes_like_object_works_and_is_counted_in_bytes(kind: int):
    a, b = Channel.pair()
    source, target = buffers()[kind], buffers()[kind]
    memoryview(source).cast("B")[:] = b"abcdefghijkl"
    a.write_all(source)
    assert a.write(source, 1, 2) == 2
    assert b.read(target, 5, 4) == 4
    assert bytes(memoryview(target).cast("B")) == b"\0\0\0\0\0abcd\0\0\0"
    assert b.read_exactly(10) == b"efghijklbc"


def test_the_bytes_are_copied_and_no_hold_on_the_callers_buffer_remains():
    a, b = Channel.pair()
    source, target = bytearray(b"abc"), bytearray(3)
    a.write(source)
    source[:] = b"XYZ"
    source.append(1)  # a bytearray that is still exported refuses to grow
    assert b.read(target) == 3
    target.append(1)
    assert target == b"abc\x01"


def test_a_thousand_idle_channels_allocate_no_buffers():
    def virtual_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

    before = virtual_bytes()
    idle = [Channel.pair() for _ in range(1000)]  # 2 GiB if each end had its buffer
    assert virtual_bytes() - before < 64 << 20
    a, b = idle[500]
    a.write_all(b"used now")
    assert b.read_exactly(8) == b"used now"


def test_the_default_buffer_holds_one_mebibyte_each_way():
    a, b = Channel.pair()
    data = noise((1 << 20) + 1)
    with pytest.raises(Timeout) as cut:
        a.write_all(data, timeout=0)
    assert cut.value.written == 1 << 20
    assert b.read_exactly(1 << 20) == data[: 1 << 20]


# --- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 10, 1e12, float("inf")])
def test_read_waits_until_there_is_something(timeout: float | None):
    a, b = Channel.pair()
    target = bytearray(8)
    with Running(b.read, target, timeout=timeout) as reader:
        reader.parked()
        a.write(b"abc")
        assert reader.result() == 3
    assert target == b"abc\0\0\0\0\0"


@pytest.mark.parametrize("timeout", [None, 10, 1e12, float("inf")])
def test_write_waits_until_there_is_room(timeout: float | None):
    a, b = Channel.pair(buffer_bytes=3)
    a.write_all(b"abc")
    with Running(a.write, b"defg", timeout=timeout) as writer:
        writer.parked()
        assert b.read_exactly(1) == b"a"
        count = writer.result()
    assert count == 1
    assert b.read_exactly(3) == b"bcd"


def test_read_exactly_waits_for_every_byte():
    a, b = Channel.pair()
    with Running(b.read_exactly, 6) as reader:
        for piece in (b"ab", b"cde"):
            a.write(piece)
            reader.parked()
        a.write(b"fgh")
        assert reader.result() == b"abcdef"
    assert b.read_exactly(2) == b"gh"


def test_write_all_waits_until_every_byte_is_taken():
    a, b = Channel.pair(buffer_bytes=2)
    with Running(a.write_all, b"abcdefg") as writer:
        writer.parked()
        assert b.read_exactly(4) == b"abcd"
        writer.parked()
        assert b.read_exactly(3) == b"efg"
        writer.result()


def test_both_ends_may_read_and_write_at_the_same_time():
    a, b = Channel.pair(buffer_bytes=1000)
    to_b, to_a = noise(300_000, "to b"), noise(200_000, "to a")
    with (
        Running(a.write_all, to_b) as a_writes,
        Running(b.write_all, to_a) as b_writes,
        Running(a.read_exactly, len(to_a)) as a_reads,
        Running(b.read_exactly, len(to_b)) as b_reads,
    ):
        assert a_reads.result() == to_a
        assert b_reads.result() == to_b
        a_writes.result()
        b_writes.result()


def test_one_end_waits_for_both_room_and_bytes_at_the_same_time():
    a, b = Channel.pair(buffer_bytes=2)
    assert fill(a) == 2
    with Running(a.read_exactly, 3) as reader, Running(a.write_all, b"xyz") as writer:
        reader.parked()
        writer.parked()
        b.write_all(b"abc")
        assert reader.result() == b"abc"
        assert not writer.done
        assert b.read_exactly(5) == b"ffxyz"
        writer.result()


@pytest.mark.stress
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_a_long_transfer_through_a_tiny_buffer_is_exact(size: int):
    a, b = Channel.pair(buffer_bytes=size)
    data = noise(TRANSFER_BYTES, size)
    with Running(a.write_all, data), Running(b.read_exactly, len(data)) as reader:
        assert reader.result(60) == data
    with pytest.raises(Timeout):
        b.read(bytearray(1), timeout=0)


def test_tens_of_megabytes_through_a_mebibyte_buffer_are_exact():
    a, b = Channel.pair()
    data = noise(48 << 20)
    with Running(a.write_all, data), Running(b.read_exactly, len(data)) as reader:
        assert reader.result(60) == data


def test_tens_of_megabytes_in_odd_pieces_are_exact():
    a, b = Channel.pair()
    data = noise(32 << 20)

    def write_in_pieces() -> None:
        sent = 0
        while sent < len(data):
            sent += a.write(data, sent, min(65_537, len(data) - sent))

    def read_in_pieces() -> bytearray:
        out = bytearray(len(data))
        got = 0
        while got < len(data):
            got += b.read(out, got, min(49_999, len(data) - got))
        return out

    with Running(write_in_pieces), Running(read_in_pieces) as reader:
        assert reader.result(60) == data


@pytest.mark.stress
def test_a_long_transfer_in_pieces_of_one_to_seven_bytes_is_exact():
    a, b = Channel.pair()
    data = noise(8 << 20 if LONG else 100_000)

    def write_in_pieces() -> None:
        sent = 0
        while sent < len(data):
            sent += a.write(data, sent, min(1 + sent % 7, len(data) - sent))

    def read_in_pieces() -> bytearray:
        out = bytearray(len(data))
        got = 0
        while got < len(data):
            got += b.read(out, got, min(1 + got % 5, len(data) - got))
        return out

    with Running(write_in_pieces), Running(read_in_pieces) as reader:
        assert reader.result(100) == data


# --- a signal in the main thread ----------------------------------------------------------------


class Interrupted(Exception):
    pass


def test_a_signal_interrupts_a_blocked_read_and_the_end_stays_usable():
    def interrupt(*_: object) -> None:
        raise Interrupted

    def send_signal() -> None:
        wait_parked(threading.main_thread())
        os.kill(os.getpid(), signal.SIGUSR1)

    a, b = Channel.pair()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Running(send_signal), pytest.raises(Interrupted):
            b.read(bytearray(3), timeout=20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with Running(b.read_exactly, 3) as reader:
        reader.parked()
        a.write_all(b"abc")
        assert reader.result() == b"abc"


def test_a_signal_whose_handler_returns_does_not_disturb_a_blocked_read():
    seen: list[int] = []

    def send_signal_then_bytes() -> None:
        wait_parked(threading.main_thread())
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: seen)
        a.write_all(b"abc")

    a, b = Channel.pair()
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with Running(send_signal_then_bytes):
            assert b.read_exactly(3, timeout=20) == b"abc"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]
