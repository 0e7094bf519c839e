"""When messages are due: against a sorted list, whatever chunks they lie in."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings, strategies as st

from hocket.core.partition import due_times
from hocket.core.partition.due_times import DueTimes
from tests.support.threads import LONG

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(1, 40), min_size=1, max_size=12)),
        st.tuples(st.just("pop"), st.tuples(st.integers(0, 45), st.integers(0, 9))),
        st.tuples(st.just("prepare"), st.tuples(st.integers(0, 45), st.integers(0, 3))),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(due_times, "CHUNK", 4)
    monkeypatch.setattr(due_times, "SPARE_CHUNKS", 3)


@settings(max_examples=2_000 if LONG else 50)
@given(steps)
def test_what_is_due_comes_out_in_order_of_time_and_then_of_publication(history):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_times, "CHUNK", 4)
        patch.setattr(due_times, "SPARE_CHUNKS", 3)
        times, waiting, end = DueTimes(), [], 0
        for what, given_ in history:
            if what == "add":
                times.add(end, array("q", given_))
                waiting += zip(given_, range(end, end + len(given_)), strict=True)
                waiting.sort()
                end += len(given_)
            elif what == "pop":
                through, count = given_
                due = [each for each in waiting if each[0] <= through][:count]
                assert times.pop(through, count) == [offset for _, offset in due]
                waiting = [each for each in waiting if each not in due]
            elif what == "prepare":
                times.prepare(*given_)
            else:
                taken = b"".join(times.snapshot())
                times = DueTimes()
                times.restore(taken)
            assert len(times) == len(waiting)
            assert times.next_us == (waiting[0][0] if waiting else None)
            lowest = min((offset for _, offset in waiting), default=None)
            if lowest is None:
                assert times.first_offset is None
            else:
                assert times.first_offset <= lowest
        assert times.pop(100, 1_000) == [offset for _, offset in waiting]


def test_chunks_are_sorted_a_few_at_a_time_and_only_where_something_is_due(small_chunks):
    times = DueTimes()
    times.add(0, array("q", [9, 5, 7, 3, 8, 2, 6, 4, 90, 80]))
    assert not times.prepare(50, 1)
    assert times.prepare(50, 1)
    assert times.prepare(50, 0), "nothing of the third is due by then"
    assert times.pop(50, 3) == [5, 3, 7]


def test_messages_published_one_by_one_end_up_in_few_chunks(small_chunks):
    times = DueTimes()
    for offset in range(1_000):
        times.add(offset, array("q", [1_000 - offset]))
    assert len(times._chunks) < 500
    assert times.pop(1_000, 3) == [999, 998, 997]
    assert times.pop(1_000, 1_000) == list(range(996, -1, -1))
    assert times._chunks == {}


def test_a_million_take_8_bytes_each_and_start_without_being_sorted():
    times = DueTimes()
    for start in range(0, 1_000_000, 10_000):
        times.add(start, array("q", range(2_000_000 - start, 1_990_000 - start, -1)))
    taken = b"".join(times.snapshot())
    assert len(taken) < 8_100_000
    again = DueTimes()
    again.restore(taken)
    assert not again._sorted
    assert sum(len(each) for each in again.snapshot() if len(each) > 2) == 1_000_000
    assert again.pop(2_000_000, 2) == [999_999, 999_998]


def test_a_snapshot_copies_nothing_but_of_chunks_from_which_messages_have_gone(small_chunks):
    """The node waits for it, and everybody for the node: a million times are not looked at."""
    times = DueTimes()
    times.add(7, array("q", [5, 6, 7, 8, 30, 10, 20, 40]))
    chunks = list(times._chunks.values())
    assert [type(chunk.offsets) for chunk in chunks] == [range, range]
    assert [id(each) for each in times.snapshot()[1::2]] == [id(chunk.dues) for chunk in chunks]
    times.prepare(10, 2)
    assert [type(chunk.offsets) for chunk in chunks] == [range, array], "5 to 8 were in order"
    assert times.pop(5, 1) == [7]
    assert [list(each) for each in times.snapshot()] == [
        [3, 8], [6, 7, 8], [4, -1], [12, 13, 11, 14], [10, 20, 30, 40]
    ]  # fmt: skip


def test_what_was_published_one_by_one_is_consecutive_again_when_it_is_merged(small_chunks):
    times = DueTimes()
    for offset in range(4):
        times.add(offset, array("q", [9 - offset]))
    (chunk,) = times._chunks.values()
    assert chunk.offsets == range(4)
