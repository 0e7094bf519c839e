"""A leader leases messages only while nobody else can lead."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hocket.node.replication.authority import Authority

ELECTION = 1_000_000


class World:
    def __init__(self) -> None:
        self.now_us = 5 * ELECTION
        self.may = True
        settings = SimpleNamespace(election_us=ELECTION)
        self.group = SimpleNamespace(term=3, host=SimpleNamespace(settings=settings))
        self.asked: list = []
        self.told: list[bool] = []
        self.authority = Authority(
            self.group, lambda: self.now_us, self.asked.append, lambda: self.may
        )

    def confirm(self, leads: bool = True) -> None:
        self.authority.confirm(self.told.append)
        self.asked.pop()(leads)


@pytest.fixture
def world() -> World:
    return World()


def test_who_has_not_asked_has_none(world):
    assert not world.authority.holds()
    world.confirm()
    assert world.authority.holds()
    assert world.told == [True]


def test_it_ends_before_others_may_elect_somebody(world):
    world.confirm()
    world.now_us += ELECTION * 9 // 10 - 1
    assert world.authority.holds()
    world.now_us += 1
    assert not world.authority.holds()


def test_it_counts_from_the_question_and_not_from_the_answer(world):
    world.authority.confirm(world.told.append)
    world.now_us += ELECTION
    world.asked.pop()(True)
    assert not world.authority.holds()


def test_it_is_asked_for_again_in_time_and_once(world):
    world.confirm()
    world.now_us += ELECTION // 4 - 1
    assert world.authority.holds()
    assert not world.asked
    world.now_us += 1
    for _ in range(2):
        assert world.authority.holds()
    (answered,) = world.asked
    answered(True)
    world.now_us += ELECTION // 2
    assert world.authority.holds()


def test_who_was_denied_or_leads_in_another_term_or_hands_over_has_none(world):
    world.confirm(False)
    assert not world.authority.holds()
    assert world.told == [False]
    world.confirm()
    world.may = False
    assert not world.authority.holds()
    world.may = True
    assert world.authority.holds()
    world.group.term = 4
    assert not world.authority.holds()
    world.authority.confirm(world.told.append)
    world.group.term = 5  # it was deposed, and leads again, before the answer came
    world.asked.pop()(True)
    assert not world.authority.holds()
