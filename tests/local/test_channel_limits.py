"""Channel: timeouts, two users at one end, and bad input; none of them costs a byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hocket.errors import BusyResource, OutOfRange, ReadOnlyBuffer, Timeout, WrongType
from hocket.local import Channel
from tests.support.threads import Running

NAN = float("nan")


# --- timeouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.0, 0.001, 0.02])
def test_a_read_that_times_out_leaves_the_stream_as_it_was(timeout: float):
    a, b = Channel.pair()
    target = bytearray(b"....")
    with pytest.raises(Timeout):
        b.read(target, timeout=timeout)
    assert target == b"...."
    target.append(1)  # no hold on the buffer remains
    a.write_all(b"abc")
    assert b.read_exactly(3) == b"abc"


@pytest.mark.parametrize("timeout", [0, 0.0, 0.001, 0.02])
def test_a_write_that_times_out_took_nothing(timeout: float):
    a, b = Channel.pair(buffer_bytes=3)
    a.write_all(b"abc")
    source = bytearray(b"xyz")
    with pytest.raises(Timeout):
        a.write(source, timeout=timeout)
    source.append(1)
    assert b.read_exactly(3) == b"abc"
    a.write_all(b"def")
    assert b.read_exactly(3) == b"def"


def test_timeout_zero_still_takes_what_is_there():
    a, b = Channel.pair(buffer_bytes=3)
    assert a.write(b"abc", timeout=0) == 3
    assert b.read(bytearray(2), timeout=0) == 2
    a.write_all(b"de", timeout=0)
    assert b.read_exactly(3, timeout=0) == b"cde"


@pytest.mark.parametrize("timeout", [0, 0.02])
def test_read_exactly_that_times_out_hands_over_what_it_had(timeout: float):
    a, b = Channel.pair()
    a.write_all(b"abc")
    with pytest.raises(Timeout) as cut:
        b.read_exactly(5, timeout=timeout)
    assert cut.value.partial == b"abc"
    a.write_all(b"de")
    assert b.read_exactly(2) == b"de"


@pytest.mark.parametrize("timeout", [0, 0.02])
def test_write_all_that_times_out_says_how_much_was_taken(timeout: float):
    a, b = Channel.pair(buffer_bytes=3)
    with pytest.raises(Timeout) as cut:
        a.write_all(b"abcde", timeout=timeout)
    assert cut.value.written == 3
    assert b.read_exactly(3) == b"abc"
    a.write_all(b"de")
    assert b.read_exactly(2) == b"de"


def test_a_timeout_with_nothing_moved_says_so():
    a, b = Channel.pair(buffer_bytes=1)
    a.write(b"x")
    with pytest.raises(Timeout) as cut:
        a.write_all(b"y", timeout=0)
    assert (cut.value.partial, cut.value.written) == (b"", 0)
    assert b.read_exactly(1) == b"x"
    with pytest.raises(Timeout) as cut:
        b.read_exactly(1, timeout=0)
    assert (cut.value.partial, cut.value.written) == (b"", 0)


def test_a_timeout_at_one_end_does_not_disturb_the_other():
    a, b = Channel.pair()
    with Running(b.read_exactly, 2) as reader:
        reader.parked()
        for _ in range(3):
            with pytest.raises(Timeout):
                a.read(bytearray(1), timeout=0.001)
        assert not reader.done
        a.write_all(b"ok")
        assert reader.result() == b"ok"


CALLS: dict[str, Callable[[Channel, Any], Any]] = {
    "read": lambda end, timeout: end.read(bytearray(2), timeout=timeout),
    "write": lambda end, timeout: end.write(b"zz", timeout=timeout),
    "read_exactly": lambda end, timeout: end.read_exactly(2, timeout=timeout),
    "write_all": lambda end, timeout: end.write_all(b"zz", timeout=timeout),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, OutOfRange), (-0.001, OutOfRange), (NAN, OutOfRange), ("1", WrongType), ([], WrongType)],
)
def test_a_bad_timeout_is_refused_and_nothing_moves(
    call: str, timeout: Any, error: type[Exception]
):
    a, b = Channel.pair()
    b.write_all(b"in")
    with pytest.raises(error):
        CALLS[call](a, timeout)
    assert a.read_exactly(2) == b"in"
    with pytest.raises(Timeout):
        b.read(bytearray(1), timeout=0)


# --- two users at one end ------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["read", "read_exactly"])
@pytest.mark.parametrize("second", ["read", "read_exactly"])
def test_a_second_reader_is_refused_and_the_first_is_unharmed(first: str, second: str):
    a, b = Channel.pair()
    target = bytearray(2)
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: b.read(target, timeout=10),
        "read_exactly": lambda: b.read_exactly(2, timeout=10),
    }
    with Running(calls[first]) as reader:
        reader.parked()
        for _ in range(3):
            with pytest.raises(BusyResource):
                calls[second]()
        assert not reader.done
        a.write_all(b"ab")
        assert reader.result() in (2, b"ab")
    a.write_all(b"cd")
    assert b.read_exactly(2) == b"cd"


@pytest.mark.parametrize("first", ["write", "write_all"])
@pytest.mark.parametrize("second", ["write", "write_all"])
def test_a_second_writer_is_refused_and_the_first_is_unharmed(first: str, second: str):
    a, b = Channel.pair(buffer_bytes=2)
    a.write_all(b"ab")
    with Running(getattr(a, first), b"cd", timeout=10) as writer:
        writer.parked()
        for _ in range(3):
            with pytest.raises(BusyResource):
                getattr(a, second)(b"XX", timeout=10)
        assert not writer.done
        assert b.read_exactly(2) == b"ab"
        taken = writer.result() or 2  # write_all returns nothing and takes everything
    a.write_all(b"cd"[taken:])
    assert b.read_exactly(2) == b"cd"


def test_a_second_user_is_refused_in_the_middle_of_read_exactly_and_write_all():
    a, b = Channel.pair(buffer_bytes=2)
    with Running(b.read_exactly, 3) as reader:
        a.write_all(b"ab")
        reader.parked()
        with pytest.raises(BusyResource):
            b.read(bytearray(1), timeout=0)
        a.write_all(b"c")
        assert reader.result() == b"abc"
    with Running(a.write_all, b"defg") as writer:
        writer.parked()
        assert b.read_exactly(1) == b"d"
        writer.parked()
        with pytest.raises(BusyResource):
            a.write(b"X", timeout=0)
        assert b.read_exactly(3) == b"efg"
        writer.result()


def test_a_refused_second_user_leaves_the_end_free_once_the_first_has_gone():
    a, b = Channel.pair()
    with Running(b.read, bytearray(1), timeout=0.2) as reader:
        reader.parked()
        with pytest.raises(BusyResource):
            b.read(bytearray(1), timeout=0)
        reader.failure(Timeout)
    a.write_all(b"x")
    assert b.read_exactly(1) == b"x"


def test_a_reader_and_a_writer_at_one_end_are_not_in_each_others_way():
    a, b = Channel.pair()
    with Running(b.read_exactly, 1) as reader:
        reader.parked()
        b.write_all(b"x")
        assert a.read_exactly(1) == b"x"
        a.write_all(b"y")
        assert reader.result() == b"y"


# --- bad input: an error of its own type, and nothing changed ------------------------------------


@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_size_below_one_is_out_of_range(size: int):
    with pytest.raises(OutOfRange):
        Channel.pair(buffer_bytes=size)


@pytest.mark.parametrize("size", ["8", 8.0, None, True])
def test_a_buffer_size_that_is_not_an_int_is_of_the_wrong_type(size: Any):
    with pytest.raises(WrongType):
        Channel.pair(buffer_bytes=size)


def pair_with_bytes_in_both_directions() -> tuple[Channel, Channel]:
    a, b = Channel.pair()
    a.write_all(b"ab")
    b.write_all(b"ba")
    return a, b


def assert_nothing_changed(a: Channel, b: Channel) -> None:
    assert (a.read_exactly(2), b.read_exactly(2)) == (b"ba", b"ab")
    for end in (a, b):
        with pytest.raises(Timeout):
            end.read(bytearray(1), timeout=0)


@pytest.mark.parametrize(
    "buffer", [None, "text", 5, [1, 2], object(), memoryview(bytearray(8))[::2]], ids=repr
)
def test_what_is_not_a_contiguous_buffer_is_of_the_wrong_type(buffer: Any):
    a, b = pair_with_bytes_in_both_directions()
    for call in (a.read, a.write, a.write_all):
        with pytest.raises(WrongType):
            call(buffer)
    assert_nothing_changed(a, b)


@pytest.mark.parametrize("buffer", [b"....", memoryview(b"...."), b""], ids=repr)
def test_reading_into_a_read_only_buffer_is_refused(buffer: Any):
    a, b = pair_with_bytes_in_both_directions()
    with pytest.raises(ReadOnlyBuffer):
        a.read(buffer)
    assert_nothing_changed(a, b)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(-1, None), (5, None), (0, -1), (0, 5), (2, 3), (4, 1), (1 << 70, None), (0, 1 << 70)],
)
def test_a_range_outside_the_buffer_is_out_of_range(offset: int, length: int | None):
    a, b = pair_with_bytes_in_both_directions()
    target = bytearray(b"....")
    with pytest.raises(OutOfRange):
        a.read(target, offset, length)
    with pytest.raises(OutOfRange):
        a.write(b"wxyz", offset, length)
    assert target == b"...."
    assert_nothing_changed(a, b)


@pytest.mark.parametrize(
    ("offset", "length"), [(True, 1), (0, True), (0.0, 1), (0, 1.0), ("0", 1), (None, 1)]
)
def test_offset_and_length_are_ints(offset: Any, length: Any):
    a, b = pair_with_bytes_in_both_directions()
    with pytest.raises(WrongType):
        a.read(bytearray(4), offset, length)
    with pytest.raises(WrongType):
        a.write(b"wxyz", offset, length)
    assert_nothing_changed(a, b)


@pytest.mark.parametrize(
    ("count", "error"), [(-1, OutOfRange), (1.0, WrongType), ("1", WrongType), (True, WrongType)]
)
def test_read_exactly_wants_a_count_of_bytes(count: Any, error: type[Exception]):
    a, b = pair_with_bytes_in_both_directions()
    with pytest.raises(error):
        a.read_exactly(count)
    assert_nothing_changed(a, b)


def test_a_released_view_is_refused():
    a, b = pair_with_bytes_in_both_directions()
    view = memoryview(bytearray(4))
    view.release()
    for call in (a.read, a.write, a.write_all):
        with pytest.raises(WrongType):
            call(view)
    assert_nothing_changed(a, b)


def test_bad_input_does_not_disturb_a_blocked_reader_at_the_same_end():
    a, b = Channel.pair()
    with Running(b.read_exactly, 2) as reader:
        reader.parked()
        with pytest.raises((WrongType, BusyResource)):
            b.read("text")  # type: ignore[arg-type]
        a.write_all(b"ok")
        assert reader.result() == b"ok"
