"""All nodes are stopped at once, or killed, and started again: within seconds each of them serves.
If they were stopped in order the ring is whole as soon; who is killed again and again waits for its
place there, each time twice as long, and serves meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

import hocket
from hocket.errors import HocketError
from tests.support.brokers.served_cluster import GATEWAY, HOLDS_NOTHING, HOSTS
from tests.support.cluster.processes import (
    READY_SECONDS,
    Cluster,
    Process,
    cluster_in,
    wait_for,
    wait_until_three_keep_each,
)
from tests.support.threads import LONG

LIVES = 8
BACK_SECONDS = 20.0  # of a machine that does much else; it takes four to six seconds
STAGGER_SECONDS = 2.0  # between the starts of two nodes, at most
NAMES = (*HOSTS, GATEWAY)
TOPICS = {"copied": 3, "single": 1}  # replicas
PARTITIONS = 6


@pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_all_nodes_come_back_together(tmp_path: Path, number: signal.Signals):
    chance = Random(7)
    with cluster_in(tmp_path) as cluster:
        cluster.add(GATEWAY).options = HOLDS_NOTHING
        founder = cluster.found(HOSTS[0])
        cluster.join(NAMES[1:], [founder])
        cluster.wait_ideal(READY_SECONDS)
        wait_until_three_keep_each(cluster)
        with founder.client(timeout=READY_SECONDS) as client:
            for topic, replicas in TOPICS.items():
                client.create_topic(topic, partitions=PARTITIONS, replication=replicas)
        for life in range(LIVES):
            _end(cluster, number)
            _come_back(cluster, chance, life, whole=number == signal.SIGTERM and life % 3 < 2)


def _end(cluster: Cluster, number: signal.Signals) -> None:
    for node in cluster.up:
        assert node.process is not None
        node.hang_up()
        node.process.send_signal(number)
    for node in cluster.up:
        node.wait_end(READY_SECONDS)


def _come_back(cluster: Cluster, chance: Random, life: int, *, whole: bool) -> None:
    """In any order, together or one after the other; each is looked at from its start on.

    If the ring is not waited for, the next life may end while it is not whole yet.
    """
    began = monotonic()
    late: dict[str, str] = {}
    order = chance.sample(NAMES, len(NAMES))
    apart = STAGGER_SECONDS if life % 3 == 1 else 0.0
    steps = [_serves, _is_member_with_all] if whole else [_serves]
    looking = []
    for name in order:
        cluster[name].begin()
        seen = threading.Thread(
            target=_look, args=(cluster[name], steps, late), name=f"test: {name}"
        )
        seen.start()
        looking.append(seen)
        sleep(apart * chance.random())
    for each in looking:
        each.join()
    assert not late, f"life {life}, after {monotonic() - began:.1f} s: {late}\n{cluster.logs(40)}"


def _look(node: Process, steps: list[Callable[[Process], None]], late: dict[str, str]) -> None:
    try:
        node.wait_ready()
        for step in steps:
            step(node)
    except (AssertionError, HocketError) as error:
        late[node.name] = f"{type(error).__name__}: {error}"


def _serves(node: Process) -> None:
    with hocket.connect(node.url, timeout=BACK_SECONDS) as client:
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                client.publish(topic, b"x", partition=partition, timeout=BACK_SECONDS)
            with client.subscribe(topic, timeout=BACK_SECONDS) as messages:
                assert messages.receive(BACK_SECONDS).value == b"x"
            with client.subscribe(topic, index="i", mode="shared", timeout=BACK_SECONDS):
                pass


def _is_member_with_all(node: Process) -> None:
    """In the eyes of every node; and each knows where the others are."""
    with hocket.connect(node.url, timeout=BACK_SECONDS) as client:

        def is_whole() -> bool:
            alive = {each.name for each in client.nodes() if each.state == "alive" and each.address}
            ring = client.ring()
            on_ring = {each.name for each in ring.nodes}
            return ring.ideal and on_ring == alive == set(NAMES)

        wait_for(is_whole, BACK_SECONDS, lambda: (client.nodes(), client.ring()))
