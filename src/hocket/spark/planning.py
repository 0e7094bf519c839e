"""What a batch reads: how many of the records that there are, and in how many spans.

This module is pure: offsets in, spans out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hocket.spark.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of offsets of one partition, which one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    leader: str = ""  # the address of the leader when the span was planned; "" is unknown
    cluster: str = ""  # the id of the cluster that it was planned for; "" is unknown
    lake: str = ""  # the path of the lake that has these records; "": the topic has them

    @property
    def rows(self) -> int:
        return self.end - self.start


def rows_between(start: Offsets, end: Offsets) -> int:
    return sum(upto - begin for _, _, begin, upto in _forward(start, end))


def limited(start: Offsets, end: Offsets, rows: int) -> Offsets:
    """The end moved back so that about `rows` are read, from each partition its share.

    At least one row is read from every partition that has any, so that small partitions do not
    starve beside large ones. The limit is exceeded by at most one row for each partition.
    """
    assert rows >= 1, rows
    total = rows_between(start, end)
    found = {topic: dict(partitions) for topic, partitions in end.items()}
    if total > rows:
        for topic, number, begin, upto in _forward(start, end):
            found[topic][number] = begin + max(1, rows * (upto - begin) // total)
    return found


def spans_between(start: Offsets, end: Offsets) -> list[Span]:
    """One span for each partition that has rows to read, in order.

    A partition that only `end` names is new, and is read from 0.
    """
    return sorted(
        (Span(topic, number, begin, upto) for topic, number, begin, upto in _forward(start, end)),
        key=_order,
    )


def split(spans: list[Span], *, min_partitions: int | None, max_records: int | None) -> list[Span]:
    """Cut the spans into at least `min_partitions` pieces of at most `max_records` rows.

    There are fewer pieces only if there are fewer rows. The largest pieces are cut first, so that
    the work is as even as it can be.
    """
    pieces = [_ceiling(span.rows, max_records) if max_records else 1 for span in spans]
    if min_partitions is not None:
        _cut_further(spans, pieces, min_partitions)
    cut = [piece for span, count in zip(spans, pieces, strict=True) for piece in _cut(span, count)]
    return sorted(cut, key=_order)


def _forward(start: Offsets, end: Offsets) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition and both offsets, for each partition with rows between the offsets."""
    for topic, partitions in end.items():
        known = start.get(topic, {})
        for number, upto in partitions.items():
            begin = known.get(number, 0)
            if upto > begin:
                yield topic, number, begin, upto


def _cut_further(spans: list[Span], pieces: list[int], wanted: int) -> None:
    by_size = [(-span.rows / pieces[at], at) for at, span in enumerate(spans)]
    heapq.heapify(by_size)
    # Never more pieces than rows: while a piece is lacking, the largest has two rows at least.
    lacking = min(wanted, sum(span.rows for span in spans)) - sum(pieces)
    for _ in range(lacking):
        _, at = by_size[0]
        pieces[at] += 1
        heapq.heapreplace(by_size, (-spans[at].rows / pieces[at], at))


def _cut(span: Span, count: int) -> Iterator[Span]:
    for at in range(count):
        start = span.start + span.rows * at // count
        end = span.start + span.rows * (at + 1) // count
        yield replace(span, start=start, end=end)


def _ceiling(rows: int, each: int) -> int:
    return max(1, -(-rows // each))


def _order(span: Span) -> tuple[str, int, int]:
    return span.topic, span.partition, span.start
