"""Reading what is in topics now. The driver plans once, and each task reads one span."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from hocket.errors import OutOfRange
from hocket.spark.lake_lookout import lookout_of
from hocket.spark.planning import Span, spans_between, split

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.filters import Pushed
    from hocket.spark.offsets import Offsets
    from hocket.spark.options import ReadOptions


class SpanPartition(InputPartition):
    """The span that one task reads."""

    def __init__(self, span: Span, trace: tuple[tuple[str, bytes], ...] = ()) -> None:
        super().__init__(span)
        self.span = span
        self.trace = trace  # the context of the micro-batch, as headers

    def __repr__(self) -> str:
        return f"SpanPartition({self.span!r})"


class HocketBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.pushed: Pushed | None = None

    def partitions(self) -> Sequence[SpanPartition]:
        options = self.options
        lookout = lookout_of(options)
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
        if not isinstance(partition, SpanPartition):  # Spark makes one up where there are none
            return iter(())
        from hocket.spark.reading import read

        mask = None if self.pushed is None else self.pushed.mask
        return read(partition.span, self.options, mask=mask)


def refuse_backwards(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Raise OutOfRange where the user named both offsets and the end is before the start.

    That is a slip; an empty result would hide it.
    """
    bounds = options.starting, options.ending
    named = [{(topic, number) for topic, each in found.each for number, bound in each
              if bound.kind == "offset"} for found in bounds]  # fmt: skip
    for topic, number in sorted(named[0] & named[1]):
        if end[topic][number] < start[topic][number]:
            raise OutOfRange(
                f"{options.ending.option} of {topic}/{number} is {end[topic][number]}, before "
                f"{options.starting.option}, which is {start[topic][number]}"
            )


class FilteringBatchReader(HocketBatchReader):
    """Takes filters from Spark.

    Spark refuses a reader that takes filters, unless its setting
    spark.sql.python.filterPushdown.enabled is true; its error names the setting. So this reader is
    used only with the option filterPushdown.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        from hocket.spark.filters import push

        self.pushed, left = push(filters, self.options)
        return left
