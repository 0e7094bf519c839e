"""Where the consumers of one partition are served."""

from __future__ import annotations

from collections import Counter

import pytest

from hocket.core.placement.crowd import MOVES_MAX, QUIET_LOOKS, Crowd
from hocket.core.placement.homes import FULL
from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact

POPULAR = 8


def ring(count: int, capacity: int = 1) -> list[Contact]:
    """Nodes at even distances; `n0` leads."""
    step = (1 << 64) // count
    return [Contact(n * step, f"n{n}", 1, f"h:{n}", "", capacity) for n in range(count)]


def joined(crowd: Crowd, nodes: list[Contact], count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        crowd.join(number, is_movable=True)
        crowd.move(number, crowd.home(f"consumer {number}", nodes))


def spread_anew(crowd: Crowd, nodes: list[Contact]) -> int:
    """How many were moved, at one look."""
    moved = crowd.misplaced(nodes)
    for each in moved:
        crowd.leave(each)
    for each in moved:
        crowd.join(each, is_movable=True)
        crowd.move(each, crowd.home(f"consumer {each}", nodes))
    return len(moved)


def uneven(crowd: Crowd, nodes: list[Contact]) -> float:
    return max(crowd.at.values()) * len(nodes) / len(crowd)


def test_few_are_served_by_the_leader():
    crowd, nodes = Crowd("n0", POPULAR), ring(5)
    joined(crowd, nodes, POPULAR)
    assert (crowd.is_popular, crowd.at) == (False, Counter(n0=POPULAR))
    assert crowd.misplaced(nodes) == []


def test_one_more_makes_it_popular_and_goes_home():
    crowd, nodes = Crowd("n0", POPULAR), ring(5)
    joined(crowd, nodes, POPULAR)
    crowd.join("late", is_movable=True)
    assert crowd.is_popular
    behind = position_of("a name") // nodes[1].position + 1
    assert crowd.home("a name", nodes) == f"n{behind % 5}"


@pytest.mark.parametrize("count", [20, 100, 1000])
@pytest.mark.parametrize("size", [3, 5, 10])
def test_many_are_spread_evenly_the_leader_included(count, size):
    crowd, nodes = Crowd("n0", POPULAR), ring(size)
    joined(crowd, nodes, count)
    for _ in range(3):
        spread_anew(crowd, nodes)
    assert spread_anew(crowd, nodes) == 0
    assert max(crowd.at.values()) <= FULL * count / size + 1
    if count >= 20 * size:
        assert uneven(crowd, nodes) <= 1.3


def test_those_who_were_first_are_spread_too():
    crowd, nodes = Crowd("n0", 50), ring(5)
    joined(crowd, nodes, 51)
    assert crowd.at["n0"] == 50
    assert spread_anew(crowd, nodes) == 50 - 51 // 5
    assert uneven(crowd, nodes) <= 1.5
    assert spread_anew(crowd, nodes) == 0


def test_whoever_cannot_be_moved_stays_at_the_leader():
    crowd, nodes = Crowd("n0", POPULAR), ring(2)
    for number in range(20):
        crowd.join(number, is_movable=False)
    assert crowd.is_popular
    assert crowd.misplaced(nodes) == []
    joined(crowd, nodes, 20, first=100)
    assert crowd.at["n1"] >= 15  # which have all gone there


def test_it_is_quiet_again_when_half_are_left_for_some_looks():
    crowd, nodes = Crowd("n0", POPULAR), ring(4)
    joined(crowd, nodes, 20)
    for number in range(20 - POPULAR // 2 - 1):
        crowd.leave(number)
    for _ in range(2 * QUIET_LOOKS):
        spread_anew(crowd, nodes)
    assert crowd.is_popular  # one more than half
    crowd.leave(15)
    for _ in range(QUIET_LOOKS - 1):
        spread_anew(crowd, nodes)
        assert crowd.is_popular
    away = len(crowd) - crowd.at["n0"]
    assert away > 0
    assert spread_anew(crowd, nodes) == away
    assert (crowd.is_popular, crowd.at) == (False, Counter(n0=POPULAR // 2))


def test_a_moment_in_which_many_open_anew_is_no_quiet():
    crowd, nodes = Crowd("n0", POPULAR), ring(4)
    joined(crowd, nodes, 20)
    for _ in range(QUIET_LOOKS):
        for number in range(18):
            crowd.leave(number)
        crowd.misplaced(nodes)
        joined(crowd, nodes, 18)
        crowd.misplaced(nodes)
    assert crowd.is_popular


def test_a_node_that_is_gone_serves_nobody():
    crowd, nodes = Crowd("n0", POPULAR), ring(4)
    joined(crowd, nodes, 40)
    here = crowd.at["n2"]
    assert here
    left = [each for each in nodes if each.node != "n2"]
    assert spread_anew(crowd, left) >= here
    assert "n2" not in crowd.at
    assert crowd.misplaced([]) == []  # this node is on no ring just now
    assert crowd.home("anybody", []) == "n0"


def test_a_node_that_is_new_gets_its_share():
    crowd, nodes = Crowd("n0", POPULAR), ring(4)
    joined(crowd, nodes[:2], 40)
    for _ in range(3):
        spread_anew(crowd, nodes)
    assert uneven(crowd, nodes) <= 1.4


def test_a_node_that_is_avoided_gets_no_newcomers():
    crowd, nodes = Crowd("n0", POPULAR), ring(3)
    joined(crowd, nodes, POPULAR + 1)
    homes = {crowd.home(f"name {number}", nodes, ["n1"]) for number in range(50)}
    assert homes == {"n0", "n2"} or homes == {"n2"}


def test_capacity_counts_and_a_gateway_serves_as_much_as_one():
    nodes = ring(4)
    nodes[1] = nodes[1]._replace(capacity=2)
    nodes[3] = nodes[3]._replace(capacity=0)
    crowd = Crowd("n0", POPULAR)
    joined(crowd, nodes, 100)
    for _ in range(3):
        spread_anew(crowd, nodes)
    mean = 100 / 5
    assert crowd.at["n1"] > FULL * mean
    assert 0 < crowd.at["n3"] <= FULL * mean + 1


def test_so_many_are_moved_at_one_look_and_no_more():
    crowd, nodes = Crowd("n0", 1000), ring(5)
    joined(crowd, nodes, 1001)
    assert spread_anew(crowd, nodes) == MOVES_MAX


def test_whoever_leaves_twice_or_was_never_there_changes_nothing():
    crowd = Crowd("n0", POPULAR)
    crowd.join(1, is_movable=True)
    crowd.leave(1)
    crowd.leave(1)
    crowd.leave(2)
    assert (len(crowd), crowd.at) == (0, Counter())
