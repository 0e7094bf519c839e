"""A leader whose disk is full has another node lead; one whose disk fails leads nothing more."""

from __future__ import annotations

import errno

import pytest

from hocket import frames
from hocket.model import TopicConfig
from hocket.node.replication.full_disk import ROUND_US
from tests.node.replication.test_failover import contents, leader_of, publish
from tests.support.node.cluster import SECOND, Asking, Nodes


@pytest.fixture
def nodes() -> Nodes:
    found = Nodes()
    found.until(lambda: len(voters(found)) == 3, 10, "all three vote on topics")
    found.settle_deciders()
    return found


def voters(nodes: Nodes) -> tuple[str, ...]:
    node = nodes.machines[0].node
    assert node is not None
    replica = node.node.group0.replica
    assert replica is not None
    found = replica.raft.group.configuration
    return () if found.is_joint else found.voters


def create(nodes: Nodes) -> int:
    """A topic with three replicas, and who leads it."""
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    leader = leader_of(nodes)
    assert isinstance(publish(nodes, leader, b"first"), frames.Published)
    return leader


def fill(nodes: Nodes, *numbers: int) -> None:
    for number in numbers:
        disk = nodes.machines[number].disk
        disk.capacity_bytes = sum(disk.files().values())
    nodes.run(2 * SECOND)  # how much is free is looked at now and then


def fail(nodes: Nodes, number: int) -> None:
    """From now on nothing becomes durable at this node."""

    def refuse(operation: str, _path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the simulated disk is broken")

    nodes.machines[number].disk.before = refuse


def root(nodes: Nodes) -> int | None:
    found = [
        number
        for number, machine in enumerate(nodes.machines)
        if machine.node is not None and machine.node.node.group0.leads
    ]
    return found[0] if len(found) == 1 else None


def test_a_leader_whose_disk_is_full_hands_its_leadership_over(nodes):
    leader = create(nodes)
    fill(nodes, leader)
    refused = publish(nodes, leader, b"refused")
    assert isinstance(refused, frames.Failure)
    assert refused.code == "storageFull"
    nodes.run(SECOND)
    other = leader_of(nodes)
    assert other != leader
    assert isinstance(publish(nodes, other, b"second"), frames.Published)
    assert contents(nodes, other) == [b"first", b"second"]


def test_the_leadership_comes_to_whoever_has_room(nodes):
    leader = create(nodes)
    last = max(number for number in range(3) if number != leader)
    fill(nodes, *(number for number in range(3) if number != last))

    def is_led_by_the_last() -> bool:
        publish(nodes, leader, b"refused")
        return leader_of(nodes) == last

    nodes.until(is_led_by_the_last, 60, "the only node with room leads")
    assert isinstance(publish(nodes, last, b"second"), frames.Published)


def test_while_all_disks_are_full_one_leads_and_refuses(nodes):
    leader = create(nodes)
    fill(nodes, 0, 1, 2)
    for _ in range(10):
        refused = publish(nodes, leader, b"refused")
        assert isinstance(refused, frames.Failure)
        assert refused.code == "storageFull"
        nodes.run(SECOND)
    assert leader_of(nodes) == leader
    for number in range(3):
        nodes.machines[number].disk.behave()
    nodes.run(10 * SECOND)
    assert isinstance(publish(nodes, leader_of(nodes), b"second"), frames.Published)


def test_a_full_home_is_not_handed_its_partitions_until_it_has_room(nodes):
    leader = create(nodes)
    fill(nodes, leader)
    publish(nodes, leader, b"refused")
    nodes.run(SECOND)
    other = leader_of(nodes)
    nodes.run(ROUND_US)
    assert leader_of(nodes) == other
    nodes.machines[leader].disk.behave()
    nodes.until(lambda: leader_of(nodes) == leader, 120, "the home leads again")


def test_a_root_whose_disk_is_full_hands_over_too(nodes):
    create(nodes)
    was = root(nodes)
    assert was is not None
    fill(nodes, was)
    refused = Asking(nodes, was).refused(frames.CreateTopic, topic="more", config=TopicConfig())
    assert refused.code == "storageFull"
    nodes.until(lambda: root(nodes) not in (was, None), 10, "another node is the root")
    other = root(nodes)
    assert other is not None
    Asking(nodes, other).done(frames.CreateTopic, topic="more", config=TopicConfig())


def test_a_node_whose_disk_fails_is_neither_leader_nor_root_any_more(nodes):
    create(nodes)
    was = root(nodes)
    assert was is not None
    fail(nodes, was)
    asking = Asking(nodes, was)
    asking.begin(frames.CreateTopic, topic="more", config=TopicConfig())
    nodes.until(lambda: root(nodes) not in (was, None), 20, "another node is the root")
    machine = nodes.machines[was].node
    assert machine is not None
    assert all(each.stopped for each in machine.replicas)
    assert machine.node.group0.leader == ""
    other = root(nodes)
    assert other is not None
    Asking(nodes, other).done(frames.CreateTopic, topic="another", config=TopicConfig())
