"""Homes of consumers: anybody can work them out, and they come out even."""

from __future__ import annotations

from bisect import insort

from hocket.core.placement.homes import FULL, home_of
from hocket.core.placement.placement import Placeable
from hocket.core.ring.circle import candidates, choose, position_of
from hocket.core.ring.contact import Contact

FIRST, SECOND = position_of("c"), position_of("c\0002")


def node(position: int, load: float = 0.0, capacity: float = 1.0) -> Placeable:
    return Placeable(Contact(position, f"n{position}", 1, "a"), load, capacity)


def home(*nodes: Placeable, mean: float = 4.0) -> int | None:
    ring = sorted(nodes, key=lambda each: each.contact.position)
    found = home_of("c", ring, mean)
    return None if found is None else found.position


def test_a_home_is_the_next_node():
    assert home() is None
    assert home(node(FIRST), node(SECOND)) == FIRST


def test_a_node_well_above_the_mean_passes_newcomers_on_to_a_less_full_one():
    assert home(node(FIRST, 4 * FULL), node(SECOND)) == FIRST
    assert home(node(FIRST, 4 * FULL + 1), node(SECOND, 5)) == SECOND
    assert home(node(FIRST, 4 * FULL + 1), node(SECOND, 4 * FULL + 1)) == FIRST
    assert home(node(FIRST, 4 * FULL + 1)) == FIRST


def test_what_counts_is_how_full_it_is():
    assert home(node(FIRST, 8, 2), node(SECOND)) == FIRST
    assert home(node(FIRST, 12, 2), node(SECOND)) == SECOND


def test_a_node_without_capacity_is_nobodys_home_if_there_is_another():
    assert home(node(FIRST, 0, 0), node(SECOND, 9), mean=float("inf")) == SECOND
    assert home(node(FIRST, 0, 0), node(SECOND, 0, 0)) == FIRST


def fullest(nodes: int, consumers: int, *, choice: bool) -> float:
    """Of nodes at the best of their candidates, against the mean."""
    taken: list[int] = []
    for number in range(nodes):
        insort(taken, choose(candidates(b"%d" % number), taken))
    ring = [node(position) for position in taken]
    by_name = {each.contact.node: each for each in ring}
    for number in range(consumers):
        mean = number / nodes if choice else float(consumers)
        found = home_of(f"consumer {number}", ring, mean)
        assert found is not None
        by_name[found.node].load += 1
    return max(each.load for each in ring) * nodes / consumers


def test_homes_are_spread_evenly():
    assert fullest(200, 10_000, choice=False) > 1.8
    assert fullest(200, 10_000, choice=True) < 1.35
