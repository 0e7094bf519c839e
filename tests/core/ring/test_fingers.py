"""Fingers: which nodes they are, and that a broadcast along them reaches everybody once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import example, given, settings, strategies as st

from hocket.core.ring.circle import BITS, SIZE, distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.fingers import Fingers
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_table import Table, members_at, members_by_chance

ME, NEAR, FAR, FARTHER = members_at(0, 1 << 10, 1 << 60, (1 << 60) + 5)


def fingers(me: Contact = ME, **changes: int) -> Fingers:
    settings = RingSettings(routes_max=0, **changes)
    return Fingers(me, settings, Routes(me, settings))


def known(held: Fingers) -> list[Contact]:
    return sorted(held._routes.passive(0, 99))


# --- which nodes ---------------------------------------------------------------------------------


positions = st.one_of(st.integers(0, 200), st.integers(0, SIZE - 1), st.integers(SIZE - 99, SIZE))


@given(st.sets(positions.map(lambda place: place % SIZE), min_size=1, max_size=30), st.data())
def test_fill_finds_the_first_of_each_interval_that_the_successors_do_not_cover(places, data):
    members = members_at(*places)
    me = data.draw(st.sampled_from(members))
    held = fingers(me, successors=3)
    held.fill(members)
    others = sorted(
        (distance(me.position, other.position), other) for other in members if other != me
    )
    covered = others[2][0] if len(others) > 3 else SIZE
    expected = {}
    for exponent in range(BITS):
        if (2 << exponent) - 1 > covered:
            for away, other in others:
                if 1 << exponent <= away < 2 << exponent:
                    expected.setdefault(exponent, other)
    assert held.entries == expected
    assert known(held) == sorted(expected.values())


@example(5, SIZE - 1)  # the list reaches all the way round
@given(st.integers(0, SIZE - 1), st.integers(1, SIZE - 1))
def test_the_turn_goes_round_all_that_the_successors_do_not_cover(position, covered):
    me, last = members_at(position)[0], members_at((position + covered) % SIZE)[0]
    held = fingers(me)
    wanted = [exponent for exponent in range(BITS) if (2 << exponent) - 1 > covered]
    turns = [held.next_exponent([last]) for _ in range(2 * len(wanted))]
    assert turns == [*reversed(wanted), *reversed(wanted)]
    if not wanted:
        assert held.next_exponent([last]) is None


def test_nothing_is_to_do_alone_and_the_turn_begins_anew_when_the_list_reaches_farther():
    held = fingers()
    assert held.next_exponent([]) is None
    for expected in (63, 62, 61, 60):
        assert held.next_exponent([NEAR]) == expected
    assert held.next_exponent([FARTHER]) == 63


def test_candidates_lie_in_the_interval_and_are_few():
    held = fingers(finger_candidates=2)
    assert held.target(10) == 1 << 10
    assert fingers(FAR).target(63) == (1 << 60) + (1 << 63)
    more = members_at(*range((1 << 60) + 7, (1 << 60) + 9))
    assert held.candidates(60, (NEAR, ME, FAR, FARTHER, *more)) == (FAR, FARTHER)
    assert held.candidates(59, (NEAR, ME, FAR)) == ()


def test_a_finger_is_pinned_as_long_as_it_is_one():
    held = fingers()
    held.put(60, FAR)
    held.put(60, FAR)
    held.put(60, FARTHER)
    assert known(held) == [FARTHER]
    held.drop(60)
    held.drop(60)
    assert known(held) == []
    assert held.entries == {}


def test_a_node_is_no_finger_outside_its_interval():
    with pytest.raises(AssertionError):
        fingers().put(59, FAR)


def test_a_dead_life_is_dropped_and_a_newer_one_is_not():
    held = fingers()
    held.put(10, NEAR)
    held.put(60, FAR._replace(incarnation=2))
    held.forget(FAR)
    assert held.entries == {10: NEAR, 60: FAR._replace(incarnation=2)}
    held.forget(FAR._replace(incarnation=3))
    assert held.entries == {10: NEAR}


# --- broadcast -----------------------------------------------------------------------------------


def broadcast(table: Table, root: Contact) -> tuple[Counter[Contact], int]:
    """How often each node gets it, and how many steps it takes."""
    got: Counter[Contact] = Counter()
    depth = 0
    at_hand = table.seats[root].fingers.spread(root.position, table.seats[root].successors)
    while at_hand:
        depth += 1
        got.update(child for child, _limit in at_hand)
        assert max(got.values()) == 1, "somebody got it twice"
        at_hand = [
            step
            for child, limit in at_hand
            for step in table.seats[child].fingers.spread(limit, table.seats[child].successors)
        ]
    return got, depth


@settings(max_examples=50, deadline=None)
@given(
    st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=40),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_a_broadcast_reaches_everybody_once_whatever_the_fingers(places, successors, chance):
    members = members_at(*places)
    table = Table(members, RingSettings(routes_max=0, successors=successors))
    root = chance.choice(members)
    for seat in table.seats.values():
        for exponent in list(seat.fingers.entries):
            fitting = seat.fingers.candidates(exponent, members)
            if chance.random() < 0.3:
                seat.fingers.drop(exponent)
            else:
                seat.fingers.put(exponent, chance.choice(fitting))
    got, _depth = broadcast(table, root)
    assert got == Counter(member for member in members if member != root)


def test_a_broadcast_is_as_deep_as_a_binomial_tree():
    members = members_by_chance(1_000, random.Random(1))
    table = Table(members, RingSettings(routes_max=0))
    got, depth = broadcast(table, members[0])
    assert got == Counter(members[1:])
    assert depth <= 10  # the logarithm of the number of nodes
    most = max(
        len(seat.fingers.spread(seat.me.position, seat.successors)) for seat in table.seats.values()
    )
    assert most <= 8 + 10


def test_a_broadcast_goes_to_the_newer_of_what_stands_at_a_position():
    held = fingers()
    held.put(10, NEAR)
    newer = NEAR._replace(incarnation=2)
    assert held.spread(ME.position, [newer, ME]) == [(newer, ME.position)]
    assert held.spread(NEAR.position, [newer]) == []
    assert held.spread(FAR.position, [newer, FAR]) == [(newer, FAR.position)]


def test_a_broadcast_goes_by_the_fingers_of_this_moment():
    held = fingers()

    def children() -> list[Contact]:
        return [child for child, _limit in held.spread(ME.position, [NEAR])]

    assert children() == [NEAR]
    held.put(60, FAR)
    assert children() == [NEAR, FAR]
    held.put(60, FARTHER)
    assert children() == [NEAR, FARTHER]
    held.drop(60)
    assert children() == [NEAR]


def test_a_broadcast_goes_to_nobody_if_others_have_put_somebody_at_our_position():
    usurper = ME._replace(node="another")
    assert fingers().spread(FAR.position, [usurper]) == []
    assert fingers().spread(FAR.position, [usurper, NEAR]) == [(NEAR, FAR.position)]
