"""The registry of nodes by plain calls, and against a dict with crashes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hocket.core.metadata.metadata import AppendChange, Indexes
from hocket.core.metadata.registry import LEFT_MAX, Changed, PositionTaken, Registry
from hocket.core.ring.contact import Contact


def life(position: int, incarnation: int = 1, node: str = "") -> Contact:
    return Contact(position, node or f"n{position}", incarnation, f"a{position}:1", "rack")


def entered(registry: Registry, *lives: Contact) -> Registry:
    for who in lives:
        appended = registry.enrol(who, None)
        assert isinstance(appended, AppendChange)
        registry.durable(appended.index)
    return registry


def test_a_change_takes_effect_when_it_is_durable():
    registry = Registry()
    first, second = registry.enrol(life(20), "a"), registry.enrol(life(10), "b")
    assert isinstance(first, AppendChange)
    assert isinstance(second, AppendChange)
    assert (first.index, second.index) == (1, 2)
    assert registry.durable(0) == []
    assert registry.members == ()
    assert registry.durable(1) == [Changed(1, "a", 1, (life(20),))]
    assert registry.durable(2) == [Changed(2, "b", 2, (life(10), life(20)))]
    assert registry.durable(2) == []
    assert (registry.version, registry.applied_index) == (2, 2)
    assert registry.member("n10") == life(10)
    assert registry.member("n30") is None


def test_several_become_durable_at_once_each_with_its_own_state():
    registry = Registry()
    registry.enrol(life(20), "a")
    registry.strike(life(20), "b")
    assert registry.durable(2) == [Changed(1, "a", 1, (life(20),)), Changed(2, "b", 2, ())]


def test_how_long_successor_lists_are_is_said_once_and_known_everywhere():
    registry, other, third = Registry(), Registry(), Registry()
    for number, (who, successors) in enumerate([(life(20), 3), (life(10), 0), (life(30), 5)], 1):
        append = registry.enrol(who, None, successors)
        assert isinstance(append, AppendChange)
        assert registry.successors == (0 if number == 1 else 3)
        registry.durable(append.index)
        other.applied(append.index, append.body, None)
    assert registry.successors == other.successors == 3
    third.restore(*registry.snapshot())
    assert third.successors == 3
    assert "successors" not in entered(Registry(), life(20)).snapshot()[1]


def test_entries_of_another_proposer_and_a_state_that_replaces_another():
    registry, other = Registry(), Registry()
    append = registry.enrol(life(20), "a")
    assert isinstance(append, AppendChange)
    registry.durable(1)
    assert other.applied(1, append.body, None) == [Changed(1, None, 1, (life(20),))]
    assert isinstance(other.enrol(life(20, node="other"), "b"), PositionTaken)
    entered(registry, life(10))
    index, state = registry.snapshot()
    assert other.replace(index, state) == [Changed(2, None, 2, (life(10), life(20)))]
    assert other.snapshot() == registry.snapshot()


def test_a_newer_life_replaces_an_older_one_wherever_it_lies():
    registry = entered(Registry(), life(20), life(10), life(30, 2, "n20"))
    assert registry.members == (life(10), life(30, 2, "n20"))
    assert registry.version == 3
    assert entered(registry, life(30, 3, "n20")).members[1].incarnation == 3
    assert entered(registry, life(20)).members == (life(10), life(30, 3, "n20"))


def test_what_is_said_of_an_older_life_changes_nothing_and_is_answered():
    registry = entered(Registry(), life(20, 2))
    registry.enrol(life(20, 2), "same")
    registry.enrol(life(20, 1), "older")
    registry.strike(life(20, 1), "late")
    registry.strike(life(40), "unknown")
    state = (1, (life(20, 2),))
    assert registry.durable(5) == [
        Changed(2, "same", *state), Changed(3, "older", *state),
        Changed(4, "late", *state), Changed(5, "unknown", *state),
    ]  # fmt: skip


def test_who_was_struck_is_remembered_until_it_returns():
    registry = entered(Registry(), life(20), life(30))
    for who in (life(30), life(20, 2)):
        registry.durable(registry.strike(who, None).index)
    assert registry.left == (life(30), life(20, 2))
    assert registry.members == ()
    assert registry.member("n20") is None
    assert registry.known("n20") == life(20, 2)
    assert registry.known("n40") is None
    restored = Registry()
    restored.restore(*json.loads(json.dumps(registry.snapshot())))
    assert restored.left == registry.left
    assert restored.snapshot() == registry.snapshot()
    entered(restored, life(30, 2))
    assert restored.left == (life(20, 2),)
    assert restored.known("n30") == life(30, 2)
    assert "left" not in entered(restored, life(20, 3)).snapshot()[1]


def test_only_the_last_that_left_are_remembered():
    registry = Registry()
    for position in range(LEFT_MAX + 2):
        entered(registry, life(position))
        registry.durable(registry.strike(life(position), None).index)
    assert registry.left == tuple(map(life, range(2, LEFT_MAX + 2)))


def test_a_newer_life_than_the_one_that_is_entered_may_be_struck():
    registry = entered(Registry(), life(20, 2))
    assert registry.durable(registry.strike(life(20, 3), None).index)[0].members == ()


def test_a_position_that_is_taken_is_refused_be_it_only_on_its_way():
    registry = Registry()
    registry.enrol(life(20), None)
    refused = PositionTaken("b", life(20))
    assert registry.enrol(life(20, node="other"), "b") == refused
    registry.durable(1)
    assert registry.enrol(life(20, node="other"), "b") == refused
    registry.strike(life(20), None)
    assert isinstance(registry.enrol(life(20, node="other"), "b"), AppendChange)
    assert registry.durable(3)[-1].members == (life(20, node="other"),)


def test_indexes_are_shared_with_the_other_machines_of_the_log():
    indexes = Indexes()
    registry = Registry(indexes)
    indexes.take()
    appended = registry.enrol(life(20), None)
    assert isinstance(appended, AppendChange)
    assert appended.index == 2


def test_a_snapshot_is_json_and_holds_only_what_is_committed():
    registry = entered(Registry(), life(20), life((1 << 64) - 1))
    registry.enrol(life(30), None)
    index, state = registry.snapshot()
    restored = Registry()
    restored.restore(index, json.loads(json.dumps(state)))
    assert restored.snapshot() == (2, state)
    assert restored.members == (life(20), life((1 << 64) - 1))
    assert restored.version == 2
    assert restored.enrol(life(20, node="other"), "b") == PositionTaken("b", life(20))
    restored.replayed(3, registry.strike(life(20), None).body)
    assert restored.members == (life((1 << 64) - 1),)


class Model(RuleBasedStateMachine):
    """A log with crashes, against a dict of the newest lives."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.log: list[tuple[bytes, dict[str, Contact]]] = []  # with the state after each entry
        self.leading: dict[str, Contact] = {}
        self.durable_index = 0
        self.snapshot: tuple[int, dict[str, Any]] | None = None

    def appended(self, body: bytes) -> None:
        self.log.append((body, dict(self.leading)))

    @rule(position=st.integers(0, 4), node=st.sampled_from("abc"), incarnation=st.integers(1, 3))
    def enrol(self, position: int, node: str, incarnation: int) -> None:
        who = life(position, incarnation, node)
        there = [each for each in self.leading.values() if each.position == position]
        answer = self.registry.enrol(who, None)
        if there and there[0].node != node:
            assert answer == PositionTaken(None, there[0])
            return
        assert isinstance(answer, AppendChange)
        known = self.leading.get(node)
        if known is None or known.incarnation < incarnation:
            self.leading[node] = who
        self.appended(answer.body)

    @rule(node=st.sampled_from("abc"), incarnation=st.integers(1, 3))
    def strike(self, node: str, incarnation: int) -> None:
        answer = self.registry.strike(life(0, incarnation, node), None)
        known = self.leading.get(node)
        if known is not None and known.incarnation <= incarnation:
            del self.leading[node]
        self.appended(answer.body)

    @rule(step=st.integers(0, 3))
    def sync(self, step: int) -> None:
        start = self.durable_index
        end = self.durable_index = min(start + step, len(self.log))
        changes = self.registry.durable(end)
        assert [change.index for change in changes] == list(range(start + 1, end + 1))
        for change in changes:
            assert list(change.members) == sorted(self.log[change.index - 1][1].values())

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = self.registry.snapshot()

    @rule()
    def crash(self) -> None:
        version = self.registry.version
        del self.log[self.durable_index :]
        self.leading = dict(self.log[-1][1]) if self.log else {}
        self.registry = Registry()
        start = 0
        if self.snapshot is not None:
            start, state = self.snapshot
            self.registry.restore(start, state)
        for index in range(start, len(self.log)):
            self.registry.replayed(index + 1, self.log[index][0])
        assert self.registry.version == version

    @invariant()
    def they_agree(self) -> None:
        expected = self.log[self.durable_index - 1][1] if self.durable_index else {}
        assert list(self.registry.members) == sorted(expected.values())


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase


def test_a_capacity_is_kept_and_an_entry_without_one_has_the_usual():
    registry = Registry()
    gateway = life(20)._replace(capacity=0)
    for who in (life(10), gateway):
        change = registry.enrol(who, "asker")
        assert isinstance(change, AppendChange)
        assert (b"capacity" in change.body) == (who is gateway)
        registry.durable(change.index)
    assert [each.capacity for each in registry.members] == [1, 0]
    restored = Registry()
    index, state = registry.snapshot()
    assert ["capacity" in fields for fields in state["members"]] == [False, True]
    restored.restore(index, state)
    assert restored.members == registry.members
