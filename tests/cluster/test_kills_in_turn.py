"""`kill -9` of each node in turn, under load of every kind of client: nothing lost, doubled, moved.

One node by default; five rounds of all with HOCKET_STRESS=long (make test-cluster).
What the clients saw is written down by themselves and judged by `tests.support.cluster.history`.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

import hocket
from tests.support.brokers.served_cluster import GATEWAY, HOSTS, ServedCluster
from tests.support.cluster.clients import TOPICS, Clients, stored
from tests.support.cluster.history import check
from tests.support.threads import LONG

ROUNDS = 5 if LONG else 1
VICTIMS = (*HOSTS, GATEWAY) if LONG else HOSTS[:1]
GO_ON_SECONDS = 60.0  # in which every client goes on after a node is back
DOWN_SECONDS_MAX = 1.0  # beside what the start of a node takes


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")


@pytest.mark.timeout(1500 if LONG else 300)
def test_nothing_acknowledged_is_lost_or_doubled_or_out_of_order(tmp_path: Path):
    chance = random.Random("kills in turn")
    with ServedCluster(tmp_path / "nodes") as served:
        nodes = served.cluster
        with hocket.connect(served.address) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions=partitions, segment_bytes="1MiB")
                leaders = {each.leader for each in client.describe(topic).partitions}
                assert len(leaders) == len(HOSTS), f"{topic} is led by {leaders} alone"
        urls = [each.url for each in nodes.all.values()]
        with Clients(urls, tmp_path) as clients:
            for number in range(ROUNDS):
                for name in VICTIMS:
                    clients.wait_until_all_go_on(GO_ON_SECONDS)
                    nodes[name].kill()
                    time.sleep(chance.uniform(0, DOWN_SECONDS_MAX))  # how long it stays away
                    began = time.monotonic()
                    nodes.restart(name)
                    tell(f"round {number}: {name} is back after {time.monotonic() - began:.1f} s")
            clients.wait_until_all_go_on(GO_ON_SECONDS)
            events = clients.finish()
        with hocket.connect(served.address) as client:
            events += stored(client)
    for sentence, looked_at in check(events).items():
        tell(f"{sentence}: {looked_at}")
