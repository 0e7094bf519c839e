"""Transactions over several nodes: whole or not there, whichever node dies at whichever step."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition.stages import Stages
from hocket.core.transactions import decider as decider_core, events as decisions, messages
from hocket.errors import Busy, StorageFull
from hocket.model import DECIDERS, DECISIONS, Start, TopicConfig
from hocket.node.background.roll_forward import RollForward
from hocket.node.background.transactions import Transactions
from hocket.node.cluster.talking import Talking
from hocket.node.replication.group0 import Group0
from hocket.node.running.deciders import Deciders
from hocket.node.running.partitions import Partitions
from tests.support.node.cluster import SECOND, Asking
from tests.support.node.spread import Attempt, Far, Spread

LONG = os.environ.get("HOCKET_STRESS") == "long"


def ends(nodes: Spread) -> list[int]:
    return [nodes.hosted(partition).core.high_watermark for partition in nodes.one_each()]


def story(nodes: Spread, transaction: str) -> list[Attempt]:
    """A commit, an abort, and its number again; each has a digit of its own in the ends."""
    partitions = nodes.one_each()
    made = []
    for serial, (number, then, records) in enumerate(
        [(0, "commit", 1), (1, "abort", 10), (1, "commit", 100)]
    ):
        attempt = Attempt(nodes, transaction, number, records, partitions, serial=serial).stage()
        made.append(attempt.commit() if then == "commit" else attempt.abort())
    nodes.until(nodes.is_at_rest, 60, "nothing is staged, nothing is unfinished")
    return made


def check(nodes: Spread, made: list[Attempt]) -> Counter[str]:
    found = Counter()
    expected = 0
    for attempt in made:
        digits = [end // attempt.records % 10 for end in ends(nodes)]
        assert digits in ([0] * len(digits), [1] * len(digits)), f"{attempt.outcome}: {digits}"
        if attempt.outcome in ("committed", "aborted"):
            assert digits[0] == (attempt.outcome == "committed"), (attempt.outcome, digits)
        expected += attempt.records * digits[0]
        found[f"{attempt.outcome} {digits[0]}"] += 1
    assert ends(nodes) == [expected] * len(nodes.machines), "nothing else is there"
    return found


def test_a_transaction_over_three_nodes_is_whole_wherever_it_is_decided():
    nodes = Spread()
    for number in range(3):
        transaction = nodes.id_decided_at(number, f"job{number}-")
        before = ends(nodes)
        attempt = Attempt(nodes, transaction, 0, 1, nodes.one_each(), serial=number)
        attempt.stage()
        assert ends(nodes) == before
        attempt.commit()
        assert attempt.outcome == "committed"
        assert ends(nodes) == [end + 1 for end in before]
    nodes.until(nodes.is_at_rest, 10, "all is forgotten")
    nodes.run(61 * SECOND)  # who has not heard it asks once a minute
    assert all(
        not hosted.core.stages.applied
        for machine in nodes.machines
        for hosted in machine.node.node._wiring.partitions  # type: ignore[union-attr]
    )


def test_who_does_not_decide_says_who_does():
    nodes = Spread()
    transaction = nodes.id_decided_at(1)
    far = Asking(nodes, 2)
    for kind, fields in (
        (frames.CommitTransaction, {"participants": ()}),
        (frames.AbortTransaction, {"producers": (b"p" * 16,)}),
        (frames.NameParticipants, {"start": 0, "participants": ()}),
    ):
        refused = far.refused(kind, transaction=transaction, number=0, **fields)
        assert (refused.code, refused.node, refused.address) == ("notHere", "n1", "n1:4150")
    Asking(nodes, 1).done(
        frames.CommitTransaction, transaction=transaction, number=0, participants=()
    )


def test_the_deciders_are_hidden():
    nodes = Spread()
    for number in range(3):
        far = Asking(nodes, number)
        assert far.topics() == ["t"]
        for kind, fields in (
            (frames.DescribeTopic, {}),
            (frames.DeleteTopic, {}),
            (frames.AlterTopic, {"config": TopicConfig(partitions=9)}),
            (frames.OpenProducer, {}),
            (frames.OpenSubscription, {"index": "i"}),
            (frames.Publish, {"partition": 0}),
            (frames.FindOffsets, {"start": Start()}),
        ):
            assert far.refused(kind, topic=DECIDERS, **fields).code == "badName", kind
        refused = far.refused(frames.CreateTopic, topic="_hocket.mine", config=TopicConfig())
        assert refused.code == "badName"
    attempt = Attempt(nodes, "job", 0, 1, [0], serial=1).stage()
    attempt.named = {0: attempt.named[0].__class__(DECIDERS, 0, b"q" * 16, 1, 1, 1)}
    assert attempt.commit().outcome == "unknownTopic"


def test_an_abort_drops_what_is_staged_on_all_nodes_at_once():
    nodes = Spread()
    attempt = Attempt(nodes, "job", 0, 1, nodes.one_each(), serial=1).stage()
    attempt.abort()
    nodes.until(nodes.is_at_rest, 2, "nothing is staged")
    assert ends(nodes) == [0, 0, 0]


def test_what_nobody_decides_is_dropped_on_all_nodes():
    nodes = Spread()
    for machine in nodes.machines:
        machine.node.node._wiring.settings.transaction_timeout_us = 3 * SECOND
    Attempt(nodes, "job", 0, 1, nodes.one_each(), serial=1).stage()
    for far in nodes.fars:
        far.machine.network.cut(far.connection)  # its client is gone
    nodes.until(nodes.is_at_rest, 20, "it is dropped everywhere")
    assert ends(nodes) == [0, 0, 0]


def test_a_topic_that_is_deleted_elsewhere_is_no_participant_any_more():
    nodes = Spread()
    Asking(nodes, 0).create("gone", partitions=3)
    nodes.settle()
    there = Attempt(nodes, "job", 0, 1, [0, 1, 2], serial=1, topic="gone").stage()
    here = Attempt(nodes, "job", 0, 1, nodes.one_each(), serial=1).stage()
    Asking(nodes, 1).done(frames.DeleteTopic, topic="gone")
    nodes.settle()
    both = Attempt(nodes, "job", 0, 1, [], serial=1)
    both.named = {**here.named, **{10 + at: each for at, each in there.named.items()}}
    assert both.commit().outcome == "unknownTopic"
    assert here.commit().outcome == "committed"
    assert ends(nodes) == [1, 1, 1]


def test_a_topic_deleted_between_decision_and_apply_takes_its_records_with_it():
    nodes = Spread()
    transaction = nodes.id_decided_at(0)
    Asking(nodes, 0).create("gone", partitions=6)
    nodes.settle()
    far_away = next(at for at, home in enumerate(nodes.homes("gone")) if home == 2)
    here = Attempt(nodes, transaction, 0, 1, [nodes.one_each()[0]], serial=1).stage()
    there = Attempt(nodes, transaction, 0, 1, [far_away], serial=1, topic="gone").stage()
    held = nodes.machines[2].node.node.transactions  # type: ignore[union-attr]
    begin, begun = held._rolling.begin, []
    held._rolling.begin = lambda apply, by: begun.append(apply)  # type: ignore[method-assign]
    far = Asking(nodes, 0)
    named = (*here.named.values(), *there.named.values())
    request = far.begin(
        frames.CommitTransaction, transaction=transaction, number=0, participants=named
    )
    nodes.until(lambda: bool(begun), 5, "it is decided")
    held._rolling.begin = begin  # type: ignore[method-assign]
    Asking(nodes, 1).done(frames.DeleteTopic, topic="gone")
    assert isinstance(far.answer_to(request), frames.Done)
    nodes.until(nodes.is_at_rest, 10, "nothing is left of it")
    assert ends(nodes)[0] == 1


@pytest.mark.parametrize("full", [False, True])
def test_a_decider_that_has_not_heard_of_a_new_topic_catches_up_before_it_says_so(full: bool):
    nodes = Spread()
    transaction = nodes.id_decided_at(1)
    nodes.put_on(0)
    behind = nodes.machines[1].node.node  # type: ignore[union-attr]
    nodes.run(2 * SECOND)
    replica = behind.group0.replica
    assert replica is not None
    assert not replica.is_blocked
    replica._is_blocked = True  # as if its disk took long
    Asking(nodes, 0).create("new", partitions=1)
    attempt = Attempt(nodes, transaction, 0, 1, [0], serial=1, topic="new").stage()
    commit = {
        "transaction": transaction, "number": 0, "participants": tuple(attempt.named.values())
    }  # fmt: skip
    far, gone = Asking(nodes, 1), Asking(nodes, 1)
    request = far.begin(frames.CommitTransaction, **commit)
    gone.begin(frames.CommitTransaction, **commit)
    nodes.run(200_000)
    assert not far.is_answered(request)
    assert "new" not in behind._wiring.catalogue.topics
    nodes.machines[1].network.cut(gone.connection)
    if full:
        behind._wiring.partitions.admit = _refuse
    nodes.machines[1].turn(replica._unblock)
    answer = far.answer_to(request)
    if full:
        assert isinstance(answer, frames.Failure)
        assert answer.code == "storageFull"
        return
    assert isinstance(answer, frames.Done), answer
    assert nodes.hosted(0, "new").core.high_watermark == 1
    never = Asking(nodes, 1).refused(
        frames.CommitTransaction, transaction=transaction, number=1,
        participants=(replace(attempt.named[0], topic="never"),),
    )  # fmt: skip
    assert never.code == "unknownTopic"


def _refuse(*_where, **_how):
    raise StorageFull("the disk is full")


def test_what_a_node_says_of_logs_that_it_does_not_hold_counts_for_nothing():
    """A node speaks that keeps neither the decider nor the partition, as if it had them."""
    nodes = Spread(nodes=4)
    transaction = nodes.id_decided_at(0)
    deciding = nodes.machines[0].node.node.transactions  # type: ignore[union-attr]
    seat = deciding.seat_of(transaction)
    keepers = deciding._wiring.catalogue.stores_of_group(seat.group)
    stranger = next(each.name for each in nodes.machines if each.name not in keepers)
    at = next(number for number in range(1, 4) if f"n{number}" != stranger)
    partition = nodes.one_each()[at]
    attempt = Attempt(nodes, transaction, 1, 1, [partition], serial=1).stage()
    held = nodes.hosted(partition)
    taking_part = nodes.machines[at].node.node.transactions  # type: ignore[union-attr]
    told_to_apply = taking_part._rolling.begin
    taking_part._rolling.begin = lambda apply, by: None  # type: ignore[method-assign]
    taking_part.others.send = _lose  # type: ignore[method-assign]
    far = Asking(nodes, 0)
    request = far.begin(
        frames.CommitTransaction, transaction=transaction, number=1,
        participants=tuple(attempt.named.values()),
    )  # fmt: skip
    nodes.until(lambda: transaction in seat.core._commits, 5, "it is asked for")
    round_ = seat.core._commits[transaction].round
    name = (transaction, 1)
    for outcome in ("verified", "refused", "gone"):
        answer = messages.StagesAre(seat.group, held.group, *name, round_, outcome)
        nodes.machines[0].turn(lambda answer=answer: deciding.heard(stranger, answer))
        assert not far.is_answered(request)
        assert not seat.core._commits[transaction].deciding
    producers = b"attempt-00000001"
    for message in (
        messages.DiscardStages(0, *name, producers),
        messages.DiscardStages(held.group, *name, producers),
        messages.ForgetDecisions(seat.group, held.group, 99),
    ):
        nodes.machines[at].turn(lambda message=message: taking_part.heard(stranger, message))
    stale = messages.WhatOfStages(seat.group, held.group, *name, producers, idle=True)
    nodes.machines[0].turn(lambda: deciding.heard(stranger, stale))
    handed = messages.HandOver(seat.group, 99, 1, (messages.Part(0, 1, b"nonsense"),))
    nodes.machines[0].turn(lambda: deciding.heard(stranger, handed))
    assert held.core.stages
    answer = messages.StagesAre(seat.group, held.group, *name, round_, "verified")
    nodes.machines[0].turn(lambda: deciding.heard(f"n{at}", answer))
    nodes.until(lambda: transaction in seat.core._unfinished, 5, "it is decided")
    for outcome in ("applied", "gone"):
        answer = messages.StagesAre(seat.group, held.group, *name, 0, outcome)
        nodes.machines[0].turn(lambda answer=answer: deciding.heard(stranger, answer))
    nodes.run(100_000)
    assert transaction in seat.core._unfinished
    assert not far.is_answered(request)
    del taking_part.others.send  # type: ignore[attr-defined]
    taking_part._rolling.begin = told_to_apply  # type: ignore[method-assign]
    assert isinstance(far.answer_to(request), frames.Done)
    assert held.core.high_watermark == 1


def _lose(_node, _message):
    """The link is down."""


def test_while_a_participant_is_down_the_transaction_waits_and_then_is_whole():
    nodes = Spread()
    transaction = nodes.id_decided_at(0)
    attempt = Attempt(nodes, transaction, 0, 1, nodes.one_each(), serial=1).stage()
    nodes.crash(2)
    far = Asking(nodes, 0)
    request = far.begin(
        frames.CommitTransaction, transaction=transaction, number=0,
        participants=tuple(attempt.named.values()),
    )  # fmt: skip
    nodes.run(5 * SECOND)
    assert not far.is_answered(request)
    assert [nodes.hosted(p).core.high_watermark for p in nodes.one_each()[:2]] == [0, 0]
    nodes.start(2)
    assert isinstance(far.answer_to(request), frames.Done)
    assert ends(nodes) == [1, 1, 1]


def test_ten_thousand_participants_on_three_nodes():
    """A thousand producers in each of ten partitions."""
    nodes = Spread(partitions=10)
    transaction = nodes.id_decided_at(0)
    per = 1_000 if LONG else 150
    homes = nodes.homes("t")
    named = []
    for partition in range(10):
        far = Far(nodes, homes[partition])
        for serial in range(per):
            one = Attempt(nodes, transaction, 0, 1, [], serial=partition * 10_000 + serial)
            assert one._push(far, partition) is not None
            far.told.clear()
            named += one.named.values()
    far = Asking(nodes, 0)
    half = len(named) // 2
    far.done(
        frames.NameParticipants, transaction=transaction, number=0, start=0,
        participants=tuple(named[:half]),
    )  # fmt: skip
    request = far.begin(
        frames.CommitTransaction, transaction=transaction, number=0, named=half,
        participants=tuple(named[half:]),
    )  # fmt: skip
    assert isinstance(far.answer_to(request), frames.Done)
    assert [nodes.hosted(p).core.high_watermark for p in range(10)] == [per] * 10


# --- the death of each node at each step ---------------------------------------------------------


def steps() -> list[str]:
    nodes = Spread()
    nodes.begin_points()
    check(nodes, story(nodes, nodes.id_decided_at(1)))
    return nodes.points


def test_the_steps_are_those_that_a_transaction_over_nodes_has():
    assert set(steps()) >= {
        "AskStages is sent", "ApplyStages is sent", "StagesAre is sent", "DiscardStages is sent",
        "ForgetDecisions is sent", "decider says Answer", "decider says AppendDecision",
        "decider says Apply", "decider says Drop", "decider says Forget", "decider says Verify",
    }  # fmt: skip


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_transaction_is_whole_or_not_there_whichever_node_dies_at_whichever_step(victim: int):
    """The id is decided at node 1; node 0 is the root, too."""
    count = len(steps())
    outcomes: Counter[str] = Counter()
    for kill_at in range(0 if LONG else victim, count, 1 if LONG else 8):
        nodes = Spread(f"spread/{kill_at}", victim=victim)
        nodes.begin_points()
        nodes.kill_at = kill_at
        made = story(nodes, nodes.id_decided_at(1))
        assert nodes.killed or kill_at >= len(nodes.points)
        try:
            outcomes += check(nodes, made)
        except AssertionError as error:
            raise AssertionError(f"node {victim} dies when {nodes.killed} ({kill_at})") from error
    assert outcomes["committed 1"] > 5, outcomes


# --- from one node to several --------------------------------------------------------------------


def alone() -> Spread:
    return Spread("alone", nodes=1, partitions=2)


def test_what_the_founder_has_decided_alone_is_known_when_others_have_come():
    nodes = alone()
    first = Attempt(nodes, "job", 5, 1, [0, 1], serial=1).stage().commit()
    given_up = Attempt(nodes, "job", 6, 1, [0], serial=2).stage().abort()
    assert (first.outcome, given_up.outcome) == ("committed", "aborted")
    own = nodes.root.node.node._wiring.deciders.own.core  # type: ignore[union-attr]
    assert list(own.decided) == ["job"]
    nodes.grow(2)
    nodes.until(nodes.deciders_are_ready, 20, "the deciders have taken over")
    again = Attempt(nodes, "job", 5, 1, [0, 1], serial=3).stage().commit()
    assert again.outcome == "committed"  # already: nothing is published again
    other = Attempt(nodes, "job", 5, 7, [0, 1], serial=4).stage().commit()
    behind = Attempt(nodes, "job", 4, 1, [0, 1], serial=5).stage().commit()
    assert (other.outcome, behind.outcome) == ("transactionConflict",) * 2
    late = Attempt(nodes, "job", 6, 1, [0], serial=2)
    late.named = given_up.named
    assert late.commit().outcome == "transactionAborted"
    following = Attempt(nodes, "job", 7, 1, [0, 1], serial=6).stage().commit()
    assert following.outcome == "committed"
    assert [nodes.hosted(p).core.high_watermark for p in (0, 1)] == [2, 2]
    for number in range(3):
        nodes.crash(number)
        nodes.start(number)
        nodes.settle()
    nodes.until(nodes.deciders_are_ready, 20, "and know it still")
    again = Attempt(nodes, "job", 5, 1, [0, 1], serial=7)
    again.named = first.named
    assert again.commit().outcome == "transactionConflict"  # behind number 7
    assert list(own.decided) == ["job"]  # what came later was decided by others


def test_what_the_founder_has_begun_alone_it_finishes_and_others_wait_for_that_id_only():
    nodes = alone()
    attempt = Attempt(nodes, "job", 1, 1, [0, 1], serial=1).stage()
    held = nodes.root.node.node.transactions  # type: ignore[union-attr]
    begin, begun = held._rolling.begin, []

    def hold(apply, by):
        if apply.transaction == "job":
            begun.append(apply)
        else:
            begin(apply, by)

    held._rolling.begin = hold  # type: ignore[method-assign]
    asked = Asking(nodes, 0)
    request = asked.begin(
        frames.CommitTransaction, transaction="job", number=1,
        participants=tuple(attempt.named.values()),
    )  # fmt: skip
    nodes.until(lambda: len(begun) >= 2, 5, "it is decided")
    nodes.grow(2)
    nodes.run(5 * SECOND)
    following = Attempt(nodes, "job", 2, 1, [0, 1], serial=2)
    far = Asking(nodes, nodes.decided_at("job"))
    busy = far.refused(frames.CommitTransaction, transaction="job", number=2, participants=())
    assert busy.code == "busy"
    other = Attempt(nodes, "other", 0, 1, [0, 1], serial=3).stage().commit()
    assert other.outcome == "committed"
    assert not asked.is_answered(request)
    held._rolling.begin = begin  # type: ignore[method-assign]
    assert isinstance(asked.answer_to(request), frames.Done)
    assert following.stage().commit().outcome == "committed"
    assert [nodes.hosted(p).core.high_watermark for p in (0, 1)] == [3, 3]
    nodes.until(nodes.is_at_rest, 20, "nothing is left")


def test_a_decision_that_the_founders_death_undoes_is_not_waited_for():
    """It was on its way to the log when the cluster got its deciders."""
    nodes = alone()
    transaction = "job"
    held = nodes.root.node.node.transactions  # type: ignore[union-attr]
    founded, usual = held.founded, nodes.root._disk_us_max
    slow = 100_000 * SECOND

    def founds() -> None:
        if DECIDERS in held._wiring.catalogue.topics and nodes.root._disk_us_max == usual:
            own = held._deciders.own
            asked = decisions.CommitAsked(Origin(99, 0, 1), transaction, 0, (), nodes.now_us)
            held.inbox.append((own, asked))
            held.pump()
            nodes.root.slow_disk(slow)
        founded()

    held.founded = founds  # type: ignore[method-assign]
    nodes.add_machine().start([nodes.root.address])
    nodes.until(lambda: nodes.root._disk_us_max == slow, 60, "there are deciders")
    far = nodes.decided_at(transaction)
    assert far == 1
    nodes.run(3 * SECOND)
    assert not held._deciders.own.core.decided
    nodes.crash(0)
    nodes.root.slow_disk(usual)
    nodes.run(SECOND)
    nodes.start(0)
    nodes.until(nodes.deciders_are_ready, 20, "the deciders have taken over")
    assert Attempt(nodes, transaction, 0, 1, [0], serial=1).stage().commit().outcome == "committed"


def test_each_life_of_the_founder_hands_over_under_a_term_of_its_own(monkeypatch):
    nodes = alone()
    nodes.grow(1)
    nodes.until(nodes.deciders_are_ready, 20, "the deciders have taken over")
    terms = []
    for _ in range(3):
        nodes.crash(0)
        with monkeypatch.context() as patch:
            patch.setattr(Partitions, "admit_tidying", _refuse)
            nodes.start(0)
            nodes.run(3 * SECOND)
            held = nodes.root.node.node.transactions  # type: ignore[union-attr]
            assert held._legacy is None  # as long as there is no room to mark its log
        nodes.until(lambda held=held: held._legacy is not None, 5, "it hands over")
        nodes.until(lambda held=held: held._legacy.is_over, 5, "all have everything")
        terms.append(held._legacy.term)
    assert sorted(set(terms)) == terms


@pytest.mark.parametrize("decided_at", [0, 1])
def test_what_a_node_has_decided_by_itself_in_an_older_version_is_not_repeated(decided_at: int):
    """There each node has decided on its own topics, and not the founder alone."""
    nodes = Spread()
    transaction = nodes.id_decided_at(decided_at)
    partition = nodes.one_each()[1]
    old = nodes.machines[1].node.node.transactions  # type: ignore[union-attr]
    asked = decisions.CommitAsked(Origin(99, 0, 1), transaction, 7, (), nodes.now_us)
    old.inbox.append((old._deciders.own, asked))
    nodes.machines[1].turn(old.pump)
    nodes.run()
    for serial, (number, outcome) in enumerate(
        [(7, "transactionConflict"), (6, "transactionConflict"), (8, "committed")]
    ):
        attempt = Attempt(nodes, transaction, number, 1, [partition], serial=serial)
        assert attempt.stage().commit().outcome == outcome
        nodes.crash(1)
        nodes.start(1)
        nodes.settle()
    assert nodes.hosted(partition).core.high_watermark == 1


def test_a_node_alone_decides_by_itself_and_has_no_deciders():
    nodes = alone()
    assert Attempt(nodes, "job", 0, 1, [0, 1], serial=1).stage().commit().outcome == "committed"
    wiring = nodes.root.node.node._wiring  # type: ignore[union-attr]
    assert [seat.is_own for seat in wiring.deciders] == [True]
    assert DECIDERS not in wiring.catalogue.topics


def test_a_decider_whose_topic_is_not_known_to_be_committed_is_there_all_the_same(monkeypatch):
    nodes = Spread()
    transaction = nodes.id_decided_at(1)
    assert Attempt(nodes, transaction, 3, 1, nodes.one_each(), serial=1).stage().commit()
    nodes.settle()
    nodes.crash(1)
    recover, topics = Group0.recover, []

    def recover_most(group0, own):
        recover(group0, own)
        topics.append(group0._wiring.catalogue.topics.pop(DECIDERS))

    with monkeypatch.context() as patch:
        patch.setattr(Group0, "recover", recover_most)
        nodes.machines[1].boot()
    node = nodes.machines[1].node.node  # type: ignore[union-attr]
    assert DECIDERS not in node._wiring.catalogue.topics
    assert [seat.is_own for seat in node._wiring.deciders] == [True]  # the others are kept
    with pytest.raises(Busy):
        node.transactions.seat_of("x")
    assert isinstance(node.transactions.refusal("x", 0, b"p" * 16), Busy)
    node.transactions.heard("n0", messages.DiscardStages(0, "x", 0, b"p" * 16))  # nobody knows
    node._wiring.catalogue.topics[DECIDERS] = topics[0]
    nodes.machines[1].turn(lambda: node._topics._deciders_made(topics[0]))
    nodes.machines[1].turn(lambda: nodes.machines[1].node.start([nodes.root.address]))
    nodes.until(lambda: nodes.machines[1].node.is_caught_up, 20, "it has caught up")
    nodes.settle()
    again = Attempt(nodes, transaction, 3, 1, nodes.one_each(), serial=2).stage().commit()
    assert again.outcome == "committed"
    assert ends(nodes) == [1, 1, 1]


# --- planted bugs --------------------------------------------------------------------------------


def not_hosted_here_is_gone(monkeypatch):
    """A node that has not heard of a topic yet, or holds it no more, is taken for its word."""
    monkeypatch.setattr(Transactions, "_apply", _applying_here_only(Transactions._apply))


def _applying_here_only(apply):
    def applies(self, seat, effect):
        if self._wiring.partitions.get(effect.group) is None:
            self._partition_gone(effect, seat.group)
        else:
            apply(self, seat, effect)

    return applies


def do_not_ask_other_nodes_what_is_staged(monkeypatch):
    verify = Transactions._verify

    def verifies(self, seat, effect):
        if self._wiring.partitions.get(effect.group) is None:
            verified = decisions.Verified(effect.group, effect.transaction, effect.round, None)
            self.inbox.append((seat, verified))
        else:
            verify(self, seat, effect)

    monkeypatch.setattr(Transactions, "_verify", verifies)


def say_applied_when_it_is_begun(monkeypatch):
    told = Transactions._told_to_apply

    def tells(self, node, message):
        told(self, node, message)
        self._reply(node, message, 0, "applied")

    monkeypatch.setattr(Transactions, "_told_to_apply", tells)


def take_any_decider_for_ones_own(monkeypatch):
    """Decisions of several deciders are counted as if one had made them."""
    begin = RollForward.begin
    monkeypatch.setattr(
        RollForward, "begin", lambda self, apply, _by: begin(self, apply, DECISIONS)
    )


def forget_the_decisions_of_all(monkeypatch):
    forgets = Stages.apply

    def applies(self, control, *, replayed):
        effects = forgets(self, control, replayed=replayed)
        if "forgotten" in control:
            for decider in range(DECISIONS, DECISIONS + 10):
                self.forgotten[decider] = 1_000
        return effects

    monkeypatch.setattr(Stages, "apply", applies)


def never_say_it_again(monkeypatch):
    monkeypatch.setattr(decider_core, "REPEAT_US", 10**15)


def tell_nobody_of_an_abort(monkeypatch):
    """And nobody asks: what is staged elsewhere stays for ever."""
    monkeypatch.setattr(Talking, "tell_all", lambda self, message: None)
    monkeypatch.setattr(Transactions, "_ask_about", lambda self, *args, **options: None)


def decide_without_a_durable_decision(monkeypatch):
    monkeypatch.setattr(Deciders, "append", lambda self, seat, index, body: None)
    pump = Transactions.pump

    def pumps(self):
        pump(self)
        for seat in self._deciders:
            if seat.core._pending:
                for effect in seat.core.durable(seat.core._pending[-1][0]):
                    self._carry_out(seat, effect)
        if self.inbox:
            pumps(self)

    monkeypatch.setattr(Transactions, "pump", pumps)


def answer_any_decider_that_is_here(monkeypatch):
    """The answer is taken for one of a round of verifying that is over."""
    monkeypatch.setattr(
        decider_core.Decider, "_verified", _of_any_round(decider_core.Decider._verified)
    )
    monkeypatch.setitem(
        decider_core.Decider._handlers, decisions.Verified, decider_core.Decider._verified
    )


def _of_any_round(verified):
    def hears(self, event):
        pending = self._commits.get(event.transaction)
        if pending is not None:
            event.round, event.error = pending.round, None
        return verified(self, event)

    return hears


BUGS = [
    not_hosted_here_is_gone,
    do_not_ask_other_nodes_what_is_staged,
    say_applied_when_it_is_begun,
    take_any_decider_for_ones_own,
    forget_the_decisions_of_all,
    never_say_it_again,
    tell_nobody_of_an_abort,
    decide_without_a_durable_decision,
    answer_any_decider_that_is_here,
]


def hard_life(kill_at: int, victim: int) -> None:
    """Two ids with deciders on different nodes; somebody names what was never staged."""
    nodes = Spread(f"spread/{kill_at}", victim=victim)
    nodes.begin_points()
    nodes.kill_at = kill_at
    made = story(nodes, nodes.id_decided_at(1))
    check(nodes, made)
    before = ends(nodes)
    for number in range(3):
        transaction = nodes.id_decided_at(number, f"other{number}-")
        one = Attempt(nodes, transaction, 0, 1, nodes.one_each(), serial=10 + number).stage()
        wrong = Attempt(nodes, transaction, 0, 1, nodes.one_each(), serial=10 + number)
        wrong.named = {
            at: replace(each, crc=each.crc ^ (at == nodes.one_each()[2])) if number else each
            for at, each in one.named.items()
        }
        assert wrong.commit().outcome == ("transactionConflict" if number else "committed")
        assert one.commit().outcome == "committed"
        assert ends(nodes) == [end + number + 1 for end in before]
    aborted = Attempt(nodes, "nobody", 0, 1, nodes.one_each(), serial=20).stage().abort()
    assert aborted.outcome == "aborted"
    nodes.until(nodes.is_at_rest, 60, "nothing is staged, nothing is unfinished")


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_hard_life_is_lived_without_planted_bugs():
    for victim in range(3):
        for kill_at in range(victim, 60, 1 if LONG else 20):
            hard_life(kill_at, victim)


SHY = (never_say_it_again, say_applied_when_it_is_begun)  # they need many lives to be found


@pytest.mark.stress
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug, monkeypatch):
    if bug in SHY and not LONG:
        pytest.skip("HOCKET_STRESS=long")
    bug(monkeypatch)
    for kill_at in range(60):
        for victim in range(3):
            try:
                hard_life(kill_at, victim)
            except AssertionError:
                return
    raise AssertionError("the bug was not found")
