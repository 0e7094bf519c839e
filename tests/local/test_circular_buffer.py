"""CircularBuffer: a bounded FIFO of bytes that never waits."""

from __future__ import annotations

import array
import ctypes
import mmap
import time

import pytest

from hocket.errors import OutOfRange, ReadOnlyBuffer, WouldBlock, WrongType
from hocket.local import CircularBuffer
from tests.support.threads import Running, noise


def drain(ring: CircularBuffer) -> bytes:
    """Everything that waits in the ring, in order."""
    out = bytearray()
    scratch = bytearray(ring.capacity)
    while count := ring.read(scratch):
        out += scratch[:count]
    return bytes(out)


def test_a_new_buffer_is_empty_and_knows_its_capacity():
    ring = CircularBuffer(5)
    assert (ring.capacity, len(ring), ring.empty(), ring.full()) == (5, 0, True, False)


def test_bytes_come_out_in_the_order_they_went_in():
    ring = CircularBuffer(8)
    assert ring.write(b"abc") == 3
    assert ring.write(b"de") == 2
    assert drain(ring) == b"abcde"


def test_write_takes_what_fits_and_says_how_much():
    ring = CircularBuffer(4)
    assert [ring.write(b"abc"), ring.write(b"def"), ring.write(b"ghi")] == [3, 1, 0]
    assert (len(ring), ring.full(), ring.empty()) == (4, True, False)
    assert drain(ring) == b"abcd"


def test_read_gives_what_is_there_and_leaves_the_rest_of_the_target_alone():
    ring = CircularBuffer(8)
    ring.write(b"abc")
    target = bytearray(b"......")
    assert ring.read(target) == 3
    assert target == b"abc..."
    assert ring.read(target) == 0
    assert target == b"abc..."


def test_read_takes_no_more_than_asked():
    ring = CircularBuffer(8)
    ring.write(b"abcdef")
    target = bytearray(b"........")
    assert ring.read(target, 2, 3) == 3
    assert target == b"..abc..."
    assert len(ring) == 3
    assert drain(ring) == b"def"


def test_write_takes_the_slice_that_offset_and_length_name():
    ring = CircularBuffer(8)
    assert ring.write(b"abcdef", 2) == 4
    assert ring.write(b"uvwxyz", 1, 2) == 2
    assert ring.write(b"uvwxyz", offset=3, length=0) == 0
    assert ring.write(b"uvwxyz", 6) == 0
    assert drain(ring) == b"cdefvw"


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 8])
def test_order_holds_wherever_the_positions_wrap(capacity: int):
    ring = CircularBuffer(capacity)
    data = noise(40 * capacity, capacity)
    for step in range(1, capacity + 1):
        out = bytearray()
        sent = 0
        target = bytearray(step)
        while len(out) < len(data):
            sent += ring.write(data, sent, min(step, len(data) - sent))
            count = ring.read(target)
            out += target[:count]
        assert out == data
        assert ring.empty()


def test_moving_no_bytes_is_fine_on_a_buffer_that_was_never_used():
    ring = CircularBuffer(3)
    assert ring.read(bytearray()) == 0
    assert ring.read(bytearray(3), 3) == 0
    assert ring.read(bytearray(3)) == 0
    assert ring.write(b"") == 0
    assert ring.empty()


def test_push_and_pull_move_single_bytes_in_order():
    ring = CircularBuffer(3)
    for byte in (0, 255, 7):
        ring.push(byte)
    assert ring.full()
    assert [ring.pull(), ring.pull(), ring.pull()] == [0, 255, 7]
    assert ring.empty()


def test_push_and_pull_mix_with_write_and_read():
    ring = CircularBuffer(4)
    ring.push(ord("a"))
    ring.write(b"bc")
    ring.push(ord("d"))
    target = bytearray(2)
    assert ring.read(target) == 2
    assert (target, ring.pull(), ring.pull()) == (b"ab", ord("c"), ord("d"))


def test_push_into_a_full_buffer_would_block_and_changes_nothing():
    ring = CircularBuffer(2)
    ring.write(b"ab")
    with pytest.raises(WouldBlock):
        ring.push(1)
    assert drain(ring) == b"ab"


def test_pull_from_an_empty_buffer_would_block_and_changes_nothing():
    ring = CircularBuffer(2)
    with pytest.raises(WouldBlock):
        ring.pull()
    ring.push(9)
    assert ring.pull() == 9
    with pytest.raises(WouldBlock):
        ring.pull()
    assert (len(ring), ring.empty(), ring.full()) == (0, True, False)


def writable_kinds() -> list[object]:
    area = mmap.mmap(-1, 12)
    return [
        bytearray(12),
        memoryview(bytearray(12)),
        memoryview(bytearray(12)).cast("I"),
        memoryview(bytearray(12)).cast("B", shape=[3, 4]),
        array.array("i", [0, 0, 0]),
        (ctypes.c_uint16 * 6)(),
        area,
    ]


@pytest.mark.parametrize("kind", range(len(writable_kinds())))
def test_any_bytes_like_object_works_and_is_counted_in_bytes(kind: int):
    source, target = writable_kinds()[kind], writable_kinds()[kind]
    memoryview(source).cast("B")[:] = b"abcdefghijkl"
    ring = CircularBuffer(32)
    assert ring.write(source) == 12
    assert ring.write(source, 1, 2) == 2
    assert ring.read(target, 5, 4) == 4
    assert bytes(memoryview(target).cast("B")) == b"\0\0\0\0\0abcd\0\0\0"
    assert ring.read(target) == 10
    assert bytes(memoryview(target).cast("B"))[:10] == b"efghijklbc"


def test_bytes_may_be_written_and_are_copied():
    ring = CircularBuffer(8)
    source = bytearray(b"abc")
    ring.write(source)
    source[:] = b"XYZ"
    ring.write(b"def")
    assert drain(ring) == b"abcdef"


def test_no_hold_on_the_callers_buffer_remains():
    ring = CircularBuffer(8)
    source, target = bytearray(b"abc"), bytearray(3)
    ring.write(source)
    ring.read(target)
    source.append(1)  # a bytearray that is still exported refuses to grow
    target.append(1)
    assert target == b"abc\x01"


# --- bad input: an error of its own type, and nothing changed ------------------------------------


@pytest.mark.parametrize("capacity", [0, -1, -(1 << 40)])
def test_a_capacity_below_one_is_out_of_range(capacity: int):
    with pytest.raises(OutOfRange):
        CircularBuffer(capacity)


@pytest.mark.parametrize("capacity", ["4", 4.0, None, True, b"4"])
def test_a_capacity_that_is_not_an_int_is_of_the_wrong_type(capacity: object):
    with pytest.raises(WrongType):
        CircularBuffer(capacity)  # type: ignore[arg-type]


NOT_BYTES_LIKE = [None, "text", 5, [1, 2], object(), memoryview(bytearray(8))[::2]]


@pytest.mark.parametrize("buffer", NOT_BYTES_LIKE, ids=repr)
def test_what_is_not_a_contiguous_buffer_is_of_the_wrong_type(buffer: object):
    ring = CircularBuffer(8)
    ring.write(b"ab")
    with pytest.raises(WrongType):
        ring.write(buffer)  # type: ignore[arg-type]
    with pytest.raises(WrongType):
        ring.read(buffer)  # type: ignore[arg-type]
    assert drain(ring) == b"ab"


@pytest.mark.parametrize(
    "buffer", [b"....", memoryview(b"...."), memoryview(bytearray(4)).toreadonly()]
)
def test_reading_into_a_read_only_buffer_is_refused(buffer: object):
    ring = CircularBuffer(8)
    ring.write(b"ab")
    with pytest.raises(ReadOnlyBuffer):
        ring.read(buffer)  # type: ignore[arg-type]
    assert drain(ring) == b"ab"


BAD_RANGES = [(-1, None), (5, None), (0, -1), (0, 5), (2, 3), (4, 1), (1 << 70, None), (0, 1 << 70)]


@pytest.mark.parametrize(("offset", "length"), BAD_RANGES)
def test_a_range_outside_the_buffer_is_out_of_range(offset: int, length: int | None):
    ring = CircularBuffer(8)
    ring.write(b"ab")
    target = bytearray(b"....")
    with pytest.raises(OutOfRange):
        ring.write(b"cdef", offset, length)
    with pytest.raises(OutOfRange):
        ring.read(target, offset, length)
    assert (target, drain(ring)) == (b"....", b"ab")


@pytest.mark.parametrize(
    ("offset", "length"), [(True, 1), (0, True), (0.0, 1), (0, 1.0), ("0", 1), (None, 1)]
)
def test_offset_and_length_are_ints(offset: object, length: object):
    ring = CircularBuffer(8)
    ring.write(b"ab")
    with pytest.raises(WrongType):
        ring.write(b"cdef", offset, length)  # type: ignore[arg-type]
    with pytest.raises(WrongType):
        ring.read(bytearray(4), offset, length)  # type: ignore[arg-type]
    assert drain(ring) == b"ab"


@pytest.mark.parametrize("byte", [-1, 256, 1 << 70])
def test_push_of_something_that_is_no_byte_is_out_of_range(byte: int):
    ring = CircularBuffer(2)
    with pytest.raises(OutOfRange):
        ring.push(byte)
    assert ring.empty()


@pytest.mark.parametrize("byte", ["a", b"a", 1.0, None, True])
def test_push_of_something_that_is_no_int_is_of_the_wrong_type(byte: object):
    ring = CircularBuffer(2)
    with pytest.raises(WrongType):
        ring.push(byte)  # type: ignore[arg-type]
    assert ring.empty()


def test_bad_input_is_reported_even_when_there_is_no_room():
    ring = CircularBuffer(1)
    ring.push(1)
    with pytest.raises(OutOfRange):
        ring.push(256)
    with pytest.raises(OutOfRange):
        ring.write(b"ab", 3)
    with pytest.raises(WrongType):
        ring.write("ab")  # type: ignore[arg-type]
    assert drain(ring) == b"\x01"


# --- one writer thread and one reader thread -----------------------------------------------------


def a_moment() -> None:
    time.sleep(1e-6)  # to yield would give each turn to a busy neighbour, for milliseconds


@pytest.mark.parametrize("capacity", [1, 7, 64, 4096])
def test_a_writer_thread_and_a_reader_thread_lose_nothing(capacity: int):
    data = noise(500 * min(capacity, 50), capacity)
    ring = CircularBuffer(capacity)

    def write_everything() -> None:
        sent = 0
        while sent < len(data):
            count = ring.write(data, sent, min(97, len(data) - sent))
            sent += count
            if count == 0:
                a_moment()  # the ring never waits, and the reader wants the GIL

    def read_everything() -> bytes:
        out, target = bytearray(), bytearray(61)
        while len(out) < len(data):
            count = ring.read(target)
            out += target[:count]
            if count == 0:
                a_moment()
        return bytes(out)

    with Running(write_everything), Running(read_everything) as reader:
        assert reader.result() == data
    assert ring.empty()
