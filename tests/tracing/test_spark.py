"""Spans of micro-batches, by the parts of the data source, which need no Spark to be called."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

import hocket
from hocket.errors import WrongType
from hocket.plugins.testing import broker_with
from hocket.spark.connections import close_all
from hocket.spark.options import ReadOptions, WriteOptions
from hocket.spark.sink import batch_sink
from hocket.spark.stream_reader import HocketStreamReader
from tests.tracing.test_clients import ids, named

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def url() -> Iterator[str]:
    with broker_with() as broker:
        yield broker.listen()
        close_all()


def reader(url: str, **more: str) -> HocketStreamReader:
    given = {"servers": url, "subscribe": "t", "startingOffsets": "earliest", **more}
    return HocketStreamReader(ReadOptions.parse(given, streaming=True))


def links(span: ReadableSpan) -> set[int]:
    return {each.context.span_id for each in span.links}


def test_a_micro_batch_of_the_source_has_a_span_with_its_tasks(
    url: str, spans: InMemorySpanExporter
):
    with hocket.connect(url, tracing=True) as client:
        client.create_topic("t", partitions=2)
        for number in range(4):
            client.publish("t", b"%d" % number, partition=number % 2)
    source = reader(url, tracing="true")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    partitions = source.partitions(start, end)
    rows = [row for each in partitions for found in source.read(each) for row in found.to_pylist()]
    assert len(rows) == 4
    tasks = named(spans, "receive t")
    assert len(tasks) == 2  # the micro-batch goes on
    source.latestOffset(end, ReadAllAvailable())
    *_, micro_batch = named(spans, "receive t")
    assert {each.parent.span_id for each in tasks} == {micro_batch.context.span_id}
    assert micro_batch.attributes["messaging.batch.message_count"] == 4
    sent = {each.context.span_id for each in named(spans, "publish t")}
    assert links(tasks[0]) | links(tasks[1]) == sent
    assert len(links(tasks[0])) == len(links(tasks[1])) == 2

    source.partitions(start, end)
    source.stop()  # in the middle of one
    assert len(named(spans, "receive t")) == 4


def test_without_the_option_there_are_no_spans(url: str, spans: InMemorySpanExporter):
    with hocket.connect(url) as client:
        client.create_topic("t")
        client.publish("t", b"0")
    source = reader(url)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    for each in source.partitions(start, end):
        assert sum(found.num_rows for found in source.read(each)) == 1
    source.stop()
    assert not spans.get_finished_spans()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_that_are_written_carry_the_span_of_their_task(
    url: str, spans: InMemorySpanExporter, delivery: str
):
    given = {"servers": url, "topic": "t", "tracing": "true", "delivery": delivery}
    sink = batch_sink(SCHEMA, WriteOptions.parse(given, streaming=False), overwrite=False)
    with hocket.connect(url) as client:
        client.create_topic("t")
        staged = [
            sink.write(iter([pa.RecordBatch.from_pydict({"value": values})]))
            for values in ([b"a", b"b"], [b"c"])
        ]
        staged.append(sink.write(iter(())))
        sink.commit(staged)
        with client.subscribe("t", start="earliest") as subscription:
            messages = [subscription.receive(10) for _ in range(3)]
    tasks, (decision,) = named(spans, "send t"), named(spans, "publish t")
    found = {each.value: ids(each.headers)[1] for each in messages}
    assert found[b"a"] == found[b"b"] == tasks[0].context.span_id
    assert found[b"c"] == tasks[1].context.span_id
    assert links(decision) == {each.context.span_id for each in tasks}
    assert decision.attributes["messaging.batch.message_count"] == 3


def test_rows_that_have_headers_keep_them_and_a_task_that_fails_is_seen(
    url: str, spans: InMemorySpanExporter
):
    from pyspark.sql.types import ArrayType, StringType

    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = SCHEMA.add("headers", ArrayType(pair))
    given = {"servers": url, "topic": "t", "tracing": "true"}
    sink = batch_sink(schema, WriteOptions.parse(given, streaming=False), overwrite=False)
    pairs = pa.struct({"key": pa.string(), "value": pa.binary()})
    rows = pa.RecordBatch.from_pylist(
        [{"value": b"a", "headers": [{"key": "x", "value": b"1"}]}],
        pa.schema({"value": pa.binary(), "headers": pa.list_(pairs)}),
    )
    with hocket.connect(url) as client:
        client.create_topic("t")
        sink.commit([sink.write(iter([rows]))])
        with client.subscribe("t", start="earliest") as subscription:
            assert subscription.receive(10).headers == {"x": b"1"}
        with pytest.raises(WrongType):
            sink.write(iter([pa.RecordBatch.from_pydict({"value": [3], "headers": [None]})]))
    *_, failed = named(spans, "send t")
    assert failed.status.status_code is StatusCode.ERROR
    assert trace.get_current_span() is trace.INVALID_SPAN
