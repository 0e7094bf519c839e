"""Three copies of every partition, on real processes: leaders, followers and all of them die.

By default some faults of each kind; with HOCKET_STRESS=long (make test-cluster) a hundred. What the
clients saw is judged by `tests.support.cluster.history`; then the files of the copies are compared.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

import hocket
from tests.support.brokers.served_cluster import HOSTS, ServedCluster
from tests.support.cluster.clients import TOPICS, Clients, stored
from tests.support.cluster.history import check
from tests.support.cluster.processes import Cluster, wait_for
from tests.support.cluster.stores import entries_of
from tests.support.threads import LONG

KINDS = ("keyed", "unkeyed", "many", "publish", "plain", "own")  # what replicated topics take
IDLE = ("transactions_are_whole", "settled_is_not_delivered_again", "a_key_is_delivered_in_order")
KINDS_OF_FAULTS = ("leader", "stopped", "all", "follower", "leader")
FAULTS = 100 if LONG else 3
GO_ON_SECONDS = 60.0
PAUSED_SECONDS = 5.0  # beyond the longest election timeout


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")


def leaders(client: hocket.Client, topic: str) -> list[str]:
    return [each.leader for each in client.describe(topic).partitions]


def wait_led(client: hocket.Client, seconds: float = 30.0) -> None:
    wait_for(
        lambda: all(all(leaders(client, topic)) for topic in TOPICS),
        seconds,
        lambda: {topic: leaders(client, topic) for topic in TOPICS},
    )


def leading(nodes: Cluster, client: hocket.Client) -> str:
    """The name of a node that leads the first partition."""
    wait_led(client)
    led = leaders(client, "load")[0]
    return next(name for name in HOSTS if nodes[name].node == led)


@pytest.mark.timeout(3000 if LONG else 300)
def test_nothing_acknowledged_is_lost_whoever_dies(tmp_path: Path):
    chance = random.Random("replication")
    with ServedCluster(tmp_path / "nodes") as served:
        nodes = served.cluster
        with hocket.connect(served.address, timeout=30) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(
                    topic, partitions=partitions, replication=3, segment_bytes="1MiB"
                )
            groups = range(1, 1 + TOPICS["load"])  # the clients have nothing to do with the other
            wait_led(client)
            urls = [each.url for each in nodes.all.values()]
            with Clients(urls, tmp_path, KINDS) as clients:
                for number in range(FAULTS):
                    clients.wait_until_all_go_on(GO_ON_SECONDS)
                    kind = KINDS_OF_FAULTS[number % len(KINDS_OF_FAULTS)]
                    began = time.monotonic()
                    _fault(kind, nodes, client, chance)
                    clients.wait_until_all_go_on(GO_ON_SECONDS)
                    tell(f"{number}: {kind}: all go on after {time.monotonic() - began:.1f} s")
                events = clients.finish()
            wait_led(client)
            events += stored(client)
            wait_for(lambda: _are_even(client), 30, lambda: [*map(client.describe, TOPICS)])
        directories = {name: nodes[name].data for name in HOSTS}
    for sentence, looked_at in check(events, IDLE).items():
        tell(f"{sentence}: {looked_at}")
    _compare(directories, groups)


def _fault(kind: str, nodes: Cluster, client: hocket.Client, chance: random.Random) -> None:
    led_by = leading(nodes, client)
    others = [name for name in HOSTS if name != led_by]
    if kind == "stopped":
        nodes[led_by].stop()
        time.sleep(PAUSED_SECONDS)
        nodes[led_by].go_on()
        return
    victims = {"leader": [led_by], "follower": [chance.choice(others)], "all": list(HOSTS)}[kind]
    for name in victims:
        nodes[name].kill()
    time.sleep(chance.uniform(0, 1))
    nodes.restart(*victims)


def _are_even(client: hocket.Client) -> bool:
    return all(
        {state.lag for state in each.replica_states} == {0}
        for topic in TOPICS
        for each in client.describe(topic).partitions
    )


def _compare(directories: dict[str, Path], groups: range) -> None:
    """The copies of a log are the same bytes, as they stand in the files of three nodes."""
    copies = {name: entries_of(path, groups) for name, path in directories.items()}
    for group in groups:
        logs = [copies[name][group] for name in HOSTS]
        common = set.intersection(*(set(each) for each in logs))
        assert common, f"group {group} has no entry that all nodes have"
        for index in common:
            assert len({each[index] for each in logs}) == 1, f"entry {index} of group {group}"
        tell(f"group {group}: {len(common)} entries are the same on all nodes")
