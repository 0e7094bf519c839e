"""A leadership that a death has moved goes back to the partition's home, when that keeps up."""

from __future__ import annotations

from typing import Any

import pytest

from hocket import frames
from hocket.core.raft.messages import CampaignNow
from hocket.node.raft_mail import Letter
from hocket.node.replication import homecoming
from hocket.node.replication.replica import Replica
from hocket.wire import batch as batches
from tests.node.replication.test_failover import contents, leader_of, publish
from tests.support.node.cluster import SECOND, Asking, Nodes

PARTITIONS = 6


@pytest.fixture
def nodes() -> Nodes:
    found = Nodes()
    Asking(found, 0).create("orders", partitions=PARTITIONS, replication=3, disk_retention_us=None)
    return found


def leaders(nodes: Nodes) -> list[int]:
    return [leader_of(nodes, "orders", number) for number in range(PARTITIONS)]


def replica(nodes: Nodes, machine: int, topic: str) -> Replica[Any]:
    node = nodes.machines[machine].node
    assert node is not None
    found = node.replicas.get(node.node.topics[topic].groups[0])
    assert found is not None
    return found


def test_leaders_are_spread_again_after_each_node_has_died_once(nodes):
    homes = leaders(nodes)
    assert set(homes) == {0, 1, 2}
    for victim in (1, 2):
        nodes.crash(victim)
        assert victim not in leaders(nodes)
        nodes.start(victim)
        nodes.until(lambda: leaders(nodes) == homes, 60, "all partitions are led at home")


def test_nothing_goes_home_while_a_replica_is_missing(nodes):
    homes = leaders(nodes)
    home = next(each for each in homes if each != 0)
    number = homes.index(home)
    other = 3 - home  # the root is wanted for the return of a node
    nodes.crash(home)
    leaders(nodes)
    nodes.crash(other)
    nodes.start(home)
    nodes.run(30 * SECOND)
    assert leader_of(nodes, "orders", number) == 0
    nodes.start(other)
    nodes.until(lambda: leaders(nodes) == homes, 60, "all partitions are led at home")


def test_what_comes_while_the_leadership_is_handed_over_is_stored_once(nodes):
    Asking(nodes, 0).create("one", replication=3)
    home = leader_of(nodes, "one")
    nodes.crash(home)
    leader = leader_of(nodes, "one")
    nodes.start(home)
    nodes.run(3 * SECOND)
    client = Asking(nodes, leader)
    asked = []
    for number in range(200):
        record = batches.encode([b"%d" % number], timestamps=5)
        asked.append(client.begin(frames.Publish, record, topic="one", partition=0))
        if number == 100:
            replica(nodes, leader, "one").hand_over(f"n{home}")
        nodes.run(1_000)
    nodes.until(lambda: leader_of(nodes, "one") == home, 5, "the home leads")
    answers = [client.answer_to(each) for each in asked]
    told = [n for n, each in enumerate(answers) if isinstance(each, frames.Published)]
    refused = [each for each in answers if isinstance(each, frames.Failure)]
    assert {(each.code, each.node) for each in refused} == {("notHere", f"n{home}")}
    kept = contents(nodes, home, "one")
    assert len(set(kept)) == len(kept)
    assert {b"%d" % number for number in told} <= set(kept)
    assert isinstance(publish(nodes, home, b"next", "one"), frames.Published)


def test_a_home_that_does_not_take_over_costs_a_pause_and_is_asked_later(nodes, monkeypatch):
    home = leader_of(nodes)
    nodes.crash(home)
    leader = leader_of(nodes)
    nodes.start(home)
    hear = Replica.heard
    asked: list[int] = []

    def heard(self: Replica[Any], sender: str, letter: Letter) -> None:
        if isinstance(letter.message, CampaignNow):
            asked.append(self.group)
        else:
            hear(self, sender, letter)

    monkeypatch.setattr(Replica, "heard", heard)
    nodes.until(lambda: bool(asked), 30, "the home was asked")
    group = asked[0]
    number = nodes.machines[leader].node.node.topics["orders"].groups.index(group)
    away = leader_of(nodes, "orders", number)
    record = batches.encode([b"x"], timestamps=5)
    answer = Asking(nodes, away).ask(frames.Publish, record, topic="orders", partition=number)
    assert isinstance(answer, frames.Published), "when the time for the home was over"
    nodes.run(homecoming.AGAIN_US_MIN - 5 * SECOND)
    assert asked.count(group) == 1
    nodes.run(15 * SECOND)
    assert asked.count(group) == 2
    assert leader_of(nodes, "orders", number) == away
