"""Partitions that three nodes keep: what is acknowledged is on a majority, and outlives a node."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.frames import unpacked
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import leader_of


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def publish(nodes: Nodes, number: int, text: bytes, topic: str = "orders") -> frames.Frame:
    record = batches.encode([text], timestamps=5)
    return Asking(nodes, number).ask(frames.Publish, record, topic=topic, partition=0)


def contents(nodes: Nodes, number: int, topic: str = "orders") -> list[bytes]:
    """All records of the topic, as a consumer of this node gets them."""
    client = Asking(nodes, number)
    found: list[bytes] = []

    def take(frame: frames.Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.Deliver):
            for info in batches.whole_batches(payload):
                found.extend(batches.parse(payload, info.position).values())

    received = client.received
    client.received = lambda frame, payload: (received(frame, payload), take(frame, payload))
    opened = client.ask(frames.OpenSubscription, topic=topic, credit_bytes=1 << 20)
    assert isinstance(opened, frames.SubscriptionOpened), opened
    nodes.run(SECOND // 2)
    return found


def test_a_topic_of_three_replicas_is_served_by_one_and_kept_by_three(nodes):
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    leader = leader_of(nodes)
    published = publish(nodes, leader, b"one")
    assert isinstance(published, frames.Published)
    assert published.offset == 0
    assert contents(nodes, leader) == [b"one"]
    for number in range(3):
        if number != leader:
            refused = publish(nodes, number, b"two")
            assert isinstance(refused, frames.Failure)
            assert (refused.code, refused.node) == ("notHere", f"n{leader}")


def test_what_was_acknowledged_is_there_after_the_leader_has_crashed(nodes):
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    first = leader_of(nodes)
    for number in range(5):
        assert isinstance(publish(nodes, first, b"%d" % number), frames.Published)
    nodes.crash(first)
    second = leader_of(nodes)
    assert second != first
    assert contents(nodes, second) == [b"0", b"1", b"2", b"3", b"4"]
    published = publish(nodes, second, b"5")
    assert isinstance(published, frames.Published)
    assert published.offset == 5
    nodes.start(first)
    nodes.run(10 * SECOND)
    nodes.crash(second)
    third = leader_of(nodes)
    assert contents(nodes, third) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_find_leaders_names_who_serves(nodes):
    Asking(nodes, 1).create("orders", partitions=3, replication=3)
    nodes.settle()
    leaders = [leader_of(nodes, "orders", number) for number in range(3)]
    nodes.run(2 * SECOND)
    for number in range(3):
        answer = Asking(nodes, number).ask(frames.FindLeaders, topic="orders")
        assert isinstance(answer, frames.LeadersAre)
        named = [answer.nodes[at].node for at in unpacked(answer.leaders)]
        assert named == [f"n{leader}" for leader in leaders]
