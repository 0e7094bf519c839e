"""Candidates can be checked by anybody, and the choice among them evens the ring out."""

from __future__ import annotations

from bisect import insort

from hypothesis import given, strategies as st

from hocket.core.ring.circle import CANDIDATES, SIZE, candidates, choose, is_candidate


def test_candidates_are_part_of_the_protocol():
    """Other numbers would put every node of a running cluster elsewhere."""
    assert candidates(b"key", 2) == (0x203F644EAECC785D, 0x4CC0FBB1F6122041)  # b2sum -l 64
    assert len(set(candidates(b"key"))) == CANDIDATES
    assert candidates(b"key")[:2] == candidates(b"key", 2)


def test_others_can_check_them():
    mine = candidates(b"mine")
    assert all(is_candidate(b"mine", position) for position in mine)
    assert not is_candidate(b"mine", mine[-1], CANDIDATES - 1)
    assert not any(is_candidate(b"other", position) for position in mine)


def test_the_first_node_takes_its_first_candidate():
    assert choose((7, 3), ()) == 7


def test_a_large_arc_cut_evenly_is_best():
    members = [1_000, 2_000, 6_000]
    assert choose((1_500, 4_100, 2_100), members) == 4_100
    assert choose((1_500, 2_100), members) == 1_500  # a small arc in halves, not a large one's rim
    assert choose((3_000, 5_000), members) == 3_000  # equals: the first


def test_a_position_that_is_taken_is_the_last_resort():
    assert choose((1_000, 1_001), [1_000]) == 1_001
    assert choose((1_000,), [1_000]) == 1_000


places = st.integers(0, SIZE - 1)


@given(st.lists(places, min_size=1, max_size=9), st.sets(places, min_size=1, max_size=20))
def test_the_choice_against_a_search_of_all(wanted, taken):
    def lesser_part(place: int) -> int:
        before = min((place - member) % SIZE for member in taken)
        after = min((member - place) % SIZE for member in taken)
        return min(before, after)

    best = max(map(lesser_part, wanted))
    expected = next(place for place in wanted if lesser_part(place) == best)
    assert choose(wanted, sorted(taken)) == expected


def largest_arc(count: int) -> float:
    """Against the mean, when all of 1,000 nodes have chosen from so many candidates."""
    members: list[int] = []
    for number in range(1_000):
        insort(members, choose(candidates(b"%d" % number, count), members))
    arcs = [(member - members[place - 1]) % SIZE for place, member in enumerate(members)]
    return max(arcs) * len(members) / SIZE


def test_the_largest_arc_is_a_small_multiple_of_the_mean():
    assert largest_arc(1) > 5  # chance alone: about the logarithm
    assert largest_arc(CANDIDATES) < 2.5
