"""The retention plan from plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hocket.core.partition.retention import plan_log_start


@dataclass(frozen=True)
class Segment:
    end_offset: int
    bytes: int
    max_timestamp: int
    base_offset: int = 0


THREE = [Segment(10, 100, 1_000), Segment(20, 100, 2_000), Segment(30, 100, 3_000)]


def planned(segments: list[Segment] = THREE, **given: Any) -> int:
    plan = {
        "log_start": 0,
        "now_us": 10_000,
        "retention_us": None,
        "bytes_max": None,
        "held_from": None,
    }
    return plan_log_start(segments, **(plan | given))


def test_without_limits_everything_stays():
    assert planned() == 0
    assert planned([]) == 0
    assert planned([], log_start=5, bytes_max=0, retention_us=0) == 5


@pytest.mark.parametrize(
    ("age", "expected"),
    [(9_001, 0), (9_000, 0), (8_999, 10), (8_000, 10), (7_999, 20), (7_000, 20), (6_999, 30)],
)
def test_a_segment_stays_until_its_youngest_record_is_too_old(age, expected):
    assert planned(retention_us=age) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(301, 0), (300, 0), (299, 10), (200, 10), (199, 20), (100, 20), (99, 30), (0, 30)],
)
def test_the_oldest_segments_go_until_the_rest_is_within_the_byte_limit(limit, expected):
    assert planned(bytes_max=limit) == expected


def test_either_limit_is_enough_for_a_segment_to_go():
    assert planned(retention_us=8_999, bytes_max=300) == 10
    assert planned(retention_us=9_000, bytes_max=200) == 10
    assert planned(retention_us=8_999, bytes_max=100) == 20


def test_a_young_segment_keeps_the_old_ones_behind_it():
    segments = [Segment(10, 100, 5_000), Segment(20, 100, 1_000)]
    assert planned(segments, retention_us=8_000) == 0


@pytest.mark.parametrize(
    ("held_from", "expected"), [(0, 0), (9, 0), (10, 10), (11, 10), (29, 20), (30, 30), (99, 30)]
)
def test_a_segment_with_a_record_that_an_index_wants_stays(held_from, expected):
    assert planned(retention_us=0, held_from=held_from) == expected
    assert planned(bytes_max=0, held_from=held_from) == expected


def test_the_log_start_never_goes_back():
    assert planned(log_start=15, retention_us=8_999) == 15
    assert planned(log_start=15) == 15
    assert planned(log_start=15, retention_us=7_999) == 20


def test_a_segment_without_records_moves_nothing():
    assert planned([Segment(5, 100, 0, 5)], retention_us=1) == 0
    assert planned([Segment(5, 100, 0, 5), Segment(9, 100, 1_000, 5)], retention_us=1) == 9


maybe = st.none() | st.integers(0, 2_000)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Segment], int]:
    """Segments, and a log start that lies in the first of them."""
    raw = draw(st.lists(st.tuples(*[st.integers(0, 1_000)] * 3), min_size=1, max_size=8))
    segments, end = [], 0
    for count, size, timestamp in raw:
        end += 1 + count
        segments.append(Segment(end, size, timestamp))
    return segments, draw(st.integers(0, segments[0].end_offset - 1))


@given(logs(), st.integers(0, 2_000), maybe, maybe, maybe)
def test_only_what_must_go_goes_and_nothing_that_is_held(
    log, now_us, retention_us, bytes_max, held_from
):
    segments, log_start = log
    planned = plan_log_start(
        segments,
        log_start=log_start,
        now_us=now_us,
        retention_us=retention_us,
        bytes_max=bytes_max,
        held_from=held_from,
    )
    gone = [segment for segment in segments if segment.end_offset <= planned]
    left = segments[len(gone) :]
    assert planned == (gone[-1].end_offset if gone else log_start)
    assert held_from is None or not gone or planned <= held_from
    if left and (held_from is None or left[0].end_offset <= held_from):  # it was free to stay
        assert retention_us is None or left[0].max_timestamp >= now_us - retention_us
        assert bytes_max is None or sum(each.bytes for each in left) <= bytes_max
    for number, segment in enumerate(gone):  # and each that goes had to
        with_it = sum(each.bytes for each in segments[number:])
        assert (retention_us is not None and segment.max_timestamp < now_us - retention_us) or (
            bytes_max is not None and with_it > bytes_max
        )
