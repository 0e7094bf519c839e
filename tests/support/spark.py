"""What the tests of the readers share: topics with known records, and queries that are watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hocket import Client
from tests.support.processes.server import ServerProcess
from tests.support.threads import PATIENCE, until

LOOK_SECONDS = 0.05

SEGMENT_BYTES = 2048
# A topic that keeps about two segments, and nothing in memory.
SHORT_LIVED: dict[str, Any] = {
    "segment_bytes": SEGMENT_BYTES, "disk_bytes": 2 * SEGMENT_BYTES, "memory_retention": 0,
}  # fmt: skip


def fill(client: Client, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    """Records b"0", b"1", ... into one partition, with keys b"k0", b"k1", ..."""
    with client.producer(topic) as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, key=b"k%d" % number, partition=partition)


def fill_segments(client: Client, topic: str, count: int, partition: int = 0) -> None:
    """Records of about 500 bytes, a batch each, so that a segment holds a few."""
    with client.producer(topic, linger=0, batch_bytes=600) as producer:
        for number in range(count):
            producer.send(b"%03d" % number + bytes(497), partition=partition)
            producer.flush(20)


def shortened(client: Client, topic: str) -> int:
    """Wait until retention has removed something; the offset where the topic begins now."""
    begin: int = until(lambda: client.describe(topic).partitions[0].start)
    return begin


def eventually(predicate: Callable[[], Any], query: StreamingQuery) -> Any:
    """`until` for what a query does: looked at seldom, since Spark needs the machine for itself."""

    def look() -> Any:
        found = predicate()
        if not found:
            failure = query.exception()
            assert failure is None, failure
            time.sleep(LOOK_SECONDS)
        return found

    return until(look, timeout=2 * PATIENCE, what="the query has come so far")


def load(spark: SparkSession, broker: ServerProcess, topic: str, **options: object) -> DataFrame:
    return _with(spark.read.format("hocket"), broker, topic, options).load()


def stream(spark: SparkSession, broker: ServerProcess, topic: str, **options: object) -> DataFrame:
    options = {"startingOffsets": "earliest", **options}
    return _with(spark.readStream.format("hocket"), broker, topic, options).load()


def _with(reader: Any, broker: ServerProcess, topic: str, options: dict[str, object]) -> Any:
    if topic:
        options = {"subscribe": topic, **options}
    for name, value in {"servers": broker.address, **options}.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader


@dataclass
class Batches:
    """What each micro-batch held, as (topic, partition, offset), by the batch's number."""

    by_number: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.by_number[number] = [tuple(row) for row in rows]  # type: ignore[misc]

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        return sorted(row for rows in self.by_number.values() for row in rows)

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in sorted(self.by_number.items())]


def expected(topic: str, *ranges: tuple[int, int, int]) -> list[tuple[str, int, int]]:
    """The rows of `ranges`, each (partition, start, end)."""
    return sorted((topic, p, offset) for p, start, end in ranges for offset in range(start, end))


@contextmanager
def running(
    frame: DataFrame, checkpoint: object, sink: Callable[[DataFrame, int], None], **trigger: Any
) -> Iterator[StreamingQuery]:
    """A query with this sink; stopped at the end, and its failure is raised."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(sink)
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def run_to_end(
    frame: DataFrame, checkpoint: object, sink: Callable[[DataFrame, int], None] | None = None,
    **trigger: Any,
) -> StreamingQuery:  # fmt: skip
    """Everything that is there now, and no more. Raises what the query fails with."""
    with running(frame, checkpoint, sink or Batches(), **(trigger or {"availableNow": True})) as q:
        assert q.awaitTermination(int(PATIENCE * 2)), "the query did not end"
        return q


def failure_of(action: Callable[[], object]) -> str:
    """What Spark says when the action fails; it wraps our errors in its own."""
    try:
        action()
    except Exception as error:
        return str(error)
    raise AssertionError("it did not fail")
