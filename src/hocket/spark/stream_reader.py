"""Reading topics as they grow: which offsets the next micro-batch has, and how it is divided.

Spark keeps the offsets. Everything here follows from the offsets that Spark hands in and from the
broker's answers, so after a restart a query goes on exactly where its checkpoint says. All offsets
that Spark is given carry the name of the query's index (see `lag`), so the name lives as long as
the checkpoint. They carry the id of the cluster, too: a query that is started again with another
cluster behind its address is refused (AnotherCluster) instead of reading other records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from hocket.errors import UnknownPartition, UnknownTopic
from hocket.spark import missing
from hocket.spark.batch_reader import SpanPartition
from hocket.spark.lag import QueryIndex
from hocket.spark.lake_lookout import lookout_of
from hocket.spark.offsets import Offsets, cluster_in, from_json, to_json
from hocket.spark.options import DEFAULT_ROWS_PER_TRIGGER
from hocket.spark.planning import limited, rows_between, spans_between, split

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.options import ReadOptions
    from hocket.spark.traces import ReadTrace

POLL_SECONDS = 0.02  # between two questions for new records while there are none
POLL_SHARE = 0.2  # of the time, at most, goes into asking, however many topics there are


class HocketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_driver": None}  # tasks get only the options

    @property
    def _here(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self.options)
        return self._driver

    # --- in the driver: names and order are Spark's -----------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._here.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_offsets_per_trigger or DEFAULT_ROWS_PER_TRIGGER)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._here.latest(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._here.reported()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._here.stop_at_present_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpanPartition]:
        return self._here.plan(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the next `latestOffset` begins at `end`, and tells the broker."""

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()

    # --- in tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, SpanPartition):
            return iter(())
        if self.options.tracing:
            from hocket.spark.traces import read_traced

            return read_traced(partition.span, self.options, partition.trace)
        from hocket.spark.reading import read

        return read(partition.span, self.options)


class _Driver:
    """What a query keeps in the driver, in one process from its start to its stop."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lookout = lookout_of(options)
        self._index = QueryIndex(options, self._lookout)
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None  # Trigger.AvailableNow stops here
        self._ends: Offsets = {}  # as the broker last said
        self._name = ""
        self._batch_at: float | None = None  # when the last batch was given to Spark
        self._asking_took = 0.0
        self._reported: set[tuple[str, int, int]] = set()
        self._trace: ReadTrace | None = None
        if options.tracing:
            from hocket.spark.traces import ReadTrace

            self._trace = ReadTrace()

    def stop(self) -> None:
        if self._trace is not None:
            self._trace.end()

    def initial(self) -> dict[str, Any]:
        """The first offsets. Spark asks more than once, and "latest" must not move in between."""
        if self._initial is None:
            options = self._options
            offsets = self._lookout.resolve(options.starting, self._lookout.partitions())
            name = options.index or f"{options.index_prefix}-{token_hex(4)}"
            self._initial = to_json(offsets, name, self._lookout.cluster)
        return self._initial

    def stop_at_present_ends(self) -> None:
        partitions = self._lookout.partitions()
        self._target = _chosen(partitions, self._lookout.topic_ends(list(partitions)))

    def reported(self) -> dict[str, Any] | None:
        if not self._name:
            return None
        return to_json(self._ends, self._name, self._lookout.cluster)

    def latest(self, given: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._trace is not None:
            self._trace.end()  # Spark has done what it was given before
        start, self._name = from_json(given)
        self._lookout.expect(cluster_in(given))
        partitions = self._partitions(start)
        ends = self._look(start, partitions)
        self._index.move(self._name, _with_new(start, partitions), ends)
        deadline = time.monotonic() + self._options.idle_wait
        while True:
            end = self._due(start, limit)
            if end is not None:
                self._batch_at = time.monotonic()
                return to_json(end, self._name, self._lookout.cluster)
            if self._target is not None or isinstance(limit, ReadAllAvailable):
                return given
            pause = max(POLL_SECONDS, self._asking_took / POLL_SHARE)
            left = max(0.0, deadline - time.monotonic())
            time.sleep(min(pause, left))
            if pause > left:  # what has come by now is found by Spark's next question
                return given
            self._look(start, partitions)

    def _partitions(self, start: Offsets) -> dict[str, list[int]]:
        try:
            return self._lookout.partitions()
        except (UnknownTopic, UnknownPartition):
            return self._lookout.partitions_left(start)

    def _look(self, start: Offsets, partitions: dict[str, list[int]]) -> dict[str, list[int]]:
        """Ask where all partitions end now, keep that for those selected, and return it for all."""
        began = time.monotonic()
        ends = self._lookout.topic_ends(list(partitions))
        self._asking_took = time.monotonic() - began
        self._ends = _chosen(partitions, ends)
        for topic, by_partition in start.items():
            for partition, at in by_partition.items():
                found = self._ends.setdefault(topic, {})
                if partition not in found:
                    self._report(
                        topic, partition, at, "it was deleted, or is not selected any more"
                    )
                    found[partition] = (
                        at  # so that the query goes on there if the partition comes back
                    )
        return ends

    def _report(self, topic: str, partition: int, start: int, why: str) -> None:
        """Report missing records; once only, where it is not an error."""
        if (topic, partition, start) not in self._reported:
            fail = self._options.fail_on_data_loss
            missing.report(topic, partition, start, None, why, fail=fail)
            self._reported.add((topic, partition, start))

    def _due(self, start: Offsets, limit: ReadLimit) -> Offsets | None:
        """The end of the next batch; None: there is no batch yet."""
        ends = self._ends if self._target is None else _capped(self._ends, self._target, start)
        begin = self._begin(start, ends)
        rows = rows_between(begin, ends)
        if not rows or self._too_few(rows, limit):
            return None
        end = limited(begin, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends
        found = {
            topic: _known(by_partition, start.get(topic, {})) for topic, by_partition in end.items()
        }
        return {topic: by_partition for topic, by_partition in found.items() if by_partition}

    def _too_few(self, rows: int, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger: wait for more, but no longer than maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or rows >= least or self._batch_at is None:
            return False
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False  # nothing more is going to come
        waited = time.monotonic() - self._batch_at
        return waited * 1e6 < self._options.max_trigger_delay_us

    def _begin(self, start: Offsets, end: Offsets) -> Offsets:
        """Where each partition of `end` is read from.

        New partitions are read from 0. So is a partition that ends before the query's offset: its
        topic was deleted and created again.
        """
        begin: Offsets = {}
        for topic, by_partition in end.items():
            before = start.get(topic, {})
            begin[topic] = {}
            for partition, offset in by_partition.items():
                at = before.get(partition, 0)
                if offset < at:
                    why = f"the partition ends at {offset} now: its topic was created anew"
                    self._report(topic, partition, at, why)
                    at = 0
                begin[topic][partition] = at
        return begin

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[SpanPartition]:
        """The spans of a batch, also of one that an earlier run of the query was given."""
        options = self._options
        ends, _ = from_json(end)
        self._lookout.expect(cluster_in(end))
        spans = split(
            spans_between(self._begin(from_json(start)[0], ends), ends),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        trace = () if self._trace is None else self._trace.begin(spans)
        return [SpanPartition(span, trace) for span in self._lookout.located(spans)]


def _chosen(partitions: dict[str, list[int]], ends: dict[str, list[int]]) -> Offsets:
    """The ends of the selected partitions. A partition that does not exist is left out."""
    return {
        topic: {each: ends[topic][each] for each in by_partition if each < len(ends[topic])}
        for topic, by_partition in partitions.items()
        if topic in ends
    }


def _with_new(start: Offsets, partitions: dict[str, list[int]]) -> Offsets:
    """The query's offsets, with 0 for the partitions that it has not begun."""
    topics = sorted({*start, *partitions})
    return {
        topic: {**dict.fromkeys(partitions.get(topic, ()), 0), **start.get(topic, {})}
        for topic in topics
    }


def _capped(ends: Offsets, target: Offsets, start: Offsets) -> Offsets:
    """The ends, but not beyond the target; a partition that it does not name stays at its start."""
    capped: Offsets = {}
    for topic, by_partition in ends.items():
        capped[topic] = {}
        for partition, end in by_partition.items():
            stop = target.get(topic, {}).get(partition, start.get(topic, {}).get(partition))
            if stop is not None:
                capped[topic][partition] = min(end, stop)
    return {topic: by_partition for topic, by_partition in capped.items() if by_partition}


def _known(end: dict[int, int], start: dict[int, int]) -> dict[int, int]:
    """Leave out new partitions that have no records yet: they would make an empty batch."""
    return {partition: at for partition, at in end.items() if at or partition in start}
