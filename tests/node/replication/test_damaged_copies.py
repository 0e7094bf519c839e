"""A copy with damage: it votes only if it still knows what it has said about its log."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.log.model import Damage
from tests.node.replication.test_failover import contents, publish
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import leader_of

APPLIED = Damage(0, 1, "lost", first_index=2, end_index=3)
IN_A_FILE = Damage(0, 1, "bytes of a segment", is_lasting=False)
UNAPPLIED = Damage(3, 4, "lost", first_index=900, end_index=901)
WITHOUT_END = Damage(3, None, "lost", first_index=5, end_index=5)


def damaged_copy(damage: Damage) -> tuple[Nodes, int, int]:
    """(The nodes, who has led and is gone, whose copy is damaged.)"""
    nodes = Nodes()
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    leader = leader_of(nodes)
    for number in range(3):
        assert isinstance(publish(nodes, leader, b"%d" % number), frames.Published)
    nodes.run(2 * SECOND)
    damaged = (leader + 1) % 3
    machine = nodes.machines[damaged].node
    assert machine is not None
    store = machine.node._wiring.log
    store.checkpoint_now()
    nodes.run(2 * SECOND)
    (group,) = machine.node._wiring.catalogue.topics["orders"].groups
    store._groups[group].note(damage)
    nodes.crash(leader)
    return nodes, leader, damaged


@pytest.mark.parametrize("damage", [APPLIED, IN_A_FILE])
def test_a_copy_with_damage_in_what_its_state_knows_votes_and_does_not_lead(damage: Damage):
    nodes, gone, damaged = damaged_copy(damage)
    leader = leader_of(nodes)
    assert leader not in (gone, damaged)
    assert isinstance(publish(nodes, leader, b"3"), frames.Published)
    assert contents(nodes, leader) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("damage", [UNAPPLIED, WITHOUT_END])
def test_a_copy_that_may_lack_what_others_count_on_does_not_vote(damage: Damage):
    nodes, _gone, _damaged = damaged_copy(damage)
    nodes.run(30 * SECOND)
    assert not any(
        each.topic == "orders"
        for machine in nodes.machines
        if machine.node is not None
        for each in machine.node.partition_ids()
    )
