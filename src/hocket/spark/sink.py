"""The sink: what a query writes is in the topics once, whatever fails and is done again.

Every task stages its rows in a transaction and leaves the transaction undecided. The driver's
`commit` decides what all tasks have staged with one request. The transaction is named after the
query (`spark-<query id>`) and numbered after the micro-batch. Both come from the checkpoint and are
the same when Spark does a batch again. So a batch that was committed before is recognised, and its
stages are dropped, as are the stages of tasks that failed, were given up or came second.

With `delivery=at-least-once` a task publishes as it goes and there is nothing to decide. What Spark
does again is then published again. This saves the broker from writing every record twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from hocket.errors import (
    AnotherCluster,
    HocketError,
    LimitExceeded,
    OutOfRange,
    TransactionConflict,
)
from hocket.model import Participant
from hocket.spark.connections import client_of
from hocket.spark.options import WriteOptions
from hocket.spark.writing import Layout, layout_of, send_rows

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from hocket.client.faces.blocking.client import Client
    from hocket.client.faces.blocking.producer import Producer

logger = logging.getLogger("hocket.spark")

PARTICIPANTS_MAX = 10_000  # of one transaction: the broker's limit
PATIENCE_SECONDS = 60.0  # that a task waits for a broker that is just being restarted
DROP_SECONDS = 30.0  # that an abort waits for the broker; the broker drops the rest later

# Spark sets these for every task of a streaming query. They are not documented.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged, for the driver to decide."""

    transaction: str
    number: int
    participants: tuple[Participant, ...]
    rows: int
    cluster: str = ""  # the id of the cluster that it is staged, or published, in
    trace: tuple[tuple[str, bytes], ...] = ()  # the context of the task's span, as headers


class BatchSink(DataSourceArrowWriter):
    """Writes one DataFrame, all of it or nothing."""

    def __init__(self, layout: Layout, options: WriteOptions) -> None:
        self.layout = layout
        self.options = options
        # Made where the write is planned, so it is the same in all tasks.
        self.transaction = options.transaction or f"spark-batch-{uuid4().hex}"
        self.number = options.number

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        return _written(self.options, self.layout, iterator, self._write)

    def _write(self, layout: Layout, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        if not self.options.exactly_once:
            return publish_at_once(self.options, layout, iterator)
        return stage(self.options, layout, self.transaction, self.number, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _committed(self.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        drop(self.options, messages)
        if self.options.exactly_once and self.options.transaction is None:
            give_up(self.options, self.transaction, self.number)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a streaming query once."""

    def __init__(self, layout: Layout, options: WriteOptions, checkpoint: str | None) -> None:
        self.layout = layout
        self.options = options
        self.checkpoint = checkpoint

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        return _written(self.options, self.layout, iterator, self._write)

    def _write(self, layout: Layout, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        if not self.options.exactly_once:
            return publish_at_once(self.options, layout, iterator)
        context = TaskContext.get()
        query = _property(context, QUERY_ID) or _query_of(self.checkpoint)
        batch = _property(context, BATCH_ID)
        if query is None or batch is None:
            raise OutOfRange(
                "Spark did not tell which query and micro-batch this task belongs to "
                f"({QUERY_ID}={query}, {BATCH_ID}={batch}), so nothing can be written exactly "
                "once; write in foreachBatch with the options transactionId and transactionNumber"
            )
        return stage(self.options, layout, f"spark-{query}", int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for message in _staged(messages):
            at = message.number
            assert at == batchId or not message.participants, f"{at} was staged for {batchId}"
        _committed(self.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        drop(self.options, messages)


def batch_sink(schema: StructType, options: WriteOptions, *, overwrite: bool) -> BatchSink:
    if overwrite:
        raise OutOfRange(
            "Save mode Overwrite not allowed for Hocket: a topic is only appended to. "
            'Use mode("append")'
        )
    return BatchSink(layout_of(schema, options.topic), options)


def stream_sink(schema: StructType, options: WriteOptions, checkpoint: str | None) -> StreamSink:
    """All output modes that Spark allows are taken; all of them append, as with Kafka's sink."""
    return StreamSink(layout_of(schema, options.topic), options, checkpoint)


def _written(
    options: WriteOptions,
    layout: Layout,
    rows: Iterator[pyarrow.RecordBatch],
    write: Callable[[Layout, Iterator[pyarrow.RecordBatch]], Staged],
) -> Staged:
    if not options.tracing:
        return write(layout, rows)
    from hocket.spark import traces

    with traces.writing(options.topic, layout, rows) as (carrying, layout, rows):
        return replace(write(layout, rows), trace=carrying)


def _committed(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if not options.tracing:
        publish(options, messages)
        return
    from hocket.spark import traces

    staged = _staged(messages)
    rows, tasks = sum(each.rows for each in staged), [each.trace for each in staged]
    with traces.committing(options.topic, rows, tasks):
        publish(options, messages)


# --- staging, in tasks -----------------------------------------------------------------------


def stage(
    options: WriteOptions,
    layout: Layout,
    transaction: str,
    number: int,
    batches: Iterator[pyarrow.RecordBatch],
) -> Staged:
    """Stage all rows durably; if anything fails, what this task has staged is dropped."""
    client = client_of(options.connection, patience=PATIENCE_SECONDS)
    try:
        with client.transaction(
            transaction,
            number=number,
            codec=options.codec,
            send_timeout=options.commit_timeout,
            delivery_timeout=options.commit_timeout,
        ) as staging:
            rows = send_rows(staging, layout, batches)
            participants = staging.prepare(timeout=options.commit_timeout)
    except TransactionConflict as error:
        raise TransactionConflict(
            f"batch {number} of transaction {transaction!r} is not the next one: {error}. Either "
            "this task was given up long ago, or the query's checkpoint was put back to an earlier "
            "batch; what it wrote since then cannot be written again under the same numbers"
        ) from error
    return Staged(transaction, number, participants, rows, client.cluster)


def publish_at_once(
    options: WriteOptions, layout: Layout, batches: Iterator[pyarrow.RecordBatch]
) -> Staged:
    """Publish all rows durably, so that nothing is left to decide."""
    client = client_of(options.connection, patience=PATIENCE_SECONDS)
    with ExitStack() as kept:  # closes the others too if one fails
        rows = send_rows(Producers(client, options, kept), layout, batches)
    return Staged("", 0, (), rows, client.cluster)


class Producers:
    """A producer for each topic that comes up; all are closed with `kept`."""

    def __init__(self, client: Client, options: WriteOptions, kept: ExitStack) -> None:
        self._client = client
        self._options = options
        self._kept = kept
        self._by_topic: dict[str, Producer] = {}

    def send_arrow(
        self, topic: str, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None:
        producer = self._by_topic.get(topic)
        if producer is None:
            producer = self._by_topic[topic] = self._client.producer(
                topic,
                codec=self._options.codec,
                send_timeout=self._options.commit_timeout,
                delivery_timeout=self._options.commit_timeout,
            )
            self._kept.callback(producer.close, self._options.commit_timeout)
        producer.send_arrow(record_batch, partition)


def _property(context: TaskContext | None, name: str) -> str | None:
    return None if context is None else context.getLocalProperty(name)


def _query_of(checkpoint: str | None) -> str | None:
    """The query's id from its checkpoint; None where this process cannot read it."""
    if checkpoint is None:
        return None
    location = urlsplit(checkpoint)
    if location.scheme not in ("", "file"):
        return None
    try:
        return str(json.loads((Path(location.path) / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None


# --- deciding, in the driver -----------------------------------------------------------------


def publish(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit what all tasks have staged, in one decision.

    A batch without rows decides nothing: there is nothing to publish. If the batch has rows when
    Spark does it again, they are published then.
    """
    staged = _staged(messages)
    cluster = _cluster_of(staged)
    participants = tuple(each for message in staged for each in message.participants)
    if not participants:
        return
    transaction, number = _name_of(staged)
    if len(participants) > PARTICIPANTS_MAX:
        raise LimitExceeded(
            f"{len(staged)} tasks have written to {len(participants)} partitions in all, each "
            f"counted once for each task; a transaction has at most {PARTICIPANTS_MAX}. Write "
            "with fewer tasks, as in coalesce(8), or repartition by the key"
        )
    client = client_of(options.connection, patience=PATIENCE_SECONDS, cluster=cluster)
    try:
        client.commit_prepared(transaction, number, participants, timeout=options.commit_timeout)
    except TransactionConflict as error:
        rows = sum(message.rows for message in staged)
        raise TransactionConflict(
            f"batch {number} was written before, by transaction {transaction!r}, and differed from "
            f"these {rows} rows: {error}. Nothing was published now. Spark "
            "does a batch again after a failure and expects the same rows; so the query is not "
            "deterministic (rand(), current time in a UDF, an unordered limit), or its topics, its "
            "code or its checkpoint was changed in between"
        ) from error


def drop(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Tell the broker to drop what was staged. A failure is logged: the broker drops it later."""
    staged = _staged(messages)
    participants = tuple(each for message in staged for each in message.participants)
    if not participants:
        return
    transaction, number = _name_of(staged)
    try:
        client = client_of(options.connection, cluster=_cluster_of(staged))
        client.drop_prepared(transaction, number, participants, timeout=DROP_SECONDS)
    except HocketError as error:
        logger.warning("what batch %d of %r staged stays for now: %s", number, transaction, error)


def give_up(options: WriteOptions, transaction: str, number: int) -> None:
    """Decide, with no participants, a transaction that will not be tried again.

    Tasks that were cancelled or died left no message that names their stages. Once the number is
    decided without these stages, the broker drops them by itself, in a minute instead of a day.
    """
    try:
        client = client_of(options.connection)
        client.commit_prepared(transaction, number, (), timeout=DROP_SECONDS)
    except HocketError as error:
        logger.warning("what %r staged may stay for a day: %s", transaction, error)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of those tasks that did not fail."""
    return [cast(Staged, message) for message in messages if message is not None]


def _cluster_of(staged: list[Staged]) -> str:
    """The one cluster that all tasks have written to; empty if the broker does not say."""
    clusters = sorted({message.cluster for message in staged if message.cluster})
    if len(clusters) > 1:
        raise AnotherCluster(
            f"tasks of one batch have reached different clusters ({', '.join(clusters)}): the "
            "addresses of the option servers do not belong together. Nothing of the batch is "
            "committed; with delivery=at-least-once its rows are published where they went"
        )
    return clusters[0] if clusters else ""


def _name_of(staged: list[Staged]) -> tuple[str, int]:
    names = {(message.transaction, message.number) for message in staged}
    assert len(names) == 1, f"the tasks of one batch staged for {names}"
    return names.pop()
