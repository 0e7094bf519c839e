"""Three real nodes keep each decider of transactions: whoever is killed, others go on deciding.

One round by default; ten, under load, with HOCKET_STRESS=long (make test-cluster).
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

import hocket
from hocket.core.transactions.messages import decider_of
from hocket.model import DECIDERS_COUNT
from tests.support.cluster.clients import TOPICS, Clients, stored
from tests.support.cluster.history import check
from tests.support.cluster.processes import Cluster, cluster_in, wait_until_three_keep_each
from tests.support.threads import LONG

SECONDS = 60.0
PARTITIONS = 6
ROUNDS = 10
DOWN_SECONDS_MAX = 3.0
NAMES = ("a", "b", "c")
# For each decider an id that it decides on.
IDS = {decider_of(f"job-{each}", DECIDERS_COUNT): f"job-{each}" for each in range(100)}


class Transactions:
    """Commits a transaction by every decider, and knows what must stand in the partitions then."""

    def __init__(self, cluster: Cluster, topic: str, number: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._number = number
        self.expected: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}

    def commit(self, partitions: list[int], *, again: bool = False) -> float:
        """One in each of these partitions for each decider; how long the slowest one took."""
        slowest = 0.0
        self._number += 0 if again else 1
        with hocket.connect(self._cluster.up[0].url, timeout=SECONDS) as client:
            for name in IDS.values():
                began = time.monotonic()
                with client.transaction(name, number=self._number) as transaction:
                    for partition in partitions:
                        value = f"{name} {self._number}"
                        transaction.send(self._topic, value.encode(), partition=partition)
                        if not again:
                            self.expected[partition].append(value)
                    transaction.commit(SECONDS)
                slowest = max(slowest, time.monotonic() - began)
        return slowest

    def check(self) -> None:
        found: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}
        with hocket.connect(self._cluster.up[0].url, timeout=SECONDS) as client:
            for event in stored(client, [self._topic]):
                found[event.partition].append(event.value)  # type: ignore[union-attr]
        assert found == self.expected


def led_by_others(cluster: Cluster, topic: str, victim: str) -> list[int]:
    """The partitions of the topic that this node does not lead."""
    node = cluster[victim].node
    partitions = cluster[victim].client().describe(topic).partitions
    found = [each.partition for each in partitions if each.leader != node]
    assert 0 < len(found) < PARTITIONS, partitions
    return found


@pytest.mark.timeout(150)
def test_a_dead_node_holds_up_no_transaction_in_which_it_takes_no_part(tmp_path: Path):
    """Each node is killed in turn, the root too, and then all: every decider goes on each time."""
    with cluster_in(tmp_path) as cluster:
        cluster.found("a")
        cluster.join(["b"], [cluster["a"]])
        transactions = Transactions(cluster, "before", 0)
        cluster["a"].client().create_topic("before", partitions=PARTITIONS)
        transactions.commit([0, PARTITIONS - 1])  # by deciders of which one node has each
        cluster.join(["c"], [cluster["b"]])
        wait_until_three_keep_each(cluster)
        transactions.commit([0, PARTITIONS - 1], again=True)  # what was decided stays known
        transactions.check()

        transactions = Transactions(cluster, "spread", 10)
        cluster["b"].client().create_topic("spread", partitions=PARTITIONS)
        transactions.commit(list(range(PARTITIONS)))
        for name in NAMES:
            others = led_by_others(cluster, "spread", name)
            cluster[name].kill()
            slowest = transactions.commit(others)
            transactions.commit(others, again=True)
            sys.stdout.write(f"{name} is dead: the slowest commit took {slowest:.2f} s\n")
            cluster.restart(name)
            transactions.commit(list(range(PARTITIONS)))
        for each in cluster.up:
            each.kill()
        cluster.restart(*NAMES)
        transactions.commit(list(range(PARTITIONS)), again=True)
        transactions.commit(list(range(PARTITIONS)))
        transactions.check()


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.timeout(1500)
def test_transactions_are_whole_or_absent_whoever_is_killed(tmp_path: Path):
    chance = random.Random("deciders")
    kinds = ["transact", "transact", "transact", "transact", "plain", "own"]
    with cluster_in(tmp_path) as cluster:
        cluster.found("a")
        cluster.join(["b", "c"], [cluster["a"]])
        wait_until_three_keep_each(cluster)
        with hocket.connect(cluster["a"].url) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions=partitions, segment_bytes="1MiB")
        urls = [each.url for each in cluster.all.values()]
        with Clients(urls, tmp_path, kinds) as clients:
            for number in range(ROUNDS):
                for names in (["a"], ["b"], ["c"], chance.sample(NAMES, 2), list(NAMES)):
                    clients.wait_until_all_go_on(SECONDS)
                    time.sleep(chance.uniform(0, 0.3))
                    for name in names:
                        cluster[name].kill()
                    time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))
                    cluster.restart(*names)
                    sys.stdout.write(f"round {number}: {', '.join(names)} back\n")
            clients.wait_until_all_go_on(SECONDS)
            events = clients.finish()
        with hocket.connect(cluster["a"].url) as client:
            events += stored(client)
    for sentence, looked_at in check(events).items():
        sys.stdout.write(f"{sentence}: {looked_at}\n")
