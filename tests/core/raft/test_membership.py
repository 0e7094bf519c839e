"""Configurations: how one follows another, and what is in force in a log that is read again."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings, strategies as st

from hocket.core.raft.membership import Configuration, Mode, in_force
from tests.support.core.raft_world import quorums

names = st.sets(st.sampled_from("abcde"))
voters = st.sets(st.sampled_from("abcde"), min_size=1)


def test_a_simple_change_is_of_one_voter():
    before = Configuration(("a", "b"), learners=("d",))
    assert before.changed("abd", "", Mode.SIMPLE) == Configuration(("a", "b", "d"))
    assert before.changed("a", "bd", Mode.SIMPLE) == Configuration(("a",), learners=("b", "d"))
    assert "one voter" in before.changed("cde", "", Mode.SIMPLE)


def test_a_joint_change_has_both_halves_until_it_is_left():
    before = Configuration(("a", "b", "c"), learners=("d",))
    joint = before.changed("ade", "cf", Mode.EXPLICIT)
    assert joint == Configuration(("a", "d", "e"), ("a", "b", "c"), ("f",), ("c",))
    assert joint.is_joint
    assert joint.halves == (("a", "d", "e"), ("a", "b", "c"))
    assert joint.members == tuple("abcdef")
    assert joint.all_voters == tuple("abcde")
    assert [joint.has_vote(name) for name in "abcdef"] == [True] * 5 + [False]
    assert joint.left() == Configuration(("a", "d", "e"), learners=("c", "f"))
    assert not joint.leaves_by_itself
    assert before.changed("ade", "", Mode.AUTO).leaves_by_itself


@pytest.mark.parametrize(
    ("before", "wanted", "learners", "why"),
    [
        (Configuration(("a",), ("b",)), "a", "", "joint"),
        (Configuration(("a",)), "", "", "needs a voter"),
        (Configuration(("a",)), "ab", "b", "b cannot be voter and learner"),
    ],
)
@pytest.mark.parametrize("mode", list(Mode))
def test_what_is_refused_is_said(before, wanted, learners, why, mode):
    assert why in before.changed(wanted, learners, mode)


def test_there_is_nothing_to_leave_outside_a_joint_configuration():
    assert "not joint" in Configuration(("a",)).left()


@settings(max_examples=40)
@given(now=voters, then=voters, learners=names, mode=st.sampled_from(list(Mode)))
def test_majorities_of_what_follows_one_another_meet(now, then, learners, mode):
    before = Configuration(tuple(sorted(now)))
    after = before.changed(then, learners - then, mode)
    if isinstance(after, str):
        assert mode is Mode.SIMPLE
        assert len(now ^ then) > 1
        return
    path = [before, after, after.left() if after.is_joint else after]
    for one, other in pairwise(path):
        assert all(a & b for a in quorums(one) for b in quorums(other))
    assert path[-1] == Configuration(tuple(sorted(then)), learners=tuple(sorted(learners - then)))


def test_majorities_two_changes_apart_need_not_meet():
    """Why only one change may be under way."""
    one, other = Configuration(("a", "b", "c")), Configuration(("c", "d", "e"))
    assert any(not a & b for a in quorums(one) for b in quorums(other))


def test_of_the_configurations_in_a_log_all_but_the_last_are_in_force():
    base, *later = (Configuration(tuple(each)) for each in combinations("abcd", 3))
    changes = list(zip([3, 5, 9], later, strict=False))
    assert in_force(base, [], 0) == (base, 0)
    assert in_force(base, changes[:1], 0) == (base, 0)
    assert in_force(base, changes[:1], 3) == (later[0], 3)
    assert in_force(base, changes, 0) == (later[1], 5)
    assert in_force(base, changes, 7) == (later[1], 7)
    assert in_force(base, changes, 9) == (later[2], 9)
