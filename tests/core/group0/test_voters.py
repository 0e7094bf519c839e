"""Who votes in group 0."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.core.group0.voters import count_for, voters_for
from hocket.core.ring.contact import Contact


def nodes(words: str) -> list[Contact]:
    """Of words like `a` or `a.east`, in the order of their positions; `-a` is a gateway."""
    found = []
    for position, word in enumerate(words.split()):
        name, _, domain = word.removeprefix("-").partition(".")
        capacity = 0 if word.startswith("-") else 1
        found.append(Contact(position, name, 1, f"{name}:1", domain, capacity))
    return found


def chosen(words: str, *, voters: str = "a", fit: str = "", leader: str = "a") -> str:
    members = nodes(words)
    alive = set(fit) or {each.node for each in members}
    return "".join(voters_for(members, leader=leader, voters=set(voters), fit=alive))


def test_there_are_one_three_or_five():
    assert [count_for(nodes) for nodes in range(9)] == [1, 1, 1, 3, 3, 3, 3, 5, 5]
    assert chosen("a") == "a"
    assert chosen("a b") == "a"
    assert chosen("a b c") == "abc"
    assert chosen("a b c d e f g") == "abcde"


def test_as_nodes_go_there_are_fewer():
    assert chosen("a b", voters="abc") == "a"
    assert chosen("b c", voters="abc", leader="c") == "c"
    assert chosen("a b c d e f", voters="abcde") == "abc"


def test_the_dead_are_given_no_vote_and_lose_it_to_who_lives():
    assert chosen("a b c", fit="ab") == "a"  # two would be worse than one
    assert chosen("a b c d", fit="abd") == "abd"
    assert chosen("a b c d", voters="abc", fit="abd") == "abd"
    assert chosen("a b c", voters="abc", fit="ab") == "abc"  # nobody can take the place
    assert chosen("a b c", voters="abc", fit="a") == "abc"


def test_failure_domains_are_spread_over_and_otherwise_nothing_changes():
    assert chosen("a.x b.x c.y d.z") == "acd"
    assert chosen("a.x b.x c.x d.y", voters="abc") == "abd"
    assert chosen("a b c d e", voters="ade") == "ade"
    assert chosen("a.x b.x c.y d.z", voters="acd", leader="d") == "acd"


def test_a_gateway_votes_only_in_want_of_others():
    assert chosen("a -b c d") == "acd"
    assert chosen("a -b.y c.x d.x", leader="c", voters="c") == "acd"  # whatever its domain
    assert chosen("a -b c") == "abc"
    assert chosen("a -b c d", voters="acd", fit="abc") == "abc"  # for one that is dead
    assert chosen("a -b c d", voters="abc") == "acd"  # and until that one is back
    assert chosen("a -b c d", voters="abc", leader="b") == "abc"  # but while it leads


@given(
    st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1),
    st.data(),
)
def test_it_is_stable_and_the_leader_is_among_them(names, data):
    words = (
        data.draw(st.sampled_from(("", "-"))) + name + "." + data.draw(st.sampled_from("xyz"))
        for name in names
    )
    members = nodes(" ".join(words))
    leader = data.draw(st.sampled_from(names))
    fit = {leader, *data.draw(st.sets(st.sampled_from(names)))}
    voters = {leader, *data.draw(st.sets(st.sampled_from(names), max_size=4))}
    found = voters_for(members, leader=leader, voters=voters, fit=fit)
    assert leader in found
    assert len(found) in (1, 3, 5)
    assert set(found) <= fit | voters
    assert voters_for(members, leader=leader, voters=set(found), fit=fit) == found


def test_a_leader_that_is_not_entered_yet_keeps_its_vote():
    assert voters_for([], leader="a", voters={"a"}, fit={"a"}) == ("a",)
