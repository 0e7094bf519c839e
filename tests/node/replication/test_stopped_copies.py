"""A copy that takes no part in its group any more knows nothing of who leads it, and says so."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.frames import unpacked
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import leader_of


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def named_by(nodes: Nodes, number: int) -> str:
    """Who leads the partition, as this node says."""
    answer = Asking(nodes, number).ask(frames.FindLeaders, topic="orders")
    assert isinstance(answer, frames.LeadersAre), answer
    return answer.nodes[unpacked(answer.leaders)[0]].node


@pytest.mark.parametrize("was", ["leader", "follower"])
def test_a_node_whose_copy_has_stopped_names_who_leads_now(nodes: Nodes, was: str):
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    first = leader_of(nodes)
    deaf = first if was == "leader" else (first + 1) % 3
    machine = nodes.machines[deaf].node
    assert machine is not None
    (copy,) = (
        each for each in machine.replicas
        if each.group in machine.node._wiring.catalogue.topics["orders"].groups
    )  # fmt: skip
    copy.stop("entries of node x do not fit the log")
    nodes.run(SECOND)
    if was == "follower":  # the others agree on another leader than it had heard of
        leading = nodes.machines[first].node
        assert leading is not None
        replica = leading.replicas.get(copy.group)
        assert replica is not None
        replica.hand_over(f"n{3 - first - deaf}")
    nodes.run(10 * SECOND)
    now = leader_of(nodes)
    assert now not in (deaf, first)
    assert named_by(nodes, deaf) == f"n{now}"
