"""A topic goes into a lake, and lake and topic are read as one: no gap, no overlap at the seam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json

from hocket import Client
from hocket.spark.lake import Lake
from tests.support.processes.server import ServerProcess
from tests.support.spark import (
    SHORT_LIVED,
    Batches,
    expected,
    failure_of,
    fill,
    fill_segments,
    load,
    run_to_end,
    shortened,
    stream,
)
from tests.support.threads import until


def archive(frame: DataFrame, lake: Path, checkpoint: Path) -> None:
    """Everything that is there now goes into the lake."""
    query = (
        frame.writeStream.format("hocket")
        .option("archive", str(lake))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def rows(frame: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def test_lake_and_topic_are_one_though_retention_has_removed_the_beginning(
    spark: SparkSession, broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    """Nothing leaves the topic before it is in the lake, and then it is read there."""
    client.create_topic(topic, **SHORT_LIVED)
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    held = {"index": "archive", "holdRetention": "true"}
    archive(stream(spark, broker, topic, **held), lake, checkpoint)  # the index holds from now on
    fill_segments(client, topic, 30)
    assert client.describe(topic).partitions[0].start == 0, "held for the lake"
    archive(stream(spark, broker, topic, **held), lake, checkpoint)
    begin = until(lambda: client.describe(topic).partitions[0].start)
    assert begin > 0
    fill_segments(client, topic, 3)

    both = load(spark, broker, topic, archive=str(lake))
    assert rows(both) == expected(topic, (0, 0, 33))
    values = [bytes(row[0][:3]) for row in both.orderBy("offset").select("value").collect()]
    assert values == [b"%03d" % each for each in [*range(30), *range(3)]]
    assert both.columns == load(spark, broker, topic).columns
    some = load(
        spark, broker, topic, archive=str(lake),
        startingOffsets=f'{{"{topic}": {{"0": 5}}}}', endingOffsets=f'{{"{topic}": {{"0": 32}}}}',
    )  # fmt: skip
    assert rows(some) == expected(topic, (0, 5, 32))


def test_a_stream_begins_in_the_lake_and_goes_on_in_the_topic(
    spark: SparkSession, broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    fill(client, topic, 100)
    fill(client, topic, 50, partition=1)
    lake = tmp_path / "lake"
    archive(stream(spark, broker, topic), lake, tmp_path / "archive")
    fill(client, topic, 30, first=100)
    batches = Batches()
    both = stream(spark, broker, topic, archive=str(lake), maxOffsetsPerTrigger=40)
    run_to_end(both, tmp_path / "checkpoint", batches)
    assert batches.rows == expected(topic, (0, 0, 130), (1, 0, 50))
    fill(client, topic, 20, partition=1, first=50)
    archive(stream(spark, broker, topic), lake, tmp_path / "archive")  # the seam moves on
    run_to_end(both, tmp_path / "checkpoint", batches)
    assert batches.rows == expected(topic, (0, 0, 130), (1, 0, 70))


def test_without_servers_the_lake_is_all(
    spark: SparkSession, broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    lake = tmp_path / "lake"
    with client.producer(topic) as producer:
        for each in range(20):
            headers = {"n": b"%d" % each} if each % 2 else None
            producer.send(b"%d" % each, key=b"k", headers=headers)
    piped = stream(spark, broker, topic, includeHeaders="true").withColumn(
        "headers", to_json("headers")
    )
    archive(piped, lake, tmp_path / "archive")
    alone = spark.read.format("hocket").options(archive=str(lake), subscribe=topic)
    found = alone.option("includeHeaders", "true").load()
    there = load(spark, broker, topic, includeHeaders="true")
    by_offset = ["partition", "offset"]
    assert found.orderBy(*by_offset).collect() == there.orderBy(*by_offset).collect()
    nowhere = spark.read.format("hocket").options(archive=str(lake), subscribe="nowhere")
    assert f"has no topic 'nowhere'; it has: {topic}" in failure_of(nowhere.load().count)


def test_records_that_are_in_neither_are_missed_by_their_offsets(
    spark: SparkSession, broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, **SHORT_LIVED)
    fill_segments(client, topic, 2)
    lake = tmp_path / "lake"
    archive(stream(spark, broker, topic), lake, tmp_path / "archive")
    fill_segments(client, topic, 30)  # nothing holds retention
    begin = shortened(client, topic)
    if begin <= 2:
        begin = until(lambda: max(client.describe(topic).partitions[0].start, 2) - 2) + 2
    words = failure_of(load(spark, broker, topic, archive=str(lake)).count)
    assert f"offsets 2 to {begin - 1}" in words or "retention has removed" in words, words
    words = failure_of(
        lambda: archive(
            stream(spark, broker, topic, failOnDataLoss="false"), lake, tmp_path / "anew"
        )
    )
    assert "in the lake" in words or "up to offset 2" in words, words
    assert Lake(lake).state().partitions == {topic: {0: (0, 2)}}


def test_a_batch_is_written_into_a_lake_too_and_filters_are_refused(
    spark: SparkSession, broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    fill(client, topic, 100)
    lake = tmp_path / "lake"

    def write(frame: DataFrame) -> None:
        frame.write.format("hocket").option("archive", str(lake)).mode("append").save()

    write(load(spark, broker, topic))
    write(load(spark, broker, topic))  # again: it is there already
    assert spark.read.parquet(str(lake)).count() == 100
    words = failure_of(lambda: write(load(spark, broker, topic).where("offset % 2 = 0")))
    assert "missing, doubled or not in order" in words
    words = failure_of(lambda: write(load(spark, broker, topic).select("value")))
    assert "a lake needs the columns" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"archive": "lake"}, "archive must be an absolute path"),
        ({"archive": "/tmp/no/lake/here"}, "there is no lake in"),
    ],
)
def test_bad_archives_are_refused(spark: SparkSession, options: dict[str, str], words: str) -> None:
    frame = spark.read.format("hocket").options(subscribe="orders", **options)
    assert words in failure_of(lambda: frame.load().count())
