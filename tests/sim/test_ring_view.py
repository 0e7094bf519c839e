"""The definitions that the invariants of the ring are made of."""

from __future__ import annotations

from random import Random

import pytest

from hocket.core.ring import circle
from hocket.sim import ring_view
from hocket.sim.ring_view import RingView, between, effective_step, may_fail, snapshot
from tests.support.sim.rings import Ring, at, ideal, member, rings, view

RING = (10, 20, 30, 40, 50, 60)


def positions(contacts: list) -> list[int]:
    return [contact.position for contact in contacts]


def test_between_agrees_with_the_protocol_which_has_its_own():
    points = range(5)
    for start in points:
        for point in points:
            for end in points:
                assert between(start, point, end) == (
                    circle.between(start, point, end) and (start != end or point != start)
                )


def test_an_ideal_ring_is_all_principals():
    seen = view(ideal(RING, 2).values())
    assert seen.is_ideal
    assert seen.difference is None
    assert positions(ring_view.principals(seen)) == list(RING)
    assert positions(ring_view.ring_members(seen)) == list(RING)
    assert ring_view.appendages(seen) == []
    assert effective_step(seen) is None
    assert seen.rings == [seen.spots]


def test_a_ring_of_one_is_ideal_with_nobody_before_or_behind():
    assert view([member(10, [])]).is_ideal
    assert not view([member(10, [], 10)]).is_ideal


def test_who_has_joined_is_skipped_until_the_others_know():
    members = ideal(RING, 2)
    members[25] = member(25, [30, 40], 20)
    seen = view(members.values())
    assert positions(ring_view.principals(seen)) == list(RING)
    assert positions(ring_view.appendages(seen)) == [25]
    assert not seen.is_ideal
    assert "n30/1 rectifies with n25/1" in str(effective_step(seen))


def test_a_pair_that_passes_zero_skips_on_both_sides_of_it():
    members = ideal(RING, 2)
    members[50] = member(50, [10, 20], 40)  # without 60
    members[5] = member(5, [10, 20], 60)
    assert positions(ring_view.principals(view(members.values()))) == [10, 20, 30, 40, 50]


def test_a_list_that_holds_only_its_owner_skips_everybody_else():
    members = ideal((10, 20, 30), 2)
    members[20] = member(20, [20])
    assert positions(ring_view.principals(view(members.values()))) == [20]


def test_a_new_life_is_not_the_old_one():
    members = ideal(RING, 2)
    members[30] = ring_view.Member(at(30, 2), [at(40), at(50)], at(20))
    seen = view(members.values())
    # Those who name the old life pass the new one by; 20 has a live successor behind it.
    assert positions(ring_view.principals(seen)) == [10, 20, 40, 50, 60]
    assert positions(ring_view.appendages(seen)) == [30]
    assert effective_step(seen) == "n20/1 drops n30/1, which is dead"


def test_dead_entries_are_passed_over():
    members = ideal(RING, 2)
    del members[30]
    seen = view(members.values())
    assert positions(ring_view.ring_members(seen)) == [10, 20, 40, 50, 60]
    assert len(seen.principals) == 5
    assert not seen.is_ideal


def test_two_rings_and_who_hangs_on_them():
    members = ideal((10, 30, 50), 1) | ideal((20, 40), 1)
    members[45] = member(45, [50])
    seen = view(members.values(), 1)
    assert [len(ring) for ring in seen.rings] == [3, 2]
    assert positions(ring_view.appendages(seen)) == [45]


@pytest.mark.parametrize(
    ("worse", "how"),
    [
        (member(30, [40, 50], None), "the predecessor should be n20"),
        (member(30, [40, 50], 10), "the predecessor should be n20"),
        (member(30, [40], 20), "the successors should be n40/1 n50/1"),
        (member(30, [40, 60], 20), "the successors should be n40/1 n50/1"),
        (member(30, [40, at(50, 2)], 20), "the successors should be n40/1 n50/1"),
    ],
)
def test_what_is_not_ideal_is_said(worse, how):
    members = ideal(RING, 2) | {30: worse}
    assert how in str(view(members.values()).difference)


@pytest.mark.parametrize(
    ("worse", "step"),
    [
        (member(30, [35, 40], 20), "n20/1 stabilizes from its successor n30/1"),
        (member(10, [15, 20], 60), "n10/1 drops n15/1, which is dead"),
        (member(30, [40], 20), "n30/1 stabilizes from its successor n40/1"),
        (member(30, [40, 60], 20), "n30/1 stabilizes from its successor n40/1"),
        (member(10, [30, 40], 60), "n10/1 stabilizes from the predecessor of n30/1"),
        (member(30, [40, 50], None), "n30/1 rectifies with n20/1"),
        (member(30, [40, 50], 15), "n30/1 rectifies with n20/1"),
        (member(30, [40, 50], 10), "n30/1 rectifies with n20/1"),
    ],
)
def test_a_step_that_would_change_something_is_named(worse, step):
    members = ideal(RING, 2) | {worse.me.position: worse}
    assert effective_step(view(members.values())) == step


def test_nothing_can_move_where_every_list_is_empty():
    assert effective_step(view([member(10, []), member(20, [])])) is None


def test_fail_leaves_nobody_without_a_successor_and_keeps_enough_principals():
    members = ideal(RING, 2)
    seen = view(members.values())
    assert all(may_fail(seen, each.me, 2) for each in members.values())
    few = view(ideal((10, 20, 30), 2).values())
    assert not any(may_fail(few, at(position), 2) for position in (10, 20, 30))
    members[10] = member(10, [20, 25], 60)
    assert not may_fail(view(members.values()), at(20), 2)
    assert may_fail(view(members.values()), at(77), 2)  # no member


def test_one_who_is_skipped_may_fail_even_if_there_are_few():
    members = ideal((10, 20, 30), 2)
    members[25] = member(25, [30, 10], 20)
    seen = view(members.values())
    assert may_fail(seen, at(25), 2)
    assert not may_fail(seen, at(30), 2)


def test_an_answer_that_may_be_on_its_way_counts_too():
    members = ideal(RING, 2)
    members[30] = member(30, [99, 50], 20)  # only 50 is alive
    members[20] = member(20, [30, 40], 10, asking=True)
    seen = view(members.values())
    assert may_fail(seen, at(40), 2)
    # 20 may be about to hold [30, 99]: then nobody may take 30 from it.
    assert not may_fail(seen, at(30), 2)
    members[20] = member(20, [30, 40], 10)
    assert may_fail(view(members.values()), at(30), 2)


def test_the_one_asked_may_be_the_predecessor_of_the_successor():
    members = ideal(RING, 2)
    members[25] = member(25, [30, 99], 20)
    members[30] = member(30, [40, 50], 25)
    members[20] = member(20, [30, 40], 10, asking=True)
    after = ring_view._after_all_answers(view(members.values()))
    assert positions(after.by_spot[ring_view.spot(at(20))].successors) == [25, 30]
    members[10] = member(10, [77, 30], 60, asking=True)  # its head is dead: no answer
    members[40] = member(40, [], 30, asking=True)  # nobody to ask
    after = ring_view._after_all_answers(view(members.values()))
    assert positions(after.by_spot[ring_view.spot(at(10))].successors) == [77, 30]


def test_a_snapshot_holds_members_and_says_who_else_there_is():
    cores = rings(ideal(RING, 2).values())
    cores.append(Ring(at(70), standing="small"))
    cores.append(Ring(at(80), standing="joining", asking=True))
    seen = snapshot(cores)
    assert positions([each.me for each in seen.members]) == list(RING)
    assert (seen.successors, seen.small, seen.quiet) == (2, 1, False)
    assert snapshot(cores[:6]).quiet
    assert "n10/1: successors n20/1 n30/1, predecessor n60/1" in repr(seen)
    cores[0].successors.clear()  # what was seen stays as it was
    assert len(seen.members[0].successors) == 2


def test_a_snapshot_reads_again_only_who_has_changed():
    cores = rings(ideal(RING, 2).values())
    before = snapshot(cores)
    cores[0].predecessor = None
    cores[1].asking = True
    cores[2].successors = [at(40)]
    seen = snapshot(cores, before)
    same = [now is then for now, then in zip(seen.members, before.members, strict=True)]
    assert same == [False, False, False, True, True, True]
    assert repr(seen) == repr(snapshot(cores))


def model_principals(seen: RingView) -> list[int]:
    """By the definition alone."""
    return [
        candidate.spot
        for candidate in seen.members
        if not any(
            between(start, candidate.spot, end)
            for each in seen.members
            for start, end in zip([each.spot, *each.spots], each.spots, strict=False)
        )
    ]


def test_principals_are_found_as_the_definition_says():
    chance = Random(1)
    for _ in range(300):
        places = chance.sample(range(12), chance.randrange(1, 10))
        members = [
            member(place, chance.choices(range(12), k=chance.randrange(4)), chance.choice(places))
            for place in places
        ]
        seen = view(members, 3)
        assert [each.spot for each in seen.principals] == model_principals(seen)
        assert sorted(seen.on_a_ring) == [
            spot for spot in seen.spots if spot in walk(seen.best, spot)
        ]


def walk(best: dict[int, int], spot: int) -> list[int]:
    way: list[int] = []
    while spot in best and best[spot] not in way:
        spot = best[spot]
        way.append(spot)
    return way


def test_ten_thousand_nodes_are_judged():
    members = ideal(range(0, 100_000, 10), 8)
    seen = view(members.values(), 8)
    assert seen.is_ideal
    members[50] = member(50, [60, 70, 80, 90, 100, 110, 120, 140], 40)
    assert not view(members.values(), 8).is_ideal
