"""Reading topics as they are: every column, every way to choose, and batches worth Spark's while.

What needs no session is tested without one: `reading.read` is all that a task does.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

import hocket
from hocket import Client, Subscription
from hocket.errors import OutOfRange, Timeout
from hocket.spark import reading
from hocket.spark.batch_reader import HocketBatchReader
from hocket.spark.columns import ALL, arrow_schema, spark_schema
from hocket.spark.connections import client_of
from hocket.spark.options import ReadOptions
from hocket.spark.planning import Span
from tests.spark.conftest import url_of
from tests.support.processes.server import ServerProcess
from tests.support.spark import failure_of, fill, load
from tests.support.threads import noise


def options_of(broker: ServerProcess, topic: str, **options: object) -> ReadOptions:
    texts = {name: str(value) for name, value in options.items()}
    return ReadOptions.parse(
        {"servers": broker.address, "subscribe": topic, **texts}, streaming=False
    )


def rows_of(batches: list[pa.RecordBatch], column: str) -> list[object]:
    return [value for batch in batches for value in batch.column(column).to_pylist()]


# --- without Spark -------------------------------------------------------------------------------


def test_the_schemas_are_equal_where_spark_compares_them():
    from pyspark.sql.pandas.types import to_arrow_schema

    for columns in (ALL, ALL[:-1], ("headers", "value"), ("timestamp",)):
        assert to_arrow_schema(spark_schema(columns), timezone="UTC").equals(arrow_schema(columns))


def test_an_end_before_the_start_is_an_error_and_not_an_empty_batch(broker, client, topic):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 10)
    options = options_of(
        broker, topic,
        startingOffsets=f'{{"{topic}": {{"0": 8, "1": 0}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 3, "1": 0}}}}',
    )  # fmt: skip
    with pytest.raises(OutOfRange, match="/0 is 3, before startingOffsets, which is 8"):
        HocketBatchReader(options).partitions()


@pytest.mark.parametrize("columns", [",".join(ALL), "value,key", "offset", "timestampType,topic"])
def test_every_batch_has_exactly_the_columns_that_were_named(broker, client, topic, columns):
    client.create_topic(topic)
    for number in range(5):  # one by one, so that they are stored one by one
        client.publish(topic, b"%d" % number, headers={"n": b"x"} if number % 2 else None)
    options = options_of(broker, topic, columns=columns)
    batches = list(reading.read(Span(topic, 0, 1, 4), options))
    assert [batch.num_rows for batch in batches] == [3]
    assert batches[0].schema.equals(arrow_schema(columns.split(",")))
    wanted = {
        "key": None, "value": [b"1", b"2", b"3"], "topic": [topic] * 3, "partition": [0] * 3,
        "offset": [1, 2, 3], "timestampType": [0] * 3,
    }  # fmt: skip
    for name in set(batches[0].schema.names) & set(wanted):
        assert rows_of(batches, name) == (wanted[name] or [None] * 3)


def test_small_batches_are_gathered_and_large_ones_cut(broker, client, topic, monkeypatch):
    monkeypatch.setattr(reading, "ROWS_ENOUGH", 40)
    monkeypatch.setattr(reading, "ROWS_MAX", 50)
    client.create_topic(topic)
    for number in range(100):
        client.publish(topic, b"%d" % number)
    with client.producer(topic, linger=1, batch_bytes="1MiB") as producer:
        producer.send_many([b"%d" % number for number in range(100, 400)])
    batches = list(reading.read(Span(topic, 0, 0, 390), options_of(broker, topic)))
    assert [int(value) for value in rows_of(batches, "value")] == list(range(390))
    assert rows_of(batches, "offset") == list(range(390))
    sizes = [batch.num_rows for batch in batches]
    assert len(sizes) < 20, "those of one record are gathered"
    assert max(sizes) == 50
    assert all(batch.schema.equals(arrow_schema(ALL[:-1])) for batch in batches)


def test_batches_of_large_values_are_cut_by_size(broker, client, topic):
    client.create_topic(topic)
    with client.producer(topic, linger=1, batch_bytes="8MiB", window_bytes="64MiB") as producer:
        producer.send_many([noise(100_000, number) for number in range(60)])
    batches = list(reading.read(Span(topic, 0, 0, 60), options_of(broker, topic)))
    assert max(batch.nbytes for batch in batches) <= reading.BYTES_MAX + 200_000
    assert rows_of(batches, "value") == [noise(100_000, number) for number in range(60)]


def test_a_mask_chooses_rows_and_leaves_no_empty_batches(broker, client, topic, monkeypatch):
    import pyarrow.compute as pc

    monkeypatch.setattr(reading, "ROWS_ENOUGH", 10)
    client.create_topic(topic)
    for number in range(30):
        client.publish(topic, b"%d" % number)

    def mask(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.greater_equal(batch.column("offset"), 25)

    found = list(reading.read(Span(topic, 0, 0, 30), options_of(broker, topic), mask=mask))
    assert [batch.num_rows for batch in found] == [5]


def test_a_broker_that_is_killed_in_the_middle_of_a_read_costs_nothing(
    tmp_path, topic, monkeypatch
):
    monkeypatch.setattr(reading, "CREDIT_BYTES", 10_000)
    monkeypatch.setattr(reading, "ROWS_ENOUGH", 1)
    with ServerProcess(tmp_path) as server:
        with hocket.connect(url_of(server)) as client:
            client.create_topic(topic)
            with client.producer(topic, batch_bytes=2000) as producer:
                producer.send_many([b"%06d" % number + bytes(94) for number in range(2000)])
        batches = reading.read(Span(topic, 0, 0, 2000), options_of(server, topic))
        found = [next(batches)]
        server.kill()
        server.start()
        found += batches
        assert rows_of(found, "offset") == list(range(2000))
        assert [int(value[:6]) for value in rows_of(found, "value")] == list(range(2000))  # type: ignore[index]


def test_a_broker_that_stays_away_is_given_up_after_the_poll_timeout(tmp_path, topic, monkeypatch):
    monkeypatch.setattr(reading, "CREDIT_BYTES", 1)
    monkeypatch.setattr(reading, "ROWS_ENOUGH", 1)
    monkeypatch.setattr(reading, "ASK_SECONDS", 0.1)
    with ServerProcess(tmp_path) as server:
        with hocket.connect(url_of(server)) as client:
            client.create_topic(topic)
            for _ in range(100):
                client.publish(topic, bytes(1000))
        options = options_of(server, topic, pollTimeoutMs=700)
        batches = reading.read(Span(topic, 0, 0, 100), options)
        next(batches)
        server.kill()
        with pytest.raises(Timeout, match=r"did not come within 0\.7 s.*pollTimeoutMs"):
            list(batches)


def test_for_a_short_span_little_is_sent_that_lies_beyond_it(broker, client, topic, monkeypatch):
    asked: list[int] = []
    real = Client.subscribe

    def subscribe(self: Client, *args: Any, credit_bytes: int, **more: Any) -> Subscription:
        asked.append(credit_bytes)
        return real(self, *args, credit_bytes=credit_bytes, **more)

    monkeypatch.setattr(Client, "subscribe", subscribe)
    client.create_topic(topic)
    fill(client, topic, 5000)
    for end in (10, 5000):
        list(reading.read(Span(topic, 0, 0, end), options_of(broker, topic)))
    assert asked == [reading.CREDIT_BYTES_MIN, 5000 * reading.ROW_BYTES_GUESSED]


def test_a_read_that_is_broken_off_leaves_nothing_open(broker, client, topic, monkeypatch):
    monkeypatch.setattr(reading, "ROWS_ENOUGH", 1)
    client.create_topic(topic)
    for _ in range(3):
        client.publish(topic, b"x")
    options = options_of(broker, topic)
    batches = reading.read(Span(topic, 0, 0, 3), options)
    next(batches)
    batches.close()
    assert not client_of(options.connection)._subscriptions


# --- with Spark ----------------------------------------------------------------------------------


def test_every_column_is_as_it_was_stored(spark, broker, client, topic):
    client.create_topic(topic, partitions=2, disk_retention="forever")  # some are of 1970
    sent = [
        {"value": b"", "key": None, "headers": None, "timestamp": 0, "partition": 0},
        {"value": b"\x00\xff", "key": b"k", "headers": {"h": b"1", "n": None}, "partition": 1},
        {"value": b"text", "key": b"", "headers": {"\u00e9": b""}, "timestamp": 10**15 + 7,
         "partition": 0},
    ]  # fmt: skip
    for each in sent:
        client.publish(topic, **each)  # type: ignore[arg-type]
    with client.subscribe(topic) as messages:
        stored = {(m.partition, m.offset): m for m in (messages.receive(20) for _ in sent)}
    frame = load(spark, broker, topic, includeHeaders="true")
    assert frame.columns == list(ALL)
    rows = frame.collect()
    assert len(rows) == len(sent)
    for row in rows:
        message = stored[row.partition, row.offset]
        assert (row.topic, row.timestampType) == (topic, 0)
        assert bytes(row.value) == message.value
        assert (row.key if row.key is None else bytes(row.key)) == message.key
        assert row.timestamp.astimezone(UTC) == message.time
        headers = {header.key: header.value for header in row.headers or ()}
        assert headers == dict(message.headers)
    assert load(spark, broker, topic, columns="value,offset").columns == ["value", "offset"]


def test_where_it_begins_and_ends_and_in_how_many_pieces(spark, broker, client, topic):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 100, 0)
    fill(client, topic, 40, 1)
    fill_other = f"{topic}-b"
    client.create_topic(fill_other)
    fill(client, fill_other, 7)

    def found(frame) -> list[tuple[int, int]]:
        return sorted(tuple(row) for row in frame.select("partition", "offset").collect())

    frame = load(
        spark, broker, topic, minPartitions=6,
        startingOffsets=f'{{"{topic}": {{"0": 90, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": -1, "1": 3}}}}',
    )  # fmt: skip
    assert frame.rdd.getNumPartitions() == 6
    assert found(frame) == [(0, n) for n in range(90, 100)] + [(1, n) for n in range(3)]
    frame = load(spark, broker, "", subscribePattern=f"{topic}.*", startingOffsets="-5 offsets")
    assert found(frame) == sorted(
        [(0, n) for n in range(95, 100)] + [(1, n) for n in range(35, 40)]
        + [(0, n) for n in range(2, 7)]
    )  # fmt: skip
    frame = load(spark, broker, "", assign=f'{{"{topic}": [1]}}', maxRecordsPerPartition=15)
    assert frame.rdd.getNumPartitions() == 3
    assert found(frame) == [(1, n) for n in range(40)]


def test_what_is_wrong_is_said_in_our_words(spark, broker, topic):
    assert "there is no topic" in failure_of(lambda: load(spark, broker, topic).count())
    said = failure_of(lambda: load(spark, broker, topic, startingOffset="earliest"))
    assert "did you mean startingOffsets" in said
    nobody = ServerProcess.__new__(ServerProcess)
    nobody.address = "127.0.0.1:1"
    said = failure_of(lambda: load(spark, nobody, topic).count())
    assert "no broker can be reached at hocket://127.0.0.1:1" in said


def test_an_empty_topic_has_no_rows(spark, broker, client, topic):
    client.create_topic(topic)
    assert load(spark, broker, topic).collect() == []
