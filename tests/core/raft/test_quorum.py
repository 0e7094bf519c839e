"""Majorities of one half and of two, against counting all sets."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from hocket.core.raft import quorum


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_what_is_reached_is_the_greatest_number_that_a_majority_has(values):
    reached = quorum.reached(values)
    assert 2 * sum(value >= reached for value in values) > len(values)
    assert 2 * sum(value > reached for value in values) <= len(values)


@pytest.mark.parametrize(
    ("voters", "yes", "no", "outcome"),
    [
        ("a", "", "", None),
        ("a", "a", "", True),
        ("abc", "a", "", None),
        ("abc", "ab", "", True),
        ("abc", "a", "bc", False),
        ("abc", "ab", "c", True),
        ("abcd", "ab", "", None),
        ("abcd", "ab", "cd", False),
        ("abcd", "abc", "", True),
        ("abcde", "ab", "cd", None),
    ],
)
def test_the_outcome_of_one_half(voters, yes, no, outcome):
    votes = {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    assert quorum.outcome([voters], votes) is outcome


def test_both_halves_decide_for_themselves():
    halves = ["abc", "cde"]
    for answers in product([True, False, None], repeat=5):
        votes = {
            name: vote for name, vote in zip("abcde", answers, strict=True) if vote is not None
        }
        each = [quorum.outcome([half], votes) for half in halves]
        both = quorum.outcome(halves, votes)
        assert both is (False if False in each else None if None in each else True)


def test_votes_of_strangers_count_for_nothing():
    assert quorum.outcome(["abc"], {"a": True, "x": True, "y": True}) is None
