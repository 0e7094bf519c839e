"""A query, and a write, belong to one cluster: what another one answers is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

import hocket
from hocket.errors import AnotherCluster
from hocket.spark import sink
from hocket.spark.connections import close_all
from hocket.spark.offsets import cluster_in
from hocket.spark.options import ReadOptions, WriteOptions
from hocket.spark.stream_reader import HocketStreamReader
from tests.support.processes.server import ServerProcess

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def other(tmp_path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "other") as server:
        yield server
        close_all()


@pytest.fixture
def twice(broker, other, client, topic) -> str:
    """A topic that both clusters have, each with ten records of its own."""
    with hocket.connect(other.address) as elsewhere:
        for each in (client, elsewhere):
            each.create_topic(topic)
            with each.producer(topic) as producer:
                producer.send_many([each.cluster.encode()] * 10)
    return topic


def reader(server: Any, topic: str) -> HocketStreamReader:
    given = {"servers": server.address, "subscribe": topic, "startingOffsets": "earliest"}
    return HocketStreamReader(ReadOptions.parse(given, streaming=True))


def writer(server: Any, topic: str, **given: str) -> sink.BatchSink:
    options = WriteOptions.parse(
        {"servers": server.address, "topic": topic, **given}, streaming=False
    )
    return sink.batch_sink(SCHEMA, options, overwrite=False)


def rows() -> Iterator[Any]:
    return iter([pa.record_batch({"value": pa.array([b"new"], pa.binary())})])


def test_a_query_is_not_continued_with_offsets_of_another_cluster(broker, other, client, twice):
    first = reader(broker, twice)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert cluster_in(start) == cluster_in(end) == client.cluster
    for given in (start, end):
        with pytest.raises(AnotherCluster, match="another checkpointLocation"):
            reader(other, twice).latestOffset(given, ReadAllAvailable())
    with pytest.raises(AnotherCluster):
        reader(other, twice).partitions(start, end)


def test_a_checkpoint_from_before_goes_on(broker, client, twice):
    query = reader(broker, twice)
    start = {"index": "spark-hocket-1", "offsets": {twice: {"0": 3}}}
    end = query.latestOffset(start, ReadAllAvailable())
    assert (cluster_in(end), end["offsets"]) == (client.cluster, {twice: {"0": 10}})


def test_a_task_reads_nothing_of_another_cluster_than_its_driver(broker, other, client, twice):
    query = reader(broker, twice)
    start = query.initialOffset()
    (planned,) = query.partitions(start, query.latestOffset(start, ReadAllAvailable()))
    (batch,) = query.read(planned)
    assert batch.column("value").to_pylist() == [client.cluster.encode()] * 10
    planned.span = replace(planned.span, leader="")
    with pytest.raises(AnotherCluster):
        list(reader(other, twice).read(planned))


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_batch_is_committed_in_one_cluster_or_not_at_all(broker, other, twice, delivery):
    here, there = (writer(each, twice, delivery=delivery) for each in (broker, other))
    there.transaction = here.transaction
    staged = [here.write(rows()), there.write(rows())]
    with pytest.raises(AnotherCluster, match="different clusters"):
        here.commit(staged)
    if delivery == "exactly-once":
        with pytest.raises(AnotherCluster):
            there.commit(staged[:1])
        with hocket.connect(other.address) as elsewhere:
            assert elsewhere.find_offsets(twice, "latest") == [10]
