"""Reading topics as they grow: limits, new partitions and topics, triggers, restarts.

The reader is asked here as Spark asks it, which is quick; a few queries then show that Spark does.
"""

from __future__ import annotations

import pickle
import time
from itertools import chain

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import hocket
from hocket.errors import NoConnection
from hocket.spark.lookout import Lookout
from hocket.spark.options import DEFAULT_ROWS_PER_TRIGGER, ReadOptions
from hocket.spark.stream_reader import HocketStreamReader
from tests.spark.conftest import url_of
from tests.support.processes.server import ServerProcess
from tests.support.spark import Batches, eventually, expected, fill, run_to_end, running, stream
from tests.support.threads import Running, until

ALL = ReadAllAvailable()


def reader_of(broker: ServerProcess, **options: object) -> HocketStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    given = {"servers": broker.address, "startingOffsets": "earliest", "idleWaitMs": "0", **texts}
    return HocketStreamReader(ReadOptions.parse(given, streaming=True))


def spans(reader: HocketStreamReader, start, end) -> list[tuple[str, int, int, int]]:
    planned = [each.span for each in reader.partitions(start, end)]
    return [(span.topic, span.partition, span.start, span.end) for span in planned]


# --- without Spark -------------------------------------------------------------------------------


def test_where_a_query_begins_is_settled_once(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 3)
    reader = reader_of(broker, subscribe=topic, startingOffsets="latest")
    first = reader.initialOffset()
    assert first["offsets"] == {topic: {"0": 3}}
    assert first["index"].startswith("spark-hocket-")
    fill(client, topic, 3)
    assert reader.initialOffset() == first
    assert reader.latestOffset(first, ALL) == {**first, "offsets": {topic: {"0": 6}}}
    assert reader_of(broker, subscribe=topic).initialOffset()["index"] != first["index"]


def test_a_batch_is_as_large_as_the_limit_and_shared_out_by_size(broker, client, topic):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 90, 0)
    fill(client, topic, 30, 1)
    reader = reader_of(broker, subscribe=topic, maxOffsetsPerTrigger=40)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert end["offsets"] == {topic: {"0": 30, "1": 10}}
    assert spans(reader, start, end) == [(topic, 0, 0, 30), (topic, 1, 0, 10)]
    assert reader.reportLatestOffset()["offsets"] == {topic: {"0": 90, "1": 30}}
    assert reader.latestOffset(start, ALL)["offsets"] == {topic: {"0": 90, "1": 30}}
    unlimited = reader_of(broker, subscribe=topic)
    assert unlimited.getDefaultReadLimit() == ReadMaxRows(DEFAULT_ROWS_PER_TRIGGER)
    assert unlimited.reportLatestOffset() is None


def test_spans_are_split_and_the_reader_travels_without_its_state(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 10)
    reader = reader_of(broker, subscribe=topic, minPartitions=3)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    planned = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    copy = pickle.loads(pickle.dumps(reader))
    found = [[*copy.read(each)] for each in planned]
    assert len(found) == 3
    offsets = [batch.column("offset").to_pylist() for batches in found for batch in batches]
    assert list(chain(*offsets)) == list(range(10))


def test_few_rows_wait_for_more_but_not_for_ever(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 5)
    reader = reader_of(broker, subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="300ms")
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)  # the first is not made to wait
    assert start["offsets"] == {topic: {"0": 5}}
    given_out = time.monotonic()
    fill(client, topic, 3)
    assert reader.latestOffset(start, limit) == start
    assert reader.latestOffset(start, ALL)["offsets"] == {topic: {"0": 8}}  # Trigger.Once
    until(lambda: reader.latestOffset(start, limit) != start)
    assert time.monotonic() - given_out >= 0.3
    fill(client, topic, 10)
    assert reader.latestOffset(start, limit)["offsets"] == {topic: {"0": 18}}


def test_idle_it_waits_and_wakes_for_a_record(broker, client, topic):
    client.create_topic(topic)
    reader = reader_of(broker, subscribe=topic, idleWaitMs=20_000)
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    with Running(reader.latestOffset, start, limit) as waiting:
        until(lambda: [each.name for each in client.indexes(topic)])  # it has begun to look
        assert not waiting.done
        client.publish(topic, b"x")
        assert waiting.result()["offsets"] == {topic: {"0": 1}}
    patient = reader_of(broker, subscribe=topic, startingOffsets="latest", idleWaitMs=150)
    start = patient.initialOffset()
    began = time.monotonic()
    assert patient.latestOffset(start, limit) == start
    assert time.monotonic() - began >= 0.15


def test_idle_it_waits_though_asking_takes_long(broker, client, topic, monkeypatch):
    client.create_topic(topic)
    reader = reader_of(broker, subscribe=topic, idleWaitMs=150)
    ask, asked = Lookout.topic_ends, []

    def slow(lookout, topics):
        asked.append(time.monotonic())
        until(lambda: time.monotonic() - asked[-1] >= 0.05)
        return ask(lookout, topics)

    monkeypatch.setattr(Lookout, "topic_ends", slow)
    start = reader.initialOffset()
    began = time.monotonic()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert len(asked) == 1  # more often, and asking would take a larger share of the time
    assert time.monotonic() - began >= 0.05 + 0.15


def test_partitions_and_topics_that_come_later_are_read_from_their_beginning(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 2)
    reader = reader_of(broker, subscribePattern=f"{topic}.*", startingOffsets="latest")
    start = reader.initialOffset()
    client.alter_topic(topic, partitions=2)
    other = f"{topic}-later"
    client.create_topic(other)
    assert reader.latestOffset(start, ALL) == start  # nothing in them yet: no empty batch
    fill(client, topic, 3, 1)
    fill(client, other, 4)
    end = reader.latestOffset(start, ALL)
    assert end["offsets"] == {topic: {"0": 2, "1": 3}, other: {"0": 4}}
    assert spans(reader, start, end) == [(topic, 1, 0, 3), (other, 0, 0, 4)]
    again = reader_of(broker, subscribePattern=f"{topic}.*")  # after a restart, from the checkpoint
    assert spans(again, start, end) == [(topic, 1, 0, 3), (other, 0, 0, 4)]


def test_available_now_stops_at_what_was_there_when_it_began(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 10)
    reader = reader_of(broker, subscribe=topic, idleWaitMs=60_000, maxOffsetsPerTrigger=6)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(client, topic, 10)
    client.alter_topic(topic, partitions=2)
    fill(client, topic, 1, 1)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    second = reader.latestOffset(first, limit)
    assert [each["offsets"] for each in (first, second)] == [{topic: {"0": 6}}, {topic: {"0": 10}}]
    assert reader.latestOffset(second, limit) == second


def test_a_broker_that_is_away_is_waited_for_and_then_given_up(tmp_path, topic):
    with ServerProcess(tmp_path) as server:
        with hocket.connect(url_of(server)) as client:
            client.create_topic(topic)
            fill(client, topic, 2)
        reader = reader_of(server, subscribe=topic)
        start = reader.initialOffset()
        server.kill()
        with Running(reader.latestOffset, start, ALL) as waiting:
            waiting.parked()
            server.start()
            assert waiting.result()["offsets"] == {topic: {"0": 2}}
        given = {"pollTimeoutMs": 300, "fetchOffset.numRetries": 1}
        hasty = reader_of(server, subscribe=topic, **given)
        hasty.initialOffset()
        server.kill()
        with pytest.raises(NoConnection, match="gave no answer in 2 tries"):
            hasty.latestOffset(start, ALL)


def test_it_says_what_a_strange_checkpoint_is(broker, topic):
    with pytest.raises(hocket.errors.OutOfRange, match="checkpoint of another query"):
        reader_of(broker, subscribe=topic).latestOffset({"value": 3}, ALL)


# --- with Spark ----------------------------------------------------------------------------------


def test_available_now_reads_everything_once_over_restarts_and_growth(
    spark, broker, client, topic, tmp_path
):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 30, 0)
    fill(client, topic, 10, 1)
    frame = stream(spark, broker, topic, maxOffsetsPerTrigger=20, idleWaitMs=60_000)
    found = Batches()
    query = run_to_end(frame, tmp_path, found)
    assert found.sizes == [20, 20]
    assert found.rows == expected(topic, (0, 0, 30), (1, 0, 10))
    (source,) = query.lastProgress["sources"]
    assert "0" in str(source["endOffset"])
    client.alter_topic(topic, partitions=3)
    fill(client, topic, 5, 0)
    fill(client, topic, 5, 2)
    run_to_end(frame, tmp_path, found)
    assert found.rows == expected(topic, (0, 0, 35), (1, 0, 10), (2, 0, 5))
    assert found.sizes == [20, 20, 10]


def test_a_running_query_sees_records_as_they_come(spark, broker, client, topic, tmp_path):
    client.create_topic(topic)
    fill(client, topic, 3)
    found = Batches()
    frame = stream(spark, broker, topic, startingOffsets="latest")
    with running(frame, tmp_path, found, processingTime="0 seconds") as query:
        eventually(lambda: client.indexes(topic), query)  # it has begun
        client.publish(topic, b"live")
        eventually(lambda: found.rows == expected(topic, (0, 3, 4)), query)
        fill(client, topic, 10)
        eventually(lambda: found.rows == expected(topic, (0, 3, 14)), query)


@pytest.mark.filterwarnings("ignore")  # Spark calls this trigger deprecated
def test_trigger_once_takes_all_there_is_whatever_the_limit(spark, broker, client, topic, tmp_path):
    client.create_topic(topic)
    fill(client, topic, 25)
    found = Batches()
    frame = stream(spark, broker, topic, maxOffsetsPerTrigger=10, minOffsetsPerTrigger=5)
    run_to_end(frame, tmp_path, found, once=True)
    assert found.sizes == [25]
