"""Partitions of a topic are on three nodes, and a client talks to each of them by itself."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket import Client
from hocket.errors import HocketError
from tests.support.brokers.served_cluster import GATEWAY, HOSTS, ServedCluster
from tests.support.brokers.worlds import client_threads
from tests.support.cluster.processes import Process, cluster_in
from tests.support.cluster.sockets import bytes_between, connections_of, has_counters
from tests.support.threads import LONG, until

SECONDS = 30.0
PARTITIONS = 6
PROXIED_MAX = 0.02  # of the data, that nodes may say to each other meanwhile: their own talk
FIRST_SECONDS_MAX = 1.0  # of the first message at a foreign partition; milliseconds when idle
BALANCE_MAX = 1.3  # partitions of the busiest node, of the mean

pytestmark = pytest.mark.timeout(240)
needs_counters = pytest.mark.skipif(
    not has_counters(), reason="the kernel does not tell of its sockets"
)


def tell(text: str) -> None:
    """What was measured; it is seen with `-s`, and if the test fails."""
    sys.stdout.write(text + "\n")


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Of clients. Nodes that tests share are started again, with other pipes to them."""
    yield
    until(lambda: not client_threads(), timeout=5, what="the threads of clients are gone")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("spread")) as cluster:
        yield cluster


@pytest.fixture
def client(served: ServedCluster) -> Iterator[Client]:
    with hocket.connect(served.address) as client:
        yield client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    client.create_topic(name, partitions=PARTITIONS)
    yield name
    client.delete_topic(name, timeout=SECONDS)


def leaders(client: Client, topic: str) -> list[str]:
    """Of each partition; "" if its node has not told within a second that it leads it."""
    return [each.leader for each in client.describe(topic, timeout=SECONDS).partitions]


def all_leaders(client: Client, topic: str) -> list[str]:
    """When each node that leads has told, which takes a node a while that has just come back."""
    found: list[str] = []

    def are_known() -> bool:
        found[:] = leaders(client, topic)
        return all(found)

    until(are_known, SECONDS, "who leads what is known")
    return found


def process_of(served: ServedCluster, client: Client, node: str) -> Process:
    """By its id, which `describe` tells."""
    return served.cluster[next(each.name for each in client.nodes() if each.node == node)]


def port_of(process: Process) -> int:
    return int(process.address.rpartition(":")[2])


def ports(served: ServedCluster, names: tuple[str, ...]) -> list[int]:
    return [port_of(served.cluster[name]) for name in names]


def test_partitions_are_on_all_nodes_but_the_gateway(served: ServedCluster, client: Client, topic):
    led = Counter(process_of(served, client, each).name for each in all_leaders(client, topic))
    assert led == dict.fromkeys(HOSTS, PARTITIONS // len(HOSTS))
    for name in (*HOSTS, GATEWAY):  # any node tells
        with hocket.connect(served.cluster[name].url) as other:
            assert all_leaders(other, topic) == all_leaders(client, topic)


@needs_counters
def test_a_client_has_a_connection_to_each_leader_and_nodes_carry_nothing(served, topic):
    values = [os.urandom(1000) for _ in range(10_000)]
    size = sum(map(len, values))
    pids = [each.process.pid for each in served.cluster.all.values() if each.process]
    others = connections_of(os.getpid(), ports(served, (*HOSTS, GATEWAY)))
    with (
        hocket.connect(served.address) as client,
        client.producer(topic) as producer,
        client.subscribe(topic, index="i") as messages,
    ):
        producer.send_many(values[:100])
        producer.flush(SECONDS)
        before = bytes_between(pids)
        began = time.monotonic()
        producer.send_many(values)
        producer.flush(SECONDS)
        got = [messages.receive(SECONDS) for _ in range(len(values) + 100)]
        took = time.monotonic() - began
        between = bytes_between(pids) - before
        open_now = connections_of(os.getpid(), ports(served, (*HOSTS, GATEWAY)))
    mine = [count - others[port] for port, count in open_now.items()]
    assert {each.value for each in got} == set(values)
    assert {each.partition for each in got} == set(range(PARTITIONS))
    tell(
        f"{2 * size} bytes to and from the client in {took:.1f} s; between nodes {between} bytes; "
        f"connections {mine} to {(*HOSTS, GATEWAY)}"
    )
    assert mine == [1] * len(mine)
    assert between < PROXIED_MAX * size


def test_the_first_message_at_a_foreign_partition_takes_milliseconds(served, topic):
    """By the gateway: ask who leads, connect to it, and have the message stored."""
    took = []
    for partition in range(PARTITIONS):
        with hocket.connect(served.address) as client:
            client.ping()
            began = time.monotonic()
            client.publish(topic, b"x", partition=partition)
            took.append(time.monotonic() - began)
    shown = ", ".join(f"{each * 1e3:.1f}" for each in took)
    tell(f"first message at a foreign partition: {shown} ms")
    assert max(took) < FIRST_SECONDS_MAX


def test_partitions_that_came_while_a_node_was_away_are_read_from_their_beginning(
    served, client, topic
):
    """The reader's only handle is at a node that is down when the topic grows."""
    root = served.cluster[HOSTS[0]]  # without which no topic grows
    for number in range(20):
        other = f"{topic}-{number}"
        client.create_topic(other)
        node = process_of(served, client, all_leaders(client, other)[0])
        if node is not root:
            break
    assert node is not root
    with client.subscribe(other, start="latest") as messages:
        node.kill()
        with hocket.connect(served.address) as meanwhile:
            meanwhile.alter_topic(other, partitions=4, timeout=SECONDS)
            new = [at for at, leader in enumerate(leaders(meanwhile, other)) if at and leader]
            meanwhile.publish(other, b"new", partition=new[0], timeout=SECONDS)
        served.cluster.restart(node.name)
        assert messages.receive(SECONDS).value == b"new"


def test_a_partition_whose_node_is_gone_says_so_in_time_and_the_others_go_on(served, client, topic):
    first = all_leaders(client, topic)
    down = process_of(served, client, first[-1])
    lost = {number for number, node in enumerate(first) if node == first[-1]}
    for partition in range(PARTITIONS):
        client.publish(topic, b"before", partition=partition)
    down.kill()
    try:
        began = time.monotonic()
        described = client.describe(topic, timeout=SECONDS)
        assert {each.partition for each in described.partitions if each.problem} == lost
        assert all(each.end == 1 for each in described.partitions if not each.problem)
        tell(f"described in {time.monotonic() - began:.2f} s with a node down")
        for partition in range(PARTITIONS):
            if partition in lost:
                began = time.monotonic()
                with pytest.raises(HocketError) as caught:
                    client.publish(topic, b"in vain", partition=partition, timeout=1)
                assert time.monotonic() - began < 5
                assert down.address in str(caught.value)
            else:
                client.publish(topic, b"after", partition=partition, timeout=SECONDS)
    finally:
        served.cluster.restart(down.name)
    for partition in lost:
        client.publish(topic, b"back", partition=partition, timeout=SECONDS)
    until(lambda: not any(each.problem for each in client.describe(topic).partitions))


@pytest.mark.skipif(not LONG, reason="ten processes: make test-cluster")
@pytest.mark.timeout(600)
def test_a_client_of_a_hundred_partitions_on_ten_nodes_has_ten_connections(tmp_path: Path):
    names = [f"node-{number}" for number in range(10)]
    with cluster_in(tmp_path) as cluster:
        first = cluster.found(names[0])
        for number in range(1, len(names), 3):
            cluster.join(names[number : number + 3], [first])
        with hocket.connect(first.url) as client:
            wide = [f"wide-{number}" for number in range(3)]
            for each in wide:
                client.create_topic(each, partitions=100, timeout=SECONDS)

            led = Counter(node for each in wide for node in all_leaders(client, each))
            tell(f"300 partitions on 10 nodes: {sorted(led.values())}")
            assert len(led) == len(names)
            assert max(led.values()) <= BALANCE_MAX * 300 / len(names)
            with client.producer(wide[0]) as producer, client.subscribe(wide[0]) as messages:
                for partition in range(100):
                    producer.send(b"%d" % partition, partition=partition)
                producer.flush(SECONDS)
                got = {messages.receive(SECONDS).value for _ in range(100)}
                assert got == {b"%d" % partition for partition in range(100)}
                open_now = connections_of(os.getpid(), [port_of(each) for each in cluster.up])
            tell(f"connections: {list(open_now.values())}")
            assert sum(open_now.values()) <= len(names)
