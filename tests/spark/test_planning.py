"""Spans of work: how much of what there is is read at once, and in how many pieces."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from hocket.spark.offsets import Offsets
from hocket.spark.planning import Span, limited, rows_between, spans_between, split

topics = st.sampled_from(["a", "b", "c"])
offsets = st.dictionaries(
    topics, st.dictionaries(st.integers(0, 4), st.integers(0, 10_000), max_size=5)
)
pieces = st.lists(
    st.builds(
        lambda topic, number, start, rows: Span(topic, number, start, start + rows, "h:1"),
        topics, st.integers(0, 3), st.integers(0, 1000), st.integers(1, 500),
    ),
    max_size=6,
)  # fmt: skip


def size(start: Offsets, end: Offsets, topic: str, number: int) -> int:
    return max(0, end[topic][number] - start.get(topic, {}).get(number, 0))


def each_of(end: Offsets) -> list[tuple[str, int]]:
    return [(topic, number) for topic, numbers in end.items() for number in numbers]


# --- between two offsets -------------------------------------------------------------------------


@given(offsets, offsets)
def test_spans_hold_every_row_between_once(start: Offsets, end: Offsets) -> None:
    spans = spans_between(start, end)
    assert {(span.topic, span.partition): span.rows for span in spans} == {
        each: size(start, end, *each) for each in each_of(end) if size(start, end, *each)
    }
    assert all(span.end == end[span.topic][span.partition] for span in spans)
    assert spans == sorted(spans, key=lambda span: (span.topic, span.partition, span.start))
    assert sum(span.rows for span in spans) == rows_between(start, end)


def test_new_partitions_start_at_the_beginning_and_lost_ones_are_nothing() -> None:
    start = {"orders": {0: 5, 1: 9}, "deleted": {0: 4}}
    end = {"orders": {0: 7, 1: 3, 2: 2}, "fresh": {0: 1}}
    assert spans_between(start, end) == [
        Span("fresh", 0, 0, 1),
        Span("orders", 0, 5, 7),
        Span("orders", 2, 0, 2),
    ]


# --- limits --------------------------------------------------------------------------------------


def test_a_limit_is_shared_in_proportion() -> None:
    start = {"orders": {0: 100, 1: 0, 2: 7}}
    end = {"orders": {0: 400, 1: 100, 2: 7}}
    assert limited(start, end, 40) == {"orders": {0: 130, 1: 10, 2: 7}}


def test_small_partitions_do_not_starve() -> None:
    end = {"large": {0: 1_000_000}, "small": {0: 3}}
    assert limited({}, end, 100) == {"large": {0: 99}, "small": {0: 1}}


@given(offsets, offsets, st.integers(1, 20_000))
def test_a_limit_holds_and_lets_everything_move(start: Offsets, end: Offsets, rows: int) -> None:
    found = limited(start, end, rows)
    total = rows_between(start, end)
    waiting = [each for each in each_of(end) if size(start, end, *each)]
    if total <= rows:
        assert found == end
    else:
        assert max(1, rows - len(waiting)) <= rows_between(start, found) <= rows + len(waiting)
    for topic, number in each_of(end):
        if (topic, number) in waiting:
            assert 1 <= size(start, found, topic, number) <= size(start, end, topic, number)
        else:
            assert found[topic][number] == end[topic][number]


def test_what_was_given_stays_as_it_was() -> None:
    end = {"orders": {0: 100}}
    limited({}, end, 10)["orders"][0] = 99
    limited({}, end, 1000)["orders"][0] = 99
    assert end == {"orders": {0: 100}}


# --- splitting -----------------------------------------------------------------------------------


def rows_of(spans: list[Span]) -> list[tuple[str, int, int]]:
    return sorted(
        (span.topic, span.partition, offset)
        for span in spans
        for offset in range(span.start, span.end)
    )


@given(pieces, st.none() | st.integers(1, 50), st.none() | st.integers(1, 300))
def test_a_split_loses_nothing_and_keeps_both_promises(
    spans: list[Span], least: int | None, most: int | None
) -> None:
    found = split(spans, min_partitions=least, max_records=most)
    assert rows_of(found) == rows_of(spans)
    assert all(span.rows >= 1 and span.leader == "h:1" for span in found)
    assert len(found) >= len(spans)
    if most is not None:
        assert all(span.rows <= most for span in found)
    if least is not None:
        assert len(found) >= min(least, len(rows_of(spans)))
    if least is None and most is None:
        assert len(found) == len(spans)


def test_no_more_is_split_than_was_asked_for() -> None:
    spans = [Span("a", 0, 0, 100), Span("b", 0, 0, 100)]
    assert len(split(spans, min_partitions=5, max_records=None)) == 5
    assert split(spans, min_partitions=2, max_records=100) == spans


def test_the_largest_is_split_first_and_evenly() -> None:
    spans = [Span("large", 0, 10, 910), Span("small", 0, 0, 100)]
    found = split(spans, min_partitions=4, max_records=None)
    assert [(span.topic, span.rows) for span in found] == [
        ("large", 300), ("large", 300), ("large", 300), ("small", 100),
    ]  # fmt: skip
    assert [span.rows for span in split(spans[:1], min_partitions=None, max_records=400)] == [
        300, 300, 300,
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [2**62, 10**12])
def test_huge_spans_are_split_exactly(rows: int) -> None:
    found = split([Span("a", 0, 5, 5 + rows)], min_partitions=7, max_records=None)
    assert len(found) == 7
    assert (found[0].start, found[-1].end) == (5, 5 + rows)
    assert all(one.end == next_.start for one, next_ in pairwise(found))


def test_a_span_is_picklable() -> None:
    span = Span("a", 0, 5, 9, "h:4150")
    assert pickle.loads(pickle.dumps(span)) == span
