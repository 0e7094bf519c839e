"""Reading what is in topics now: planned once, in the driver, and read span by span in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from hocket.errors import OutOfRange
from hocket.spark.lookout import Lookout
from hocket.spark.planning import Span, spans_between, split

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.filters import Pushed
    from hocket.spark.offsets import Offsets
    from hocket.spark.options import ReadOptions


class SpanPartition(InputPartition):
    """A task's work."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span

    def __repr__(self) -> str:
        return f"SpanPartition({self.span!r})"


class HocketBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.pushed: Pushed | None = None

    def partitions(self) -> Sequence[SpanPartition]:
        options = self.options
        lookout = Lookout(options)
        partitions = lookout.partitions()
        start = lookout.resolve(options.starting, partitions)
        end = lookout.resolve(options.ending, partitions)
        refuse_backwards(options, start, end)
        spans = spans_between(start, end)
        if self.pushed is not None:
            spans = self.pushed.prune(spans)
        spans = split(
            spans,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [SpanPartition(span) for span in lookout.located(spans)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, SpanPartition):  # Spark makes up one where there are none
            return iter(())
        from hocket.spark.reading import read

        mask = None if self.pushed is None else self.pushed.mask
        return read(partition.span, self.options, mask=mask)


def refuse_backwards(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Of offsets that were named, an end before the start is a slip, and no reason for no rows."""
    places = options.starting, options.ending
    named = [{(topic, number) for topic, each in found.each for number, place in each
              if place.kind == "offset"} for found in places]  # fmt: skip
    for topic, number in sorted(named[0] & named[1]):
        if end[topic][number] < start[topic][number]:
            raise OutOfRange(
                f"{options.ending.option} of {topic}/{number} is {end[topic][number]}, before "
                f"{options.starting.option}, which is {start[topic][number]}"
            )


class FilteringBatchReader(HocketBatchReader):
    """Takes filters from Spark, which refuses a reader that offers to unless it was configured to.

    So it is only used with the option filterPushdown; without the setting
    spark.sql.python.filterPushdown.enabled=true Spark then raises an error that names it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        from hocket.spark.filters import push

        self.pushed, left = push(filters, self.options)
        return left
