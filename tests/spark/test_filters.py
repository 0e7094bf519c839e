"""Filters that Spark hands down: what is taken is applied exactly, as SQL has it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, cycle
from typing import Any

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from pyspark.sql import datasource as spark  # noqa: E402

from hocket.spark.columns import arrow_schema  # noqa: E402
from hocket.spark.filters import Pushed, push  # noqa: E402
from hocket.spark.options import ReadOptions  # noqa: E402
from hocket.spark.planning import Span  # noqa: E402

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
OPTIONS = ReadOptions.parse(
    {"servers": "h", "subscribe": "a", "columns": ",".join(COLUMNS)}, streaming=False
)


@dataclass(frozen=True)
class Row:
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None


# --- the same in plain words, row by row ----------------------------------------------------------


def truth(filter_: spark.Filter, row: Row) -> bool | None:
    """What SQL says: true, false, or null."""
    if isinstance(filter_, spark.Not):
        found = truth(filter_.child, row)
        return None if found is None else not found
    value = getattr(row, filter_.attribute[0])  # type: ignore[attr-defined]
    if isinstance(filter_, spark.IsNull):
        return value is None
    if isinstance(filter_, spark.IsNotNull):
        return value is not None
    wanted = filter_.value  # type: ignore[attr-defined]
    if isinstance(filter_, spark.EqualNullSafe):
        return bool(value == wanted)
    if value is None or wanted is None:
        return None
    if isinstance(filter_, spark.In):
        if value in wanted:
            return True
        return None if None in wanted else False
    return bool(
        {
            spark.EqualTo: lambda: value == wanted,
            spark.GreaterThan: lambda: value > wanted,
            spark.GreaterThanOrEqual: lambda: value >= wanted,
            spark.LessThan: lambda: value < wanted,
            spark.LessThanOrEqual: lambda: value <= wanted,
            spark.StringStartsWith: lambda: value.startswith(wanted),
            spark.StringEndsWith: lambda: value.endswith(wanted),
            spark.StringContains: lambda: wanted in value,
        }[type(filter_)]()
    )


def rows_by_pushing(pushed: Pushed, spans: Sequence[Span], rows: Sequence[Row]) -> list[Row]:
    """What is left of `rows`, each read once for each span that it lies in."""
    found: list[Row] = []
    for span in pushed.prune(spans):
        read = [
            row
            for row in rows
            if (row.topic, row.partition) == (span.topic, span.partition)
            and span.start <= row.offset < span.end
        ]
        mask = pushed.mask(batch_of(read))
        if mask is None:
            found += read
            continue
        assert len(mask) == len(read)
        assert mask.null_count == 0
        found += [row for row, stays in zip(read, mask.to_pylist(), strict=True) if stays]
    return found


def batch_of(rows: Sequence[Row]) -> Any:
    return pa.RecordBatch.from_pydict(
        {name: [getattr(row, name) for row in rows] for name in COLUMNS},
        schema=arrow_schema(COLUMNS),
    )


# --- every filter ---------------------------------------------------------------------------------

BLOBS = [b"", b"\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xff\x00"]
TIMES = [EPOCH + timedelta(microseconds=each) for each in (-1_000_000, -1, 0, 1, 2, 3_600_000_000)]
LITERALS: dict[str, list[Any]] = {
    "topic": ["a", "ab", "b", "ba", "é"],
    "partition": [-1, 0, 1, 2],
    "offset": [-1, 0, 3, 4, 7, 12],
    "timestamp": TIMES,
    "key": BLOBS,
    "value": [*BLOBS[:-1], bytearray(BLOBS[-1])],
}
COMPARISONS = [
    spark.EqualTo, spark.EqualNullSafe, spark.GreaterThan, spark.GreaterThanOrEqual,
    spark.LessThan, spark.LessThanOrEqual,
]  # fmt: skip
STRINGS = [spark.StringStartsWith, spark.StringEndsWith, spark.StringContains]


def filters_of(column: str) -> list[spark.Filter]:
    """Every kind with every literal, and the opposite of each."""
    path, literals = (column,), [*LITERALS[column], None]
    found: list[spark.Filter] = [spark.IsNull(path), spark.IsNotNull(path)]
    found += [kind(path, each) for kind in COMPARISONS for each in literals]
    found += [spark.In(path, list(pair)) for pair in combinations(literals, 2)]  # type: ignore[arg-type]
    found += [spark.In(path, [None]), spark.In(path, tuple(literals[:-1]))]  # type: ignore[arg-type]
    if column == "topic":
        found += [kind(path, text) for kind in STRINGS for text in ("", "a", "b", "ab", "é")]
    return found + [spark.Not(each) for each in found]


FILTERS = {column: filters_of(column) for column in COLUMNS}


def everything() -> tuple[list[Span], list[Row]]:
    """Records with every content in every place."""
    contents = list(zip(cycle(TIMES), cycle([None, *BLOBS]), cycle([*BLOBS, None]), range(56)))
    spans, rows = [], []
    for topic in LITERALS["topic"]:
        for number, start in ((0, 0), (1, 3), (2, 4)):
            spans.append(Span(topic, number, start, start + 8, "h:4150"))
            for offset in range(start, start + 8):
                rows.append(Row(topic, number, offset, *contents[len(rows) % 56][:3]))
    return spans, rows


SPANS, ROWS = everything()


def check(given_: Sequence[spark.Filter]) -> int:
    """The rows that are left are those that SQL leaves; returns how many."""
    pushed, left = push(given_, OPTIONS)
    assert left == []
    pushed = pickle.loads(pickle.dumps(pushed))
    expected = [row for row in ROWS if all(truth(each, row) is True for each in given_)]
    assert rows_by_pushing(pushed, SPANS, ROWS) == expected, given_
    return len(expected)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_filter_alone_leaves_the_rows_that_sql_leaves(column: str) -> None:
    kept = [check([each]) for each in FILTERS[column]]
    assert any(0 < count < len(ROWS) for count in kept)


@given(st.lists(st.sampled_from([each for some in FILTERS.values() for each in some]), max_size=4))
def test_filters_together_leave_the_rows_that_sql_leaves(given_: list[spark.Filter]) -> None:
    check(given_)


# --- what is read at all --------------------------------------------------------------------------

PLACES = [Span("a", 0, 0, 100), Span("a", 1, 50, 60), Span("b", 0, 0, 10, "h:4150")]


def pruned(*filters_: spark.Filter) -> list[Span]:
    pushed, left = push(filters_, OPTIONS)
    assert left == []
    return pushed.prune(PLACES)


def test_places_decide_before_anything_is_read() -> None:
    assert pruned(spark.EqualTo(("topic",), "b")) == PLACES[2:]
    assert pruned(spark.In(("partition",), [1, 7])) == PLACES[1:2]
    assert pruned(spark.Not(spark.StringStartsWith(("topic",), "a"))) == PLACES[2:]
    assert pruned(spark.GreaterThanOrEqual(("offset",), 55), spark.LessThan(("offset",), 70)) == [
        Span("a", 0, 55, 70),
        Span("a", 1, 55, 60),
    ]
    assert pruned(spark.In(("offset",), [3, 8])) == [
        Span("a", 0, 3, 9),
        Span("b", 0, 3, 9, "h:4150"),
    ]
    assert pruned(spark.IsNull(("offset",))) == []
    assert pruned(spark.EqualTo(("key",), None)) == []


def test_what_places_decide_costs_no_mask() -> None:
    batch = batch_of([Row("a", 0, 5, EPOCH, None, b"v")])
    for each, is_masked in (
        (spark.GreaterThan(("offset",), 3), False),
        (spark.EqualTo(("offset",), 5), False),
        (spark.EqualTo(("topic",), "a"), False),
        (spark.In(("offset",), [3, 8]), True),
        (spark.IsNotNull(("key",)), True),
    ):
        pushed, _ = push([each], OPTIONS)
        assert (pushed.mask(batch) is not None) == is_masked


def test_the_times_that_are_wanted() -> None:
    moments = [EPOCH + timedelta(microseconds=each) for each in (0, 1, 1_000_000, 1_000_001)]
    rows = [Row("a", 0, offset, moment, None, b"v") for offset, moment in enumerate(moments)]
    pushed, left = push(
        [
            spark.GreaterThan(("timestamp",), EPOCH),
            spark.LessThanOrEqual(("timestamp",), EPOCH + timedelta(seconds=1)),
        ],
        OPTIONS,
    )
    assert left == []
    assert rows_by_pushing(pushed, [Span("a", 0, 0, 4)], rows) == rows[1:3]


# --- what is left to Spark ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter_",
    [
        spark.EqualTo(("headers", "key"), "a"),
        spark.EqualTo(("timestampType",), 0),
        spark.IsNull(("headers",)),
        spark.EqualTo(("partition",), 1.5),
        spark.EqualTo(("partition",), True),
        spark.EqualTo(("offset",), 2**63),
        spark.EqualTo(("topic",), b"a"),
        spark.EqualTo(("key",), "a"),
        spark.EqualTo(("timestamp",), datetime(2026, 1, 1)),  # of no zone: another type in SQL
        spark.EqualTo(("timestamp",), 5),
        spark.In(("offset",), []),
        spark.In(("offset",), [1, "2"]),
        spark.StringStartsWith(("key",), "a"),
        spark.Not(spark.StringContains(("value",), "a")),
        spark.Not(spark.Not(spark.EqualTo(("offset",), 1))),
    ],
)
def test_what_cannot_be_applied_exactly_is_left(filter_: spark.Filter) -> None:
    taken = spark.EqualTo(("offset",), 1)
    pushed, left = push([filter_, taken], OPTIONS)
    assert len(left) == 1
    assert left[0] is filter_  # Spark knows them by identity
    assert len(pushed.conditions) == 1


def test_a_column_that_is_not_read_is_left() -> None:
    narrow = ReadOptions.parse(
        {"servers": "h", "subscribe": "a", "columns": "value"}, streaming=False
    )
    filter_ = spark.EqualTo(("offset",), 1)
    assert push([filter_], narrow) == (Pushed(()), [filter_])
