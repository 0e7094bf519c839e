"""Source and sink over a topic whose partitions are on three nodes, real processes each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket.client.faces.blocking.client import Client
from hocket.spark import connections, reading
from hocket.spark.batch_reader import HocketBatchReader
from hocket.spark.options import ReadOptions
from tests.support.brokers.served_cluster import GATEWAY, HOSTS, ServedCluster
from tests.support.cluster.processes import Process
from tests.support.cluster.sockets import connections_of, has_counters
from tests.support.spark import Batches, eventually, expected, fill, load, running, stream
from tests.support.threads import LONG

PARTITIONS = 6
ROWS = 300  # in each partition
BACK_SECONDS = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def client(nodes: ServedCluster) -> Iterator[Client]:
    with hocket.connect(nodes.address) as found:
        yield found


@pytest.fixture
def wide(client: Client, topic: str) -> str:
    """A topic with rows in each of its partitions, which are on three nodes."""
    client.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        fill(client, topic, ROWS, partition)
    return topic


def leaders(nodes: ServedCluster, client: Client, topic: str) -> list[Process]:
    """The process that leads each partition."""
    ids = {each.node: nodes.cluster[each.name] for each in client.nodes()}
    found = [ids[each.leader] for each in client.describe(topic).partitions]
    assert {each.name for each in found} == set(HOSTS)
    return found


def all_of(topic: str, rows: int = ROWS) -> list[tuple[str, int, int]]:
    return expected(topic, *((partition, 0, rows) for partition in range(PARTITIONS)))


@pytest.mark.skipif(not has_counters(), reason="the kernel does not tell of its sockets")
def test_a_task_reads_from_the_node_of_its_partition_and_from_no_other(nodes, client, wide):
    leading = leaders(nodes, client, wide)
    client.close()  # whose connections would be counted
    options = ReadOptions.parse({"servers": nodes.address, "subscribe": wide}, streaming=False)
    planned = HocketBatchReader(options).partitions()
    assert [each.span.leader for each in planned] == [each.address for each in leading]
    ports = {name: int(nodes.cluster[name].address.split(":")[1]) for name in (*HOSTS, GATEWAY)}
    for each, leader in zip(planned, leading, strict=True):
        connections.close_all()
        batches = reading.read(each.span, options)
        rows = next(batches).num_rows
        connected = connections_of(os.getpid(), ports.values())
        assert {port for port, count in connected.items() if count} == {ports[leader.name]}
        assert rows + sum(batch.num_rows for batch in batches) == ROWS


def test_both_ways(spark, nodes, client, wide):
    frame = load(spark, nodes, wide)
    rows = [tuple(row) for row in frame.select("topic", "partition", "offset").collect()]
    assert sorted(rows) == all_of(wide)
    copy = f"{wide}-copy"
    client.create_topic(copy, partitions=PARTITIONS)
    leaders(nodes, client, copy)
    writer = frame.select("key", "value").write.format("hocket").mode("append")
    writer.option("servers", nodes.address).option("topic", copy).save()
    read = load(spark, nodes, copy).select("key", "value").collect()
    wanted = Counter((b"k%d" % number, b"%d" % number) for number in range(ROWS))
    assert Counter((bytes(row[0]), bytes(row[1])) for row in read) == Counter(
        {pair: count * PARTITIONS for pair, count in wanted.items()}
    )


@pytest.mark.timeout(400)
def test_a_node_that_is_killed_and_started_again_costs_no_query(
    spark, nodes, client, wide, tmp_path: Path
):
    """A query that reads, and one that writes by transactions; each node dies in turn.

    By default one of them; the others with HOCKET_STRESS=long (make test-spark-long).
    """
    copy = f"{wide}-copy"
    client.create_topic(copy, partitions=PARTITIONS)
    seen = Batches()
    source = stream(spark, nodes, wide, maxOffsetsPerTrigger=PARTITIONS * 50)
    writer = stream(spark, nodes, wide, maxOffsetsPerTrigger=PARTITIONS * 50).select("key", "value")
    sink = (
        writer.writeStream.format("hocket")
        .option("servers", nodes.address)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path / "sink"))
        .start()
    )
    total = ROWS
    try:
        with running(source, tmp_path / "source", seen) as query:
            for name in HOSTS if LONG else HOSTS[:1]:
                before = len(seen.rows)
                eventually(lambda before=before: len(seen.rows) > before, query)
                nodes.cluster[name].kill()
                nodes.cluster.restart(name)
                for partition in range(PARTITIONS):
                    fill(client, wide, 100, partition, first=total)
                total += 100
            eventually(lambda: seen.rows == all_of(wide, total), query)
            sink.processAllAvailable()
            assert sink.exception() is None
    finally:
        sink.stop()
    read = load(spark, nodes, copy).select("value").collect()
    assert Counter(int(row[0]) for row in read) == dict.fromkeys(range(total), PARTITIONS)
