"""Stream: bytes that are looked at where they lie, and parts that are written as one."""

from __future__ import annotations

import pytest

from hocket.errors import Disconnected
from hocket.local.channel import Stream
from tests.support.threads import Running


def ring(capacity: int, at: int, data: bytes = b"") -> Stream:
    """A stream whose next byte is written at index `at`, with `data` in it."""
    stream = Stream(capacity)
    stream.put(bytes(at), at)
    stream.take(memoryview(bytearray(at)), at)
    stream.put(data, len(data))
    return stream


def seen(stream: Stream, most: int = 100) -> bytes | None:
    view = stream.look(most)
    return None if view is None else bytes(view)


# --- looking -------------------------------------------------------------------------------------


def test_a_look_shows_what_waits_up_to_the_seam_and_takes_nothing():
    stream = ring(8, 5, b"abcdef")
    assert [seen(stream), seen(stream), seen(stream, 2)] == [b"abc", b"abc", b"ab"]
    assert len(stream) == 6
    stream.skip(2)
    assert seen(stream) == b"c"
    stream.skip(1)
    assert seen(stream) == b"def"
    stream.skip(3)
    assert seen(stream) is None


def test_what_was_skipped_makes_room_and_wakes_the_writer():
    stream = ring(4, 0, b"abcd")
    with Running(stream.write, b"ef", timeout=None) as writer:
        writer.parked()
        stream.skip(1)
        assert writer.result() == 1
    assert seen(stream) == b"bcd"


def test_after_the_writer_left_the_rest_is_seen_and_then_the_end():
    stream = ring(8, 0, b"ab")
    stream.leave(as_writer=True)
    assert seen(stream) == b"ab"
    stream.skip(2)
    with pytest.raises(Disconnected, match="every byte it sent has been read"):
        stream.look(8)


def test_a_reader_that_left_sees_nothing_more():
    stream = ring(8, 0, b"ab")
    stream.leave(as_writer=False)
    with pytest.raises(Disconnected, match="this end"):
        stream.look(8)


# --- writing parts -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(8))
def test_parts_are_written_as_one_wherever_the_seam_is(at: int):
    stream = ring(8, at)
    parts = [bytearray(b"ab"), memoryview(b"cde"), b"", b"f"]
    assert stream.put_together(parts, 6) is True
    target = bytearray(8)
    assert stream.take(memoryview(target), 8) == 6
    assert target[:6] == b"abcdef"


def test_parts_for_which_there_is_no_room_are_not_written_at_all():
    stream = ring(8, 3, b"xyz")
    assert stream.put_together([b"abc", b"def"], 6) is False
    assert seen(stream) == b"xyz"
    assert stream.put_together([b"abc", b"de"], 5) is True
    assert stream.full()


def test_parts_wake_the_reader():
    stream = Stream(8)
    target = bytearray(8)
    with Running(stream.read, target, timeout=None) as reader:
        reader.parked()
        stream.put_together([b"ab", b"c"], 3)
        assert reader.result() == 3
    assert target[:3] == b"abc"


@pytest.mark.parametrize("as_writer", [True, False])
def test_parts_are_refused_after_the_end(as_writer: bool):
    stream = Stream(8)
    stream.leave(as_writer=as_writer)
    with pytest.raises(Disconnected):
        stream.put_together([b"ab"], 2)
    assert stream.empty()


def test_parts_that_the_readers_leaving_overtakes_are_taken_back():
    class LeftMeanwhile(Stream):
        def storage(self) -> memoryview:
            self.leave(as_writer=False)
            return super().storage()

    stream = LeftMeanwhile(8)
    with pytest.raises(Disconnected):
        stream.put_together([b"ab", b"c"], 3)
    assert stream.empty()
