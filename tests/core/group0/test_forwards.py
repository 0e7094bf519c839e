"""Requests that were handed on, by plain calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.core.group0.forwards import LIFE_BITS, Answer, Forwards, Root, Send, deposed
from hocket.core.group0.messages import Forward, Forwarded
from hocket.core.group0.settings import Group0Settings
from hocket.core.metadata.done import KEPT
from hocket.core.ring.contact import Contact
from hocket.errors import Busy, RootAway, TopicExists

R, S = Contact(1, "r", 1, "r:1"), Contact(2, "s", 1, "s:1")
ROOT, NEXT = Root(R, 4), Root(S, 5)
SETTINGS = Group0Settings(answer_ticks_max=6, repeat_ticks=3)
FIRST = (7 << LIFE_BITS) + 1


def forward() -> Forward:
    return Forward(0, "ann", False, "here", "", b"frame")


def done(number: int, index: int, term: int = 4) -> Forwarded:
    return Forwarded(number, index, term=term)


def asked(count: int = 1) -> Forwards:
    forwards = Forwards(7, SETTINGS)
    for _ in range(count):
        forwards.ask(forward(), ROOT)
    return forwards


def test_a_request_is_numbered_by_life_and_sent():
    forwards = Forwards(7, SETTINGS)
    handed = forward()
    assert not forwards.is_waiting
    assert forwards.ask(handed, ROOT) == [Send(R, replace(handed, term=4))]
    assert forwards.is_waiting
    assert handed.number == FIRST
    assert FIRST in forwards
    forwards.ask(handed, ROOT)
    assert handed.number == FIRST + 1


def test_without_a_root_it_is_refused_and_has_certainly_not_happened():
    forwards = Forwards(7, SETTINGS)
    with pytest.raises(RootAway, match=r"no node is known to lead .*data go on") as caught:
        forwards.ask(forward(), None)
    assert not caught.value.may_have_happened
    assert deposed().may_have_happened


def test_the_entry_itself_answers():
    forwards = asked()
    assert forwards.applied(FIRST)
    assert not forwards.applied(FIRST)
    assert forwards.heard(R, done(FIRST, 3)) == []


def test_an_answer_waits_until_this_node_has_applied_what_it_names():
    forwards = asked(2)
    assert forwards.heard(R, done(FIRST, 5)) == []
    assert forwards.applied_through(4) == []
    assert forwards.applied_through(5) == [Answer(FIRST, None)]
    (answer,) = forwards.heard(R, Forwarded(FIRST + 1, 5, "topicExists", "it exists", True, 4))
    assert isinstance(answer.error, TopicExists)
    assert (str(answer.error), answer.error.may_have_happened) == ("it exists", True)
    assert forwards.heard(R, done(FIRST + 1, 5)) == []


def test_it_is_sent_again_with_the_same_number_and_at_once_to_the_next_root():
    forwards = asked()
    assert forwards.tick(ROOT) == []
    assert forwards.tick(None) == []
    (again,) = forwards.tick(ROOT)
    assert isinstance(again, Send)
    assert again.message.number == FIRST
    (again,) = forwards.tick(NEXT)
    assert (again.to, again.message.term) == (S, 5)
    forwards.heard(S, done(FIRST, 9, 5))
    assert forwards.tick(NEXT) == []  # it is done, and only awaited


@pytest.mark.parametrize(("sender", "term"), [(R, 4), (S, 4), (R, 5)])
def test_only_the_root_that_was_asked_last_can_refuse(sender, term):
    """Another one may carry it out after that."""
    forwards = asked()
    forwards.tick(NEXT)
    assert forwards.heard(sender, Forwarded(FIRST, 0, "topicExists", "it exists", term=term)) == []
    assert FIRST in forwards
    (answer,) = forwards.heard(S, Forwarded(FIRST, 0, "topicExists", "it exists", term=5))
    assert isinstance(answer.error, TopicExists)


def test_after_a_while_it_is_given_up():
    forwards = asked()
    for _ in range(5):
        forwards.tick(None)
    (answer,) = forwards.tick(ROOT)
    assert isinstance(answer.error, RootAway)
    assert answer.error.may_have_happened
    assert "r:1" in str(answer.error)
    assert FIRST not in forwards


def test_a_refusal_is_told_though_the_node_is_behind():
    forwards = asked()
    forwards.heard(R, Forwarded(FIRST, 9, "topicExists", "it exists", term=4))
    for _ in range(5):
        assert forwards.tick(ROOT) == []
    (answer,) = forwards.tick(ROOT)
    assert isinstance(answer.error, TopicExists)


def test_no_more_are_under_way_than_the_root_remembers():
    forwards = asked(KEPT)
    with pytest.raises(Busy, match=f"{KEPT} changes"):
        forwards.ask(forward(), ROOT)
    forwards.applied(FIRST + 1)  # not the oldest
    with pytest.raises(Busy):
        forwards.ask(forward(), ROOT)
    forwards.applied(FIRST)
    forwards.ask(forward(), ROOT)
