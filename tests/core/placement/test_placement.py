"""Placement: the neighbourhood, domains, members, load; and how even it comes out."""

from __future__ import annotations

import random
from bisect import insort
from collections import Counter

from hypothesis import given, strategies as st

from hocket.core.placement.placement import Placeable, key_of, neighbourhood_of, place, spread
from hocket.core.ring.circle import SIZE, candidates, choose
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId


def node(
    position: int,
    *,
    domain: str = "",
    load: float = 0.0,
    capacity: float = 1.0,
    has_replica: bool = False,
) -> Placeable:
    contact = Contact(position, f"n{position}", 1, "a", domain)
    return Placeable(contact, load, capacity, has_replica)


def positions(nodes: list[Placeable]) -> list[int]:
    return [each.contact.position for each in nodes]


def placed(
    key: int, nodes: list[Placeable], replicas: int = 3, neighbourhood: int = 8
) -> list[int]:
    return [contact.position for contact in place(key, nodes, replicas, neighbourhood)]


# --- keys and neighbourhoods ---------------------------------------------------------------------


def test_keys_are_part_of_the_protocol():
    """Others would put every partition of a running cluster elsewhere."""
    assert key_of(PartitionId("orders", 3)) == 0x91CFA1CC3F3DB06C  # b2sum -l 64
    assert key_of(PartitionId("orders1", 1)) != key_of(PartitionId("orders", 11))


def test_the_neighbourhood_begins_at_the_key_and_goes_round():
    nodes = [node(position) for position in (10, 20, 30)]
    assert positions(neighbourhood_of(20, nodes, 2)) == [20, 30]
    assert positions(neighbourhood_of(21, nodes, 2)) == [30, 10]
    assert positions(neighbourhood_of(31, nodes, 9)) == [10, 20, 30]
    assert neighbourhood_of(5, [], 3) == []


@given(st.sets(st.integers(0, SIZE - 1)), st.integers(0, SIZE - 1), st.integers(0, 9))
def test_the_neighbourhood_against_a_sort(taken, key, count):
    nodes = [node(position) for position in sorted(taken)]
    expected = sorted(taken, key=lambda position: (position - key) % SIZE)
    assert positions(neighbourhood_of(key, nodes, count)) == expected[:count]


# --- the choice ----------------------------------------------------------------------------------


def test_all_else_equal_the_next_on_the_ring_are_taken():
    nodes = [node(position) for position in range(10, 100, 10)]
    assert placed(25, nodes) == [30, 40, 50]
    assert placed(85, nodes) == [90, 10, 20]


def test_fewer_nodes_give_fewer_replicas():
    assert placed(0, []) == []
    assert placed(0, [node(10), node(20)]) == [10, 20]
    assert placed(0, [node(10), node(20), node(30)], neighbourhood=2) == [10, 20]


def test_the_least_full_of_the_neighbourhood_are_taken():
    nodes = [
        node(10, load=5), node(20, load=6, capacity=3), node(30, load=1), node(40, load=3),
        node(50),
    ]  # fmt: skip
    assert placed(0, nodes, neighbourhood=4) == [30, 20, 40]


def test_a_node_without_capacity_is_the_last_resort():
    nodes = [node(10, capacity=0), node(20, load=1_000), node(30, load=1_000)]
    assert placed(0, nodes, replicas=2) == [20, 30]
    assert placed(0, nodes) == [20, 30, 10]


def test_who_has_it_already_keeps_it_though_it_is_fuller():
    nodes = [node(10), node(20, load=9, has_replica=True), node(30)]
    assert placed(0, nodes, replicas=2) == [20, 10]


def test_domains_come_before_members_and_load():
    nodes = [
        node(10, domain="x", has_replica=True), node(20, domain="x", has_replica=True),
        node(30, domain="y", load=9), node(40, domain="x"), node(50, domain="z", load=8),
    ]  # fmt: skip
    assert placed(0, nodes) == [10, 50, 30]
    assert placed(0, nodes, replicas=4) == [10, 50, 30, 20]


def test_a_node_without_a_label_is_a_domain_of_its_own():
    nodes = [node(10, domain="x"), node(20, domain="x"), node(30), node(40)]
    assert placed(0, nodes) == [10, 30, 40]


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "x", "y", "z"]), st.integers(0, 3), st.booleans()),
        max_size=10,
    ),
    st.integers(0, 5),
)
def test_as_many_domains_as_there_can_be_and_no_node_twice(specs, replicas):
    nodes = [
        node(place, domain=domain, load=load, has_replica=has_replica)
        for place, (domain, load, has_replica) in enumerate(specs)
    ]
    chosen = placed(0, nodes, replicas)
    neighbourhood = nodes[:8]
    domains = {each.domain for each in neighbourhood}
    assert len(chosen) == len(set(chosen)) == min(replicas, len(neighbourhood))
    assert len({nodes[place].domain for place in chosen}) == min(replicas, len(domains))


# --- balance -------------------------------------------------------------------------------------


def settled(count: int, choices: int) -> list[int]:
    """So many nodes, each at the best of its candidates."""
    taken: list[int] = []
    for number in range(count):
        insort(taken, choose(candidates(b"%d" % number, choices), taken))
    return taken


def fullest(taken: list[int], *, neighbourhood: int, partitions: int = 6_000) -> float:
    """Of three replicas each, against the mean."""
    nodes = [node(position) for position in taken]
    by_name = {each.contact.node: each for each in nodes}
    for partition in range(partitions):
        for contact in place(key_of(PartitionId("topic", partition)), nodes, 3, neighbourhood):
            by_name[contact.node].load += 1
    return max(each.load for each in nodes) * len(nodes) / (3 * partitions)


def test_candidates_and_the_neighbourhood_together_make_it_even():
    by_chance, chosen = settled(200, 1), settled(200, 16)
    assert fullest(by_chance, neighbourhood=3) > 2.5
    assert 1.4 < fullest(chosen, neighbourhood=3) < 2.2
    assert fullest(chosen, neighbourhood=8) < 1.15


def test_it_stays_even_when_nodes_come_and_go():
    chance = random.Random(1)
    taken = settled(200, 16)
    for number in range(200, 600):
        taken.pop(chance.randrange(len(taken)))
        insort(taken, choose(candidates(b"%d" % number), taken))
    assert fullest(taken, neighbourhood=8) < 1.2


# --- a whole topic -------------------------------------------------------------------------------


def test_the_partitions_of_a_topic_are_spread_by_load_and_capacity():
    nodes = [node(position, capacity=capacity) for position, capacity in ((1, 1), (2, 2), (3, 0))]
    homes = [home for (home,) in spread("orders", range(30), nodes)]
    assert [homes.count(f"n{position}") for position in (1, 2, 3)] == [10, 20, 0]
    assert [each.load for each in nodes] == [10, 20, 0]
    assert spread("orders", range(0), nodes) == []


def test_nodes_without_capacity_share_what_no_other_can_take():
    nodes = [node(position, capacity=0) for position in (1, 2, 3)]
    homes = [home for (home,) in spread("orders", range(9), nodes)]
    assert sorted(map(homes.count, ("n1", "n2", "n3"))) == [3, 3, 3]


def test_a_neighbourhood_without_capacity_is_passed_over():
    nodes = [node(position * (SIZE // 20), capacity=int(position == 19)) for position in range(20)]
    assert set(spread("orders", range(50), nodes)) == {(nodes[19].contact.node,)}


def test_three_hundred_partitions_over_ten_nodes():
    nodes = [node(position) for position in settled(10, 16)]
    homes = [home for (home,) in spread("orders", range(300), nodes)]
    assert max(homes.count(each.contact.node) for each in nodes) <= 1.1 * 30


def test_replicas_are_on_different_nodes_and_as_even():
    nodes = [node(position) for position in settled(10, 16)]
    placed = spread("orders", range(100), nodes, 3)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert max(each.load for each in nodes) <= 1.2 * 30
    gateway = [node(1, capacity=0), node(2), node(3)]
    assert sorted(spread("orders", range(1), gateway, 3)[0]) == ["n1", "n2", "n3"]
    assert len(spread("orders", range(1), gateway[:2], 3)[0]) == 2


def test_homes_are_dealt_evenly_where_all_nodes_have_everything():
    nodes = [node(position) for position in (1, 2, 3)]
    placed = spread("orders", range(6), nodes, 3)
    assert Counter(home for home, *_ in placed) == {each.contact.node: 2 for each in nodes}
    assert all(len(set(each)) == 3 for each in placed)
    alone = [spread(f"topic-{number}", range(1), nodes, 3)[0][0] for number in range(300)]
    assert min(Counter(alone).values()) > 70
    nodes[0].capacity = 2.0
    weighted = Counter(home for home, *_ in spread("orders", range(8), nodes, 3))
    assert weighted[nodes[0].contact.node] == 4
