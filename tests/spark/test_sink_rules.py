"""The sink's own rules, without Spark: a broker, and the calls that Spark would make."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import hocket
from hocket import Client, errors
from hocket.adapters.disk import DirectoryDisk
from hocket.model import Participant
from hocket.node.broker import Broker
from hocket.spark import sink, writing
from hocket.spark.options import WriteOptions
from hocket.spark.sink import PARTICIPANTS_MAX, BatchSink, Staged, StreamSink
from hocket.spark.writing import Layout, gathered

SCHEMA = StructType([StructField("value", BinaryType())])


def rows(*values: bytes) -> Iterator[Any]:
    return iter([pa.record_batch({"value": pa.array(values, pa.binary())})])


def options(broker: Any, topic: str, **given: str) -> WriteOptions:
    found = {"servers": broker.address, "topic": topic, **given}
    return WriteOptions.parse(found, streaming=False)


def batch_sink(broker: Any, topic: str, **given: str) -> BatchSink:
    return sink.batch_sink(SCHEMA, options(broker, topic, **given), overwrite=False)


def values(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    with client.subscribe(topic) as messages:
        while len(found) < sum(client.find_offsets(topic, "latest")):
            found += messages.receive_batch(timeout=20).values()
    return sorted(found)


def test_nothing_is_there_before_the_commit_and_everything_after_it(broker, client, topic):
    client.create_topic(topic, partitions=2)
    writer = batch_sink(broker, topic)
    staged = [writer.write(rows(b"a", b"b")), writer.write(rows(b"c"))]
    assert sum(client.find_offsets(topic, "latest")) == 0
    writer.commit(staged)
    assert values(client, topic) == [b"a", b"b", b"c"]


def test_at_least_once_publishes_as_it_goes_and_a_second_time_if_done_again(broker, client, topic):
    client.create_topic(topic, partitions=2)
    writer = batch_sink(broker, topic, delivery="at-least-once")
    message = writer.write(rows(b"a", b"b"))
    assert (message.rows, message.participants) == (2, ())
    assert values(client, topic) == [b"a", b"b"]
    writer.commit([message])
    writer.abort([message])
    assert values(client, topic) == [b"a", b"b"]
    stream = sink.stream_sink(SCHEMA, options(broker, topic, delivery="at-least-once"), None)
    stream.commit([stream.write(rows(b"a"))], 7)  # no query is needed either
    assert values(client, topic) == [b"a", b"a", b"b"]


def test_a_write_that_is_given_up_is_over_also_for_tasks_that_nobody_heard_of(
    broker, client, topic
):
    client.create_topic(topic)
    writer = batch_sink(broker, topic)
    cancelled = writer.write(rows(b"a"))
    writer.abort([None])
    with pytest.raises(errors.TransactionConflict):
        writer.commit([cancelled])
    assert values(client, topic) == []


def test_only_the_attempt_that_spark_names_is_published(broker, client, topic):
    """The other one is a failed task, a speculative copy, or a zombie that comes late."""
    client.create_topic(topic)
    writer = batch_sink(broker, topic)
    writer.write(rows(b"a"))
    writer.commit([writer.write(rows(b"a"))])
    late = writer.write(rows(b"a"))
    assert values(client, topic) == [b"a"]
    writer.commit([late])
    assert values(client, topic) == [b"a"]


def test_what_is_aborted_can_be_done_again_under_its_number(broker, client, topic):
    client.create_topic(topic)
    writer = batch_sink(broker, topic, transactionId=topic, transactionNumber="5")
    writer.abort([writer.write(rows(b"first try")), None])
    writer.commit([writer.write(rows(b"second try"))])
    writer.commit([writer.write(rows(b"a replay, of as many"))])
    assert values(client, topic) == [b"second try"]


def test_an_abort_after_the_commit_undoes_nothing_and_raises_nothing(broker, client, topic, caplog):
    client.create_topic(topic)
    writer = batch_sink(broker, topic)
    staged = [writer.write(rows(b"a"))]
    writer.commit(staged)
    with caplog.at_level(logging.WARNING, "hocket.spark"):
        writer.abort(staged)
    assert values(client, topic) == [b"a"]


def test_a_task_that_fails_drops_what_it_staged(broker, client, topic):
    client.create_topic(topic)
    writer = batch_sink(broker, topic, transactionId=topic, transactionNumber="0")

    def failing() -> Iterator[Any]:
        yield from rows(b"a")
        raise RuntimeError("upstream")

    with pytest.raises(RuntimeError, match="upstream"):
        writer.write(failing())
    writer.commit([writer.write(rows(b"b"))])
    assert values(client, topic) == [b"b"]


def test_a_batch_without_rows_decides_nothing(broker, client, topic):
    client.create_topic(topic)
    writer = batch_sink(broker, topic, transactionId=topic, transactionNumber="0")
    nothing = writer.write(iter([]))
    assert nothing.participants == ()
    writer.commit([nothing])
    writer.commit([])
    writer.commit([writer.write(rows(b"not nothing this time"))])
    assert values(client, topic) == [b"not nothing this time"]


def test_other_rows_under_the_same_number_are_a_conflict_that_explains_itself(
    broker, client, topic
):
    client.create_topic(topic)
    writer = batch_sink(broker, topic, transactionId=topic, transactionNumber="7")
    writer.commit([writer.write(rows(b"a"))])
    with pytest.raises(
        errors.TransactionConflict, match=r"batch 7 was written before.*not determin"
    ):
        writer.commit([writer.write(rows(b"a", b"b"))])
    assert values(client, topic) == [b"a"]


def test_a_batch_before_the_last_one_is_refused_where_it_is_staged(broker, client, topic):
    client.create_topic(topic)
    name = {"transactionId": topic}
    later = batch_sink(broker, topic, **name, transactionNumber="8")
    later.commit([later.write(rows(b"a"))])
    earlier = batch_sink(broker, topic, **name, transactionNumber="7")
    with pytest.raises(errors.TransactionConflict, match="checkpoint was put back"):
        earlier.write(rows(b"b"))
    assert values(client, topic) == [b"a"]


def test_too_many_participants_are_refused_with_what_to_do(broker, client, topic):
    client.create_topic(topic)
    writer = batch_sink(broker, topic)
    many = [Participant(topic, n % 100, n.to_bytes(16, "big"), 1, 1, 0) for n in range(10_001)]
    assert len(many) == PARTICIPANTS_MAX + 1
    staged = Staged(writer.transaction, 0, tuple(many), 10_001)
    with pytest.raises(errors.LimitExceeded, match=r"10001 partitions in all.*fewer tasks"):
        writer.commit([staged])


def test_an_abort_that_cannot_be_said_is_only_logged(caplog, topic):
    from tests.support.processes.server import free_port

    given = {"servers": f"127.0.0.1:{free_port()}", "topic": topic}
    writer = sink.batch_sink(SCHEMA, WriteOptions.parse(given, streaming=False), overwrite=False)
    staged = Staged("name", 3, (Participant(topic, 0, bytes(16), 1, 1, 0),), 1)
    with caplog.at_level(logging.WARNING, "hocket.spark"):
        writer.abort([None, staged])
    assert "what batch 3 of 'name' staged stays for now" in caplog.text


def test_the_broker_allows_as_many_participants_as_the_sink():
    from hocket.core.transactions.participants import PARTICIPANTS_MAX as ALLOWED

    assert ALLOWED == PARTICIPANTS_MAX


# --- which query and batch it is ------------------------------------------------------------------


class Task:
    """As much of a TaskContext as the sink asks for."""

    def __init__(self, **properties: str) -> None:
        self.properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name.rpartition(".")[2])


def stream_sink(
    broker: Any, topic: str, monkeypatch: Any, task: Any, checkpoint: Any
) -> StreamSink:
    monkeypatch.setattr(sink.TaskContext, "get", lambda: task)
    given = replace(options(broker, topic), transaction=None)
    return sink.stream_sink(SCHEMA, given, checkpoint)


def test_a_stream_is_named_for_its_query_and_numbered_for_its_batch(
    broker, client, topic, monkeypatch
):
    client.create_topic(topic)
    task = Task(queryId="1234", batchId="9")
    writer = stream_sink(broker, topic, monkeypatch, task, None)
    staged = writer.write(rows(b"a"))
    assert (staged.transaction, staged.number, staged.rows) == ("spark-1234", 9, 1)
    writer.commit([staged], 9)
    assert values(client, topic) == [b"a"]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_checkpoint_knows_the_query_too(broker, client, topic, monkeypatch, tmp_path, scheme):
    client.create_topic(topic)
    (tmp_path / "metadata").write_text(json.dumps({"id": "from-the-file"}))
    task = Task(batchId="0")
    writer = stream_sink(broker, topic, monkeypatch, task, f"{scheme}{tmp_path}")
    staged = writer.write(rows(b"a"))
    assert staged.transaction == "spark-from-the-file"
    writer.abort([staged], 0)


@pytest.mark.parametrize("checkpoint", [None, "hdfs://elsewhere/x", "/not/there"])
def test_a_task_that_does_not_know_its_query_is_refused(broker, topic, monkeypatch, checkpoint):
    for task in (None, Task(batchId="0"), Task(queryId="1")):
        writer = stream_sink(broker, topic, monkeypatch, task, checkpoint)
        with pytest.raises(errors.OutOfRange, match="foreachBatch with the options transactionId"):
            writer.write(rows(b"a"))


# --- gathering ------------------------------------------------------------------------------------


def test_small_batches_are_gathered_and_empty_ones_left_out(monkeypatch):
    monkeypatch.setattr(writing, "ROWS_MAX", 5)
    batches = [pa.record_batch({"n": list(range(n, n + size))}) for n, size in
               ((0, 2), (2, 0), (2, 3), (5, 4), (9, 7), (16, 1))]  # fmt: skip
    found = [batch.column(0).to_pylist() for batch in gathered(iter(batches))]
    assert found == [[0, 1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15], [16]]


def test_large_rows_are_not_gathered(monkeypatch):
    monkeypatch.setattr(writing, "BYTES_MAX", 1000)
    batches = [pa.record_batch({"value": [bytes(600)]}) for _ in range(3)]
    assert [batch.num_rows for batch in gathered(batches)] == [1, 1, 1]


def test_rows_are_taken_apart_without_changing_their_order():
    names = ["b", "a", "b", "c", "a"]
    batch = pa.record_batch({"value": [b"%d" % n for n in range(5)], "topic": names})
    found = {
        topic: messages.column("value").to_pylist()
        for topic, _, messages in writing.messages_of(batch, Layout(value=0, topic=1))
    }
    assert found == {"a": [b"1", b"4"], "b": [b"0", b"2"], "c": [b"3"]}


# --- a full disk ---------------------------------------------------------------------------------


@dataclass
class BrokerHere:
    address: str


@pytest.fixture
def broker_here(tmp_path) -> Iterator[BrokerHere]:
    """A broker in this process, whose disk can be made to seem full."""
    served = Broker(tmp_path / "data")
    host, port = served.listen("127.0.0.1", 0)
    served.start()
    yield BrokerHere(f"{host}:{port}")
    served.close()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_full_disk_is_named_soon_and_within_the_timeout(broker_here, monkeypatch, delivery):
    writer = batch_sink(broker_here, "t", delivery=delivery, commitTimeout="1s")
    with hocket.connect(f"hocket://{broker_here.address}") as client:
        client.create_topic("t")
        staged = batch_sink(broker_here, "t").write(rows(b"staged"))
        monkeypatch.setattr(DirectoryDisk, "free_bytes", lambda _disk: 0)
        with suppress(errors.StorageFull):  # from the broker's next look at its disk on
            for _ in range(100_000):
                client.publish("t", b"x", timeout=1)
        begun = monotonic()
        with pytest.raises(errors.StorageFull, match="the disk of"):
            writer.write(rows(b"refused"))
        with pytest.raises(errors.StorageFull, match="the disk of"):
            writer.commit([staged])
        assert monotonic() - begun < 60  # and not the 120 s of a producer, or the 600 of a commit
        monkeypatch.undo()
        batch_sink(broker_here, "t").commit([staged])
        assert b"staged" in values(client, "t")
        assert b"refused" not in values(client, "t")
