"""A copy that is damaged does not lead, and hands no damage out: others have the records."""

from __future__ import annotations

import pytest

from hocket import frames
from tests.node.replication.test_failover import contents, leader_of, publish
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import Sharing

RECORDS = [b"%d" % number * 200 for number in range(30)]


@pytest.fixture
def nodes() -> Nodes:
    nodes = Nodes()
    Asking(nodes, 0).create(
        "orders", replication=3, disk_retention_us=None, memory_retention_us=1,
        segment_bytes_max=2048,
    )  # fmt: skip
    return nodes


def damage_a_segment(nodes: Nodes, number: int) -> None:
    """The oldest file of the only topic is unreadable from now on."""
    disk = nodes.machines[number].disk
    name = min(each for each in disk.files() if each.startswith("groups/1/") and ".log" in each)
    for position in range(100, 300):
        disk.flip(name, position)


def filled(nodes: Nodes) -> int:
    leader = leader_of(nodes)
    for record in RECORDS:
        assert isinstance(publish(nodes, leader, record), frames.Published)
    nodes.run(10 * SECOND)  # all of it is in segments, and memory has let it go
    return leader


def test_a_leader_that_cannot_read_its_records_leads_no_more(nodes):
    first = filled(nodes)
    damage_a_segment(nodes, first)
    reader = Asking(nodes, first)
    reader.begin(frames.OpenSubscription, topic="orders", credit_bytes=1 << 20)
    nodes.run(SECOND)
    (ended,) = [each for each in reader.told if isinstance(each, frames.HandleEnded)]
    assert ended.code == "notHere"
    second = leader_of(nodes)
    assert second != first
    assert contents(nodes, second) == RECORDS
    # It stores and votes as before, and does not lead.
    nodes.crash(second)
    third = leader_of(nodes)
    assert third not in (first, second)
    assert isinstance(publish(nodes, third, b"more"), frames.Published)
    assert contents(nodes, third) == [*RECORDS, b"more"]


def test_a_leader_that_cannot_send_its_records_leads_no_more(nodes):
    first = leader_of(nodes)
    late = next(number for number in (1, 2) if number != first)
    nodes.crash(late)
    filled(nodes)
    damage_a_segment(nodes, first)
    nodes.start(late)
    nodes.run(10 * SECOND)
    second = leader_of(nodes)
    assert second != first
    assert contents(nodes, second) == RECORDS
    replicas = [nodes.machines[number].node.replicas for number in (second, late)]
    assert {replica.get(1).raft.group.outline.last for replica in replicas} == {
        replicas[0].get(1).raft.group.commit
    }


def test_a_leader_that_knows_of_damage_reads_for_two_consumers_of_a_shared_index(nodes):
    """The first read ends its leadership at once, with the second one still to be done."""
    first = filled(nodes)
    consumers = [Sharing(nodes, first, identity) for identity in (1, 2)]
    for each in consumers:
        assert isinstance(each.open(prefetch=40), frames.SubscriptionOpened)
    nodes.until(lambda: sum(len(each.leased) for each in consumers) == 30, 20, "all leases")
    damage_a_segment(nodes, first)
    machine = nodes.machines[first]
    assert machine.node is not None
    reports: list[object] = []
    machine.node.node._wiring.log.scrub(reports.append)
    nodes.until(lambda: bool(reports), 20, "the scrub")
    (holder,) = [each for each in consumers if 0 in each.offsets]
    holder.begin_settling("nack", *holder.offsets)
    nodes.run(SECOND)
    second = leader_of(nodes)
    assert second != first
    again = Sharing(nodes, second, 1)
    again.open(prefetch=len(RECORDS))
    again.until_leased(1, 40)
