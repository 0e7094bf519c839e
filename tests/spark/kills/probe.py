"""The production data source with stops in it: nothing is replaced, only interrupted.

Besides, every few batches a task fails after it has staged everything, and Spark runs it again; its
first attempt's stage stays behind, as that of a task that died would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

from pyspark import TaskContext

from hocket.spark import sink, writing
from hocket.spark.connections import client_of
from hocket.spark.source import HocketDataSource
from hocket.spark.stream_reader import HocketStreamReader
from tests.spark.kills import stages
from tests.spark.kills.control import Control

FAILING_EVERY = 3  # batches
NUMBER_CHANGES = "number changes"  # a planted bug: a batch done again is taken for another one


class InjectedFailure(Exception):
    """A task that was made to fail."""


def reach(stage: str) -> None:
    Control.here().reach(stage)


class ProbedReader(HocketStreamReader):
    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        reach(stages.ASKING)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict, end: dict) -> Any:
        reach(stages.PLANNING)
        return super().partitions(start, end)


class ProbedStreamSink(sink.StreamSink):
    def write(self, iterator: Iterator[Any]) -> sink.Staged:
        return after_staging(super().write(iterator))

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        reach(stages.BEFORE)
        super().commit(messages, batchId)
        Control.here().note_batch(batchId)
        reach(stages.AFTER)


class ProbedBatchSink(sink.BatchSink):
    def write(self, iterator: Iterator[Any]) -> sink.Staged:
        return after_staging(super().write(iterator))

    def commit(self, messages: Any) -> None:
        reach(stages.BEFORE)
        super().commit(messages)
        reach(stages.AFTER)


class ProbeSource(HocketDataSource):
    @classmethod
    def name(cls) -> str:
        return "hocket-probe"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        made = super().streamReader(schema)
        made.__class__ = ProbedReader
        return made

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        made = super().streamWriter(schema, overwrite)
        made.__class__ = ProbedStreamSink
        return made

    def writer(self, schema: Any, overwrite: bool) -> Any:
        made = super().writer(schema, overwrite)
        made.__class__ = ProbedBatchSink
        return made


def after_staging(staged: sink.Staged) -> sink.Staged:
    context = TaskContext.get()
    assert context is not None
    if staged.rows:
        reach(stages.PREPARED)
        if staged.number % FAILING_EVERY == 0 and Control.here().is_first(f"batch {staged.number}"):
            raise InjectedFailure(f"task {context.partitionId()} of batch {staged.number}")
    return staged


# --- stops inside what the sink calls ------------------------------------------------------------


def send_rows(transaction: Any, layout: Any, batches: Iterable[Any]) -> int:
    """Each batch is sent as it comes, and there is a stop between two of them."""
    rows = 0
    for batch, following in pairwise(chain(batches, [None])):
        rows += writing.send_rows(transaction, layout, [batch])
        if following is not None and Control.here().is_armed(stages.TASK):
            while not any(each.staging.participants() for each in transaction._producers.values()):
                time.sleep(0.001)  # until the broker has said that some of it is staged
            reach(stages.TASK)
        if following is not None and is_slow():
            slow_down()
    return rows


def is_slow() -> bool:
    """The first attempt of the first task of every batch, if slow tasks are asked for."""
    context = TaskContext.get()
    assert context is not None
    first = context.partitionId() == 0 and context.attemptNumber() == 0
    return bool(os.environ.get("HOCKET_PROBE_SLOW")) and first


def slow_down() -> None:
    """Go on when another copy has been committed in this one's place."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty(sink.BATCH_ID)
    Control.here().is_first(f"slow {batch}")
    Control.here().wait_for_batch(int(batch))


class StoppedClient:
    """A client with stops between the request to commit and its answer."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transaction(self, name: str, **kwargs: Any) -> Any:
        return self._client.transaction(planted(name), **kwargs)

    def commit_prepared(self, name: str, *args: Any, **kwargs: Any) -> None:
        if Control.here().is_armed(stages.DECIDED):  # else the harness cannot tell what is new
            (topic,) = {each.topic for each in args[1]}
            Control.here().note_size(sum(self._client.find_offsets(topic, "latest")))
        engine = self._client._engine
        wait = engine.wait_for_reply

        def stopped(*args: Any, **kwargs: Any) -> Any:
            reach(stages.ASKED)
            reach(stages.DECIDED)  # the harness waits for the output before it kills
            return wait(*args, **kwargs)

        engine.wait_for_reply = stopped
        try:
            self._client.commit_prepared(planted(name), *args, **kwargs)
        finally:
            engine.wait_for_reply = wait


def planted(name: str) -> str:
    if os.environ.get("HOCKET_PROBE_PLANTED") != NUMBER_CHANGES:
        return name
    return f"{name}-{os.environ['HOCKET_PROBE_LIFE']}"


def stopped_client_of(*args: Any, **kwargs: Any) -> Any:
    return StoppedClient(client_of(*args, **kwargs))


if "HOCKET_PROBE" in os.environ:
    sink.send_rows = send_rows
    sink.client_of = stopped_client_of
