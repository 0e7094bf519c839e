"""A query's index: its lag is where everybody can see it, and retention can be made to wait."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from hocket.errors import OutOfRange, UnknownTopic
from hocket.spark.lag import QueryIndex
from hocket.spark.lookout import Lookout
from hocket.spark.options import ReadOptions
from hocket.spark.stream_reader import HocketStreamReader
from tests.spark.conftest import url_of
from tests.support.cli import HOCKET, environment
from tests.support.spark import (
    SHORT_LIVED,
    Batches,
    eventually,
    fill,
    fill_segments,
    run_to_end,
    running,
    shortened,
    stream,
)

ALL = ReadAllAvailable()


def options_of(broker, **options: str) -> ReadOptions:
    given = {"servers": broker.address, "startingOffsets": "earliest", "idleWaitMs": "0", **options}
    return ReadOptions.parse(given, streaming=True)


def reader_of(broker, **options: str) -> HocketStreamReader:
    return HocketStreamReader(options_of(broker, **options))


def positions(client, topic: str, index: str) -> list[int]:
    (found,) = [each for each in client.indexes(topic) if each.name == index]
    return [each.position for each in found.partitions]


def at(start: dict, topic: str, **offsets: int) -> dict:
    """The same query, having come so far."""
    return {**start, "offsets": {topic: {name[1:]: n for name, n in offsets.items()}}}


# --- without Spark -------------------------------------------------------------------------------


def test_an_index_that_was_deleted_is_made_again(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 10)
    reader = reader_of(broker, subscribe=topic, index="mine", holdRetention="true")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    client.delete_index(topic, "mine")
    reader.latestOffset(at(start, topic, p0=4), ALL)
    assert positions(client, topic, "mine") == [4]


def test_a_topic_that_is_made_anew_has_the_index_again(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 10)
    reader = reader_of(broker, subscribe=topic, index="mine", failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.latestOffset(end, ALL)
    client.delete_topic(topic)
    reader.latestOffset(end, ALL)
    client.create_topic(topic)
    fill(client, topic, 3)
    reader.latestOffset(reader.latestOffset(end, ALL), ALL)
    assert positions(client, topic, "mine") == [3]


def test_the_index_of_a_consumer_is_left_alone(broker, client, topic, caplog):
    client.create_topic(topic)
    fill(client, topic, 10)
    with client.subscribe(topic, index="theirs") as consumer:
        consumer.receive(timeout=5).ack()
        reader = reader_of(broker, subscribe=topic, index="theirs")
        end = reader.latestOffset(reader.initialOffset(), ALL)
        reader.latestOffset(end, ALL)
        assert [consumer.receive(timeout=5).offset for _ in range(9)] == list(range(1, 10))
        assert "a consumer is reading with it now" in caplog.text
        held = reader_of(broker, subscribe=topic, index="theirs", holdRetention="true")
        with pytest.raises(OutOfRange, match="not this query's"):
            held.latestOffset(end, ALL)


def test_an_index_that_is_shared_is_left_alone(broker, client, topic, caplog):
    client.create_topic(topic)
    fill(client, topic, 10)
    client.subscribe(topic, index="workers", mode="shared").close()
    reader = reader_of(broker, subscribe=topic, index="workers")
    reader.latestOffset(reader.latestOffset(reader.initialOffset(), ALL), ALL)
    assert client.lag(topic, "workers") == 10
    assert "of mode shared" in caplog.text


def test_the_index_is_where_the_query_is(broker, client, topic):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 10, 0)
    fill(client, topic, 5, 1)
    reader = reader_of(broker, subscribe=topic)
    start = reader.initialOffset()
    assert client.indexes(topic) == []  # asking where to begin leaves no trace
    end = reader.latestOffset(start, ALL)
    assert positions(client, topic, start["index"]) == [0, 0]
    assert client.lag(topic, start["index"]) == 15
    reader.latestOffset(at(start, topic, p0=7, p1=5), ALL)
    assert positions(client, topic, start["index"]) == [7, 5]
    reader.commit(end)
    reader.latestOffset(end, ALL)
    assert client.lag(topic, start["index"]) == 0
    assert [each.hold_retention for each in client.indexes(topic)] == [False]
    assert not any(part.attached for each in client.indexes(topic) for part in each.partitions)


def test_a_query_that_begins_in_the_middle_has_no_lag_from_before(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 10)
    reader = reader_of(broker, subscribe=topic, startingOffsets="latest", index="mine")
    start = reader.initialOffset()
    assert start["index"] == "mine"
    reader.latestOffset(start, ALL)
    assert positions(client, topic, "mine") == [10]


def test_partitions_that_are_not_read_are_not_behind(broker, client, topic):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 10, 0)
    fill(client, topic, 10, 1)
    reader = reader_of(broker, assign=f'{{"{topic}": [1]}}', index="half")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    assert positions(client, topic, "half") == [10, 0]
    fill(client, topic, 5, 0)
    reader.latestOffset(at(start, topic, p1=10), ALL)
    assert client.lag(topic, "half") == 0


def test_an_index_that_cannot_be_moved_is_a_warning_unless_it_holds_retention(
    broker, topic, caplog
):
    options = options_of(broker, subscribe=topic)
    index = QueryIndex(options, Lookout(options))
    place = {topic: {0: 3}}  # of a topic that was deleted since its end was asked for
    index.move("mine", place, {topic: [3]})
    index.move("mine", place, {topic: [3]})
    (record,) = [each for each in caplog.records if each.name == "hocket.spark"]
    assert "the lag of index 'mine'" in record.getMessage()
    options = replace(options, hold_retention=True)
    with pytest.raises(UnknownTopic):
        QueryIndex(options, Lookout(options)).move("mine", place, {topic: [3]})


def test_a_partition_that_was_made_anew_has_all_of_it_before_it(broker, client, topic):
    client.create_topic(topic)
    fill(client, topic, 3)
    options = options_of(broker, subscribe=topic)
    QueryIndex(options, Lookout(options)).move("mine", {topic: {0: 50}}, {topic: [3]})
    assert positions(client, topic, "mine") == [0]


def test_retention_waits_for_a_query_that_asks_for_it(broker, client, topic):
    client.create_topic(topic, **SHORT_LIVED)
    free = f"{topic}-free"
    client.create_topic(free, **SHORT_LIVED)
    reader = reader_of(broker, subscribe=topic, holdRetention="true")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    (index,) = client.indexes(topic)
    assert (index.name, index.hold_retention, index.lag) == (start["index"], True, 0)
    fill_segments(client, topic, 60)  # while the query is stopped, say
    fill_segments(client, free, 60)
    shortened(client, free)  # once the other topic was cut, this one would have been
    assert client.describe(topic).partitions[0].start == 0
    again = reader_of(broker, subscribe=topic, holdRetention="true")
    assert again.latestOffset(start, ALL)["offsets"] == {topic: {"0": 60}}
    assert client.describe(topic).partitions[0].start == 0
    again.latestOffset(at(start, topic, p0=40), ALL)
    assert 0 < shortened(client, topic) <= 40
    assert positions(client, topic, start["index"]) == [40]


def test_partitions_that_come_later_are_held_too(broker, client, topic):
    client.create_topic(topic, **SHORT_LIVED)
    reader = reader_of(broker, subscribe=topic, holdRetention="true")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    client.alter_topic(topic, partitions=2)
    reader.latestOffset(start, ALL)
    free = f"{topic}-free"
    client.create_topic(free, **SHORT_LIVED)
    fill_segments(client, topic, 60, partition=1)
    fill_segments(client, free, 60)
    shortened(client, free)
    assert [each.start for each in client.describe(topic).partitions] == [0, 0]


# --- with Spark ----------------------------------------------------------------------------------


def lag_by_command(broker, topic: str) -> dict[str, int]:
    done = subprocess.run(
        [*HOCKET, "--server", url_of(broker), "index", "lag", topic, "--json"],
        capture_output=True, text=True, timeout=30, check=True, env=environment(),
    )  # fmt: skip
    return {row["index"]: row["lag"] for row in json.loads(done.stdout)}


def test_the_lag_of_queries_is_seen_by_command(spark, broker, client, topic, tmp_path):
    client.create_topic(topic)
    fill(client, topic, 20)
    run_to_end(stream(spark, broker, topic, index="done"), tmp_path / "done")
    assert lag_by_command(broker, topic) == {"done": 0}  # to the end, also of its last batch
    found = Batches()
    frame = stream(spark, broker, topic, groupIdPrefix="live")
    with running(frame, tmp_path / "live", found) as query:
        eventually(lambda: len(found.rows) == 20, query)
        eventually(lambda: sorted(each.lag for each in client.indexes(topic)) == [0, 0], query)
        client.publish(topic, b"one more")
        eventually(lambda: len(found.rows) == 21, query)
        eventually(lambda: sorted(each.lag for each in client.indexes(topic)) == [0, 1], query)
        by_name = lag_by_command(broker, topic)
        (own,) = by_name.keys() - {"done"}
        assert own.startswith("live-")
        assert by_name == {"done": 1, own: 0}
    fill(client, topic, 4)
    run_to_end(frame, tmp_path / "live", found)  # from its checkpoint: the same index
    assert lag_by_command(broker, topic) == {"done": 5, own: 0}
