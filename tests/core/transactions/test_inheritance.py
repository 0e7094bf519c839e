"""How deciders take over what the founder's own decider knows: in parts, lost, double, anew."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from hocket.core.metadata.metadata import Indexes
from hocket.core.origin import Origin
from hocket.core.transactions import inheritance
from hocket.core.transactions.decider import Decider
from hocket.core.transactions.events import (
    AbortAsked,
    Answer,
    AppendDecision,
    Applied,
    Apply,
    CommitAsked,
    Drop,
    Inherit,
    Inherited,
    StageFound,
    Started,
    Verified,
    Verify,
)
from hocket.core.transactions.inheritance import REPEAT_US, Inheritance, Legacy
from hocket.core.transactions.messages import decider_of
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import Busy, TransactionAborted, TransactionConflict
from hocket.model import Participant

NOW = 1_000_000
ASKER = Origin(1, 0, 7)
HEIRS = (101, 102, 103)


def heir_of(transaction: str) -> int:
    return HEIRS[decider_of(transaction, len(HEIRS))]


class Logged:
    """A decider and its log, of which everything is durable at once."""

    def __init__(self, *, inherits: bool = False) -> None:
        self.inherits = inherits
        self.log: list[tuple[int, bytes]] = []
        self.core = Decider(inherits=inherits)
        self.core.step(Started(NOW))

    def step(self, event: Any) -> list[Any]:
        effects = self.core.step(event)
        told = []
        for effect in effects:
            if isinstance(effect, AppendDecision):
                self.log.append((effect.index, effect.body))
                told += self.core.durable(effect.index)
            else:
                told.append(effect)
        return told

    def restart(self, *, from_snapshot: bool = False) -> None:
        index, state = self.core.snapshot() if from_snapshot else (0, None)
        self.core = Decider(Indexes(), inherits=self.inherits)
        if state is not None:
            self.core.restore(index, json.loads(json.dumps(state)))
        for at, body in self.log:
            if at > index:
                self.core.replayed(at, body)
        self.core.step(Started(NOW))

    def commit(self, transaction: str, number: int, *groups: int) -> list[Any]:
        participants = tuple(
            LocatedParticipant(group, Participant(f"t{group}", 0, b"p" * 16, 1, 5, 9))
            for group in groups
        )
        return self.step(CommitAsked(ASKER, transaction, number, participants, NOW))

    def publish(self, transaction: str, number: int, group: int = 1) -> None:
        """A commit that is decided, applied and finished."""
        (verify,) = self.commit(transaction, number, group)
        (apply,) = self.step(Verified(group, transaction, verify.round, None))
        assert isinstance(apply, Apply)
        self.step(Applied(group, transaction, number))

    def abort(self, transaction: str, number: int, producer: bytes = b"d" * 16) -> None:
        self.step(AbortAsked(ASKER, transaction, number, (producer,), NOW))


def legacy_of(old: Logged, term: int = 1) -> Legacy:
    return Legacy(term, HEIRS, heir_of, old.core.ids, old.core.about)


def hand_over(legacy: Legacy, heirs: dict[int, Logged], now_us: int = NOW) -> None:
    for heir, _count, part, body in legacy.due(now_us):
        for told in heirs[heir].step(Inherit(legacy.term, part, body)):
            assert isinstance(told, Inherited)
            legacy.answered(heir, told.term, told.part, whole=told.whole)


def until_over(legacy: Legacy, heirs: dict[int, Logged]) -> None:
    for at in range(50):
        if legacy.is_over:
            return
        hand_over(legacy, heirs, NOW + at * REPEAT_US)
    raise AssertionError("it is not over")


def new_heirs() -> dict[int, Logged]:
    return {heir: Logged(inherits=True) for heir in HEIRS}


def errors(effects: list[Any]) -> list[Any]:
    return [type(each.error) for each in effects if isinstance(each, Answer)]


def test_a_heir_decides_nothing_before_it_has_heard_the_founder():
    heir = Logged(inherits=True)
    assert errors(heir.commit("a", 0)) == [Busy]
    assert errors(heir.step(AbortAsked(ASKER, "a", 0, (b"p" * 16,), NOW))) == [Busy]
    assert heir.step(StageFound(1, "a", 0, (b"p" * 16,), idle=True)) == []
    assert isinstance(heir.core.refusal("a", 0, b"p" * 16), Busy)
    assert heir.log == []


def test_a_founder_that_knows_nothing_says_so_and_then_heirs_decide():
    heirs = new_heirs()
    legacy = legacy_of(Logged())
    hand_over(legacy, heirs)
    assert legacy.is_over
    assert errors(heirs[101].commit("a", 0)) == [type(None)]


def test_what_was_decided_is_known_to_the_one_that_follows():
    old = Logged()
    old.publish("a", 4)
    old.abort("b", 2)
    heirs = new_heirs()
    until_over(legacy_of(old), heirs)
    of_a, of_b = heirs[heir_of("a")], heirs[heir_of("b")]
    assert errors(of_a.commit("a", 3, 1)) == [TransactionConflict]
    assert errors(of_a.commit("a", 4)) == [TransactionConflict]  # with other content
    again = of_a.commit("a", 4, 1)
    assert errors(again) == [type(None)]
    assert any(isinstance(each, Drop) for each in again)
    named = LocatedParticipant(1, Participant("t", 0, b"d" * 16, 1, 1, 1))
    refused = of_b.step(CommitAsked(ASKER, "b", 2, (named,), NOW))
    assert errors(refused) == [TransactionAborted]
    assert isinstance(of_a.commit("a", 5, 1)[0], Verify)


def test_what_an_older_version_has_aborted_stays_so():
    old = Logged()
    change = {"decide": "abort", "id": "a", "number": 2, "members": []}
    old.core.replayed(1, json.dumps(change).encode())
    heirs = new_heirs()
    until_over(legacy_of(old), heirs)
    assert errors(heirs[heir_of("a")].commit("a", 2, 1)) == [TransactionAborted]


def test_an_id_that_the_founder_is_at_work_on_follows_when_it_is_finished():
    old = Logged()
    (verify,) = old.commit("a", 1, 1)
    old.publish("other", 1)
    heirs = new_heirs()
    legacy = legacy_of(old)
    for at in range(3):
        hand_over(legacy, heirs, NOW + at * REPEAT_US)
    heir = heirs[heir_of("a")]
    assert not legacy.is_over
    assert errors(heir.commit("a", 2, 1)) == [Busy]
    if heir_of("other") == heir_of("a"):
        assert isinstance(heir.commit("other", 2, 1)[0], Verify)
    old.step(Verified(1, "a", verify.round, None))
    hand_over(legacy, heirs, NOW + 3 * REPEAT_US)
    assert errors(heir.commit("a", 2, 1)) == [Busy]  # it is decided, and not applied
    old.step(Applied(1, "a", 1))
    until_over(legacy, heirs)
    assert errors(heir.commit("a", 1, 1)) == [type(None)]
    assert isinstance(heir.commit("a", 2, 1)[0], Verify)


def test_an_abort_on_its_way_is_waited_for():
    old = Logged()
    old.core.step(AbortAsked(ASKER, "a", 1, (b"d" * 16,), NOW))  # not durable
    assert old.core.about("a") is None
    assert old.core.ids == ["a"]


def test_other_ids_of_the_heir_do_not_wait_for_one_that_is_withheld():
    old = Logged()
    old.commit("a", 1, 1)
    heirs = new_heirs()
    legacy = legacy_of(old)
    hand_over(legacy, heirs)
    heir = heirs[heir_of("a")]
    other = next(f"x{n}" for n in range(99) if heir_of(f"x{n}") == heir_of("a"))
    assert isinstance(heir.commit(other, 0, 1)[0], Verify)
    assert not heir.core.inheritance.whole


def test_parts_come_in_any_order_and_as_often_as_they_like(monkeypatch):
    monkeypatch.setattr(inheritance, "PART_BYTES", 60)
    old = Logged()
    for number in range(20):
        old.publish(f"id{number}", number)
    heirs = new_heirs()
    legacy = legacy_of(old)
    random = Random(3)
    waiting: list[tuple[int, int, bytes]] = []
    now_us, answered = NOW, 0
    while not legacy.is_over:
        now_us += REPEAT_US
        assert now_us < NOW + 1000 * REPEAT_US
        waiting += [(heir, part, body) for heir, _, part, body in legacy.due(now_us)]
        random.shuffle(waiting)
        for heir, part, body in list(waiting[:3]):
            if random.random() < 0.5:
                waiting.remove((heir, part, body))
            for told in heirs[heir].step(Inherit(1, part, body)):
                if random.random() < 0.6:
                    answered += 1
                    legacy.answered(heir, told.term, told.part, whole=told.whole)
                if random.random() < 0.2:
                    heirs[heir].restart(from_snapshot=random.random() < 0.5)
    assert answered > 20
    for number in range(20):
        heir = heirs[heir_of(f"id{number}")]
        assert heir.core.decided[f"id{number}"].number == number
        assert errors(heir.commit(f"id{number}", number, 1)) == [type(None)]


def test_a_founder_that_begins_again_counts_its_parts_anew(monkeypatch):
    monkeypatch.setattr(inheritance, "PART_BYTES", 1)
    old = Logged()
    mine = [f"x{n}" for n in range(99) if heir_of(f"x{n}") == 101][:3]
    for transaction in mine[:2]:
        old.publish(transaction, 1)
    heir = Logged(inherits=True)
    first = legacy_of(old)
    (early,) = [each for each in first.due(NOW) if each[0] == 101]
    assert early[1:3] == (2, 0)
    assert heir.step(Inherit(1, 0, early[3])) == [Inherited(1, 0, False)]
    assert heir.step(Inherit(1, 0, early[3])) == [Inherited(1, 0, False)]
    old.publish(mine[2], 1)
    second = legacy_of(old, term=2)
    until_over(second, {**new_heirs(), 101: heir})
    assert heir.core.inheritance.count == 3
    assert len(heir.log) == 4
    assert heir.step(Inherit(1, 1, b"")) == [Inherited(1, 1, True)]  # late, and of no use
    first.answered(101, 2, 0, whole=True)
    assert not first.is_over
    second.answered(101, 2, 0, whole=True)  # once more
    assert legacy_of(old, term=3).due(NOW)[0][2] == 0


def test_a_part_that_is_on_its_way_to_the_log_is_not_appended_again():
    heir = Logged(inherits=True)
    body = legacy_of(Logged()).due(NOW)[0][3]
    (append,) = heir.core.step(Inherit(1, 0, body))
    assert heir.core.step(Inherit(1, 0, body)) == []
    assert heir.core.room_for(Inherit(1, 0, body)) > len(body)
    assert heir.core.durable(append.index) == [Inherited(1, 0, True)]


def test_what_the_heir_has_decided_itself_is_newer():
    old = Logged()
    old.publish("a", 1)
    old.commit("z", 1, 1)  # so that the heirs of both are not whole
    heirs = new_heirs()
    legacy = legacy_of(old)
    hand_over(legacy, heirs)
    heir = heirs[heir_of("a")]
    heir.publish("a", 2)
    body = {"term": 9, "part": 0, "count": 1, "about": [["a", [1, False, {}], []]], "withheld": []}
    heir.core.inheritance.whole = False
    heir.step(Inherit(9, 0, json.dumps(body).encode()))
    assert heir.core.decided["a"].number == 2


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_heir_remembers_what_it_has_inherited(from_snapshot: bool):
    old = Logged()
    old.publish("a", 1)
    old.commit("b", 1, 1)
    heirs = new_heirs()
    hand_over(legacy_of(old), heirs)
    for heir in heirs.values():
        before = heir.core.inheritance
        heir.restart(from_snapshot=from_snapshot)
        assert heir.core.inheritance == before
    assert errors(heirs[heir_of("b")].commit("b", 1, 1)) == [Busy]
    assert errors(heirs[heir_of("a")].commit("a", 0, 1)) == [TransactionConflict]


def test_an_own_decider_has_inherited_nothing_and_says_nothing_of_it():
    assert "inheritance" not in Decider().snapshot()[1]
    assert Inheritance(whole=True).has(5, 5)


def test_a_part_that_stands_twice_in_the_log_counts_once():
    part = {"term": 1, "part": 0, "count": 2, "about": [["a", None, []]], "withheld": []}
    heir = Inheritance()
    assert len(heir.take(part)) == 1
    assert heir.take(part) == []
    assert heir.lacks("a")


def test_a_mark_changes_nothing():
    old = Logged()
    old.publish("a", 1)
    before = old.core.snapshot()[1]
    mark = old.core.mark()
    old.core.durable(mark.index)
    assert old.core.snapshot() == (mark.index, before)
    old.core.replayed(mark.index + 1, mark.body)
    assert old.core.snapshot() == (mark.index + 1, before)
