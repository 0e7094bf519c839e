"""Decider and partitions in a world: messages lost, double and out of order, logs that crash.

The model is naive: a transaction is published whole or not at all, once, in the order of its id's
numbers, and as whoever asked was told. Every rule has mutants that these checks must find.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from hocket.core.partition.events import DropStages
from hocket.core.partition.stages import Stages, by_name
from hocket.core.transactions import decider as transactions
from hocket.core.transactions.decider import REPEAT_US, VERIFY_US, Decider
from hocket.core.transactions.dropped import Dropped
from hocket.core.transactions.state import PendingCommit, given_up
from tests.support.core.transactions_world import GROUPS, World, walk

SEEDS = range(int(os.environ.get("HOCKET_SEEDS", "200")))
group = st.sampled_from(GROUPS)
some = st.integers(0, 3)


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def teardown(self) -> None:
        self.world.heal()
        self.world.check()

    def _client(self, number: int):
        return self.world.clients[-1 - number % len(self.world.clients)]

    @rule(
        name=st.sampled_from("ab"),
        number=st.integers(0, 2),
        plan=st.dictionaries(group, st.integers(1, 2)),
        records=st.integers(1, 2),
    )
    def begin(self, name, number, plan, records):
        self.world.new_client(name, number, plan, records)

    @precondition(lambda self: self.world.clients)
    @rule(which=some, group=group)
    def stage(self, which, group):
        self.world.stage(self._client(which), group)

    @precondition(lambda self: self.world.clients)
    @rule(which=some)
    def commit(self, which):
        self.world.commit(self._client(which))

    @precondition(lambda self: self.world.clients)
    @rule(which=some)
    def abort(self, which):
        self.world.abort(self._client(which))

    @precondition(lambda self: self.world.bus)
    @rule(which=st.integers(0, 50), keep=st.booleans())
    def deliver(self, which, keep):
        self.world.deliver(which % len(self.world.bus), keep=keep)

    @precondition(lambda self: self.world.bus)
    @rule(which=st.integers(0, 50))
    def lose(self, which):
        self.world.lose(which % len(self.world.bus))

    @rule(group=group)
    def durable(self, group):
        self.world.durable(group)

    @rule()
    def decider_durable(self):
        self.world.decider_durable()

    @rule()
    def snapshot(self):
        self.world.take_snapshots()

    @rule(survived=some)
    def crash_decider(self, survived):
        self.world.crash_decider(survived)

    @rule(group=group, survived=some)
    def crash_partition(self, group, survived):
        self.world.crash_partition(group, survived)

    @rule(group=group, idle=st.booleans())
    def ask(self, group, idle):
        self.world.ask(group, idle=idle)

    @rule(passed_us=st.sampled_from([1, REPEAT_US, VERIFY_US]))
    def tick(self, passed_us):
        self.world.tick(passed_us)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_many_lives_by_chance():
    lives = [walk(Random(seed)) for seed in SEEDS]
    published = sum(life.check() for life in lives)
    assert published > len(SEEDS) / 4, "too few transactions came to their end"
    retried = sum(life.committed_after_an_abort() for life in lives)
    assert retried > len(SEEDS) / 40, "too few were aborted first, and committed then"


# --- one mutant or more for each rule: the checks must be able to fail ---------------------------


def verify_what_is_not_durable(monkeypatch):
    """Rule 1: every stage is durable before the decision."""
    verify = Stages.verify

    def hasty(self, name, participants):
        before = {stage: stage.durable for stage in self.producers.values()}
        for stage in before:
            stage.durable = len(stage.batches)
        error = verify(self, name, participants)
        for stage, durable in before.items():
            stage.durable = durable
        return error

    monkeypatch.setattr(Stages, "verify", hasty)


def decide_when_one_has_verified(monkeypatch):
    """Rule 1: of every participant."""
    verified = Decider._verified

    def hasty(self, event):
        pending = self._commits.get(event.transaction)
        if pending is not None and event.error is None and not pending.deciding:
            pending.unverified.clear()
        return verified(self, event)

    monkeypatch.setitem(Decider._handlers, transactions.Verified, hasty)


def take_answers_of_earlier_rounds(monkeypatch):
    """Rule 1: what was verified is what is named now."""
    verified = Decider._verified

    def careless(self, event):
        pending = self._commits.get(event.transaction)
        if pending is not None:
            event.round = pending.round
        return verified(self, event)

    monkeypatch.setitem(Decider._handlers, transactions.Verified, careless)


def drop_what_has_waited_long(monkeypatch):
    """Rule 2: a participant never drops a stage on its own."""
    ask = World.ask

    def impatient(self, group, *, idle):
        if idle:
            stages = self.partitions[group].partition.stages.producers.values()
            for name, producers in by_name(stages).items():
                self._heard(group, self.partitions[group].step(DropStages(name, producers)))
        ask(self, group, idle=idle)

    monkeypatch.setattr(World, "ask", impatient)


def answer_an_abort_before_it_is_durable(monkeypatch):
    """Rule 2: aborted is what is decided so."""
    abort = Decider._abort

    def hasty(self, transaction, number, producers, askers):
        answers = [transactions.Answer(origin, None) for origin in askers]
        return [*answers, *abort(self, transaction, number, producers, [])]

    monkeypatch.setattr(Decider, "_abort", hasty)


def drop_by_name(monkeypatch):
    """Rule 2: an abort is of what was staged, and touches no other pending."""

    def droppable(self, name, _producers):
        return [s for s in self.producers.values() if s.key.name == name and not s.leaving]

    monkeypatch.setattr(Stages, "droppable", droppable)


def burn_the_number(monkeypatch):
    """Rule 2: ... and not of its number."""
    asked = Decider._commit_asked

    def strict(self, event):
        if event.number in self.dropped.of(event.transaction).values():
            return [transactions.Answer(event.origin, given_up(event.transaction, event.number))]
        return asked(self, event)

    monkeypatch.setitem(Decider._handlers, transactions.CommitAsked, strict)


def forget_at_restart_who_was_dropped(monkeypatch):
    """Rule 2: what was aborted is part of no commit, whatever is lost and whoever crashes."""
    started = Decider._started

    def forgetful(self, event):
        self.dropped = Dropped()
        return started(self, event)

    monkeypatch.setitem(Decider._handlers, transactions.Started, forgetful)


def leave_out_of_snapshots_who_was_dropped(monkeypatch):
    monkeypatch.setattr(Dropped, "snapshot", lambda self: {})


def go_on_with_a_commit_that_names_who_is_aborted(monkeypatch):
    """Rule 2: an abort that comes while a commit is being verified wins."""
    monkeypatch.setattr(PendingCommit, "names_one_of", lambda pending, producers: False)


def begin_with_who_is_being_dropped(monkeypatch):
    """Rule 2: ... also before its decision is durable."""
    monkeypatch.setattr(Decider, "_being_dropped", lambda self, transaction: set())


def commit_who_was_dropped(monkeypatch):
    """Rule 2: the stage may still be there, if the message that drops it was lost."""
    asked = Decider._commit_asked

    def trusting(self, event):
        dropped, self.dropped = self.dropped, Dropped()
        try:
            return asked(self, event)
        finally:
            self.dropped = dropped

    monkeypatch.setitem(Decider._handlers, transactions.CommitAsked, trusting)


def leave_what_is_left_over_to_itself(monkeypatch):
    """Rule 3: what is said is said again; a lost Drop too, when the participant asks."""
    found = Decider._stage_found

    def deaf(self, event):
        return [e for e in found(self, event) if not isinstance(e, transactions.Drop)]

    monkeypatch.setitem(Decider._handlers, transactions.StageFound, deaf)


def forget_at_once_what_is_applied(monkeypatch):
    """Rule 3: the applied transaction is known until the decider says forget."""
    monkeypatch.setattr(
        Stages, "is_over", lambda self, name, decision, decider=0: name in self._finishing
    )


def count_the_decisions_of_all_deciders_as_one(monkeypatch):
    """Rule 3 of the stages: what is history for one decider is none for another."""
    is_over = Stages.is_over

    def mixed(self, name, decision, decider=0):
        history = max(self.forgotten.values(), default=0)
        return decision <= history or is_over(self, name, decision, decider)

    monkeypatch.setattr(Stages, "is_over", mixed)


def do_not_recognise_what_is_applied(monkeypatch):
    """Rule 3: a roll-forward that was cut short goes on where it was."""
    monkeypatch.setattr(Stages, "recognises", lambda self, batch: False)


def decide_the_next_before_the_last_is_applied(monkeypatch):
    """Rule 4: in decision order on every partition."""
    asked = Decider._commit_asked

    def hasty(self, event):
        unfinished, self._unfinished = self._unfinished, {}
        try:
            return asked(self, event)
        finally:
            self._unfinished = {**unfinished, **self._unfinished}

    monkeypatch.setitem(Decider._handlers, transactions.CommitAsked, hasty)


def forget_what_is_not_finished(monkeypatch):
    """Rule 3 again: what is not applied everywhere is no history."""
    monkeypatch.setattr(Decider, "_history", lambda self: self._last_decision + 10)


def call_anything_done_already(monkeypatch):
    """Rule 6: the same number with other content is an error."""
    monkeypatch.setattr(transactions, "records_of", lambda participants: {})


def decide_twice(monkeypatch):
    """Rule 5 of the decider: what is decided is never decided again."""
    asked = Decider._commit_asked

    def forgetful(self, event):
        known = self.decided.get(event.transaction)
        if known is not None and not known.participants:
            del self.decided[event.transaction]
        return asked(self, event)

    monkeypatch.setitem(Decider._handlers, transactions.CommitAsked, forgetful)


MUTANTS = [
    verify_what_is_not_durable,
    decide_when_one_has_verified,
    take_answers_of_earlier_rounds,
    drop_what_has_waited_long,
    answer_an_abort_before_it_is_durable,
    drop_by_name,
    burn_the_number,
    forget_at_restart_who_was_dropped,
    leave_out_of_snapshots_who_was_dropped,
    go_on_with_a_commit_that_names_who_is_aborted,
    begin_with_who_is_being_dropped,
    commit_who_was_dropped,
    leave_what_is_left_over_to_itself,
    forget_at_once_what_is_applied,
    count_the_decisions_of_all_deciders_as_one,
    do_not_recognise_what_is_applied,
    decide_the_next_before_the_last_is_applied,
    forget_what_is_not_finished,
    call_anything_done_already,
    decide_twice,
]


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(1500):
        try:
            walk(Random(seed))
        except (AssertionError, KeyError, IndexError):
            return
    pytest.fail(f"{plant.__name__} went unnoticed")
