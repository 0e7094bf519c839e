"""Nodes divide themselves among the replicas of a partition, and go on when one of them goes."""

from __future__ import annotations

from collections import Counter

from hocket.core.placement.roots import root_for
from tests.core.placement.test_crowd import ring


def test_a_node_always_asks_the_same_replica():
    replicas = ring(3)
    assert len({root_for("x", order) for order in (replicas, replicas[::-1])}) == 1


def test_nobody_asks_itself():
    (alone,) = ring(1)
    assert root_for(alone.node, [alone]) is None
    assert root_for("x", []) is None


def test_nodes_are_spread_over_all_replicas():
    replicas = ring(3)
    at = Counter(root_for(f"node {number}", replicas) for number in range(300))
    assert all(70 < count < 130 for count in at.values())


def test_only_the_nodes_of_a_replica_that_goes_ask_others():
    replicas = ring(3)
    names = [f"node {number}" for number in range(300)]
    before = {name: root_for(name, replicas) for name in names}
    gone = replicas[0]
    for name in names:
        if before[name] != gone:
            assert root_for(name, replicas[1:]) == before[name]
