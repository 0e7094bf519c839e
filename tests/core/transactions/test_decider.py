"""The decider by plain calls: what it is told, what it says, what it remembers."""

from __future__ import annotations

import json

import pytest

from hocket.core.origin import Origin
from hocket.core.transactions import decider as transactions, participants as participants_core
from hocket.core.transactions.decider import IDLE_US, REPEAT_US, VERIFY_US, Decider
from hocket.core.transactions.events import (
    AbortAsked,
    Answer,
    AppendDecision,
    Applied,
    AppliedFound,
    Apply,
    CommitAsked,
    Drop,
    Effect,
    Forget,
    StageFound,
    Started,
    Tick,
    Verified,
    Verify,
)
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import (
    Busy,
    HocketError,
    LimitExceeded,
    OutOfRange,
    TransactionAborted,
    TransactionConflict,
    UnknownTopic,
)
from hocket.model import HOUR_US, Participant

ALICE, BOB, CAROL = b"a" * 16, b"b" * 16, b"c" * 16
NOW = 10**15


def asker(request: int = 1) -> Origin:
    return Origin(7, 0, request)


def participant(
    group: int | None, by: bytes = ALICE, *, batches: int = 2, records: int = 5
) -> LocatedParticipant:
    topic = f"topic-{group}"
    return LocatedParticipant(group, Participant(topic, 0, by, batches, records, 99))


BOTH = (participant(4), participant(5))


class Decided:
    """A decider with its log."""

    def __init__(self) -> None:
        self.decider = Decider()
        self.log: list[dict] = []
        self.now_us = NOW
        self.decider.step(Started(NOW))

    def step(self, event) -> list[Effect]:
        return self._kept(self.decider.step(event))

    def durable(self) -> list[Effect]:
        return self._kept(self.decider.durable(len(self.log)))

    def _kept(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, AppendDecision):
                assert effect.index == len(self.log) + 1
                self.log.append(json.loads(effect.body))
        return [effect for effect in effects if not isinstance(effect, AppendDecision)]

    def commit(
        self, number: int = 0, participants: tuple[LocatedParticipant, ...] = BOTH, request: int = 1
    ):
        return self.step(CommitAsked(asker(request), "job", number, participants, self.now_us))

    def abort(self, number: int = 0, *by: bytes, request: int = 1) -> list[Effect]:
        return self.step(AbortAsked(asker(request), "job", number, by or (ALICE,), self.now_us))

    def verify(self, effects: list[Effect]) -> list[Effect]:
        said: list[Effect] = []
        for each in effects:
            if isinstance(each, Verify):
                said += self.step(Verified(each.group, each.transaction, each.round, None))
        return said

    def committed(
        self, number: int = 0, participants: tuple[LocatedParticipant, ...] = BOTH
    ) -> list[Effect]:
        """Decided, durably; what follows from it."""
        assert self.verify(self.commit(number, participants)) == []
        return self.durable()

    def finished(
        self, number: int = 0, participants: tuple[LocatedParticipant, ...] = BOTH
    ) -> None:
        for effect in self.committed(number, participants):
            assert isinstance(effect, Apply | Answer)
            if isinstance(effect, Apply):
                self.step(Applied(effect.group, "job", number))
        assert self.durable() == []

    def again(self, *, snapshot_at: int | None = None) -> Decided:
        """As it comes up over its log."""
        other = Decided()
        other.decider = Decider()
        start = 0
        if snapshot_at is not None:
            before = Decider()
            for index, change in enumerate(self.log[:snapshot_at], 1):
                before.replayed(index, json.dumps(change).encode())
            start, state = before.snapshot()
            other.decider.restore(start, json.loads(json.dumps(state)))
        for index, change in enumerate(self.log[start:], start + 1):
            other.decider.replayed(index, json.dumps(change).encode())
        other.log = list(self.log)
        return other


def the_error(effects: list[Effect], kind: type[HocketError], request: int = 1) -> str:
    [answer] = effects
    assert isinstance(answer, Answer)
    assert answer.origin == asker(request)
    assert type(answer.error) is kind
    return str(answer.error)


# --- committing ----------------------------------------------------------------------------------


def test_stage_decide_once_roll_forward():
    decided = Decided()
    asked = decided.commit()
    assert asked == [
        Verify(4, "job", 0, NOW, (BOTH[0].participant,)),
        Verify(5, "job", 0, NOW, (BOTH[1].participant,)),
    ]
    assert decided.step(Verified(4, "job", NOW, None)) == []
    assert decided.log == []
    assert decided.step(Verified(5, "job", NOW, None)) == []
    assert [change["decide"] for change in decided.log] == ["commit"]
    assert decided.durable() == [
        Apply(4, "job", 0, 1, ((ALICE, 2),)),
        Apply(5, "job", 0, 1, ((ALICE, 2),)),
    ]
    assert decided.step(Applied(4, "job", 0)) == []
    assert decided.step(Applied(5, "job", 0)) == [Answer(asker(), None)]
    assert decided.log[1:] == [{"finished": ["job", 0]}]
    assert decided.step(Tick(NOW + 1)) == []  # finished only when that is durable
    assert decided.durable() == []
    assert decided.step(Tick(NOW + 2)) == [Forget(4, 1), Forget(5, 1)]
    assert decided.step(Tick(NOW + 3)) == []


def test_producers_of_one_partition_are_named_in_their_order():
    decided = Decided()
    participants = (participant(4, BOB, batches=1), participant(5), participant(4, ALICE))
    assert decided.committed(participants=participants) == [
        Apply(4, "job", 0, 1, ((BOB, 1), (ALICE, 2))),
        Apply(5, "job", 0, 1, ((ALICE, 2),)),
    ]


def test_an_empty_transaction_is_decided_and_done():
    decided = Decided()
    assert decided.committed(participants=()) == [Answer(asker(), None)]
    assert decided.commit(0, ()) == [Answer(asker(), None)]
    assert "no records, not {'topic-4': 5}" in the_error(
        decided.commit(0, (participant(4),)), TransactionConflict
    )


def test_what_one_participant_does_not_have_is_not_decided():
    decided = Decided()
    decided.commit()
    error = TransactionConflict("no such stage")
    assert decided.step(Verified(4, "job", NOW, error)) == [Answer(asker(), error)]
    assert decided.step(Verified(5, "job", NOW, None)) == []
    assert decided.log == []
    assert decided.commit() != []  # he may try again


def test_answers_of_an_earlier_round_count_for_nothing():
    decided = Decided()
    decided.commit()
    decided.step(Verified(4, "job", NOW, Busy("not yet")))
    decided.commit()
    assert decided.step(Verified(4, "job", NOW, None)) == []
    assert decided.step(Verified(5, "job", NOW, None)) == []
    assert decided.log == []
    decided.step(Verified(4, "job", NOW + 1, None))
    decided.step(Verified(5, "job", NOW + 1, None))
    assert len(decided.log) == 1
    assert decided.step(Verified(5, "job", NOW + 1, None)) == []
    assert len(decided.log) == 1


def test_whoever_asks_the_same_meanwhile_waits_for_the_same():
    decided = Decided()
    asked = decided.commit()
    assert decided.commit(request=2) == []
    the_error(decided.commit(participants=(participant(4),), request=3), Busy, 3)
    the_error(decided.commit(number=1, request=3), Busy, 3)
    decided.verify(asked)
    decided.durable()
    assert decided.commit(request=4) == []  # decided, and not yet applied
    decided.step(Applied(4, "job", 0))
    assert decided.step(Applied(5, "job", 0)) == [
        Answer(asker(request), None) for request in (1, 2, 4)
    ]
    assert decided.commit(request=5) == [
        Drop(4, "job", 0, (ALICE,)), Drop(5, "job", 0, (ALICE,)), Answer(asker(5), None),
    ]  # fmt: skip


def test_the_next_number_waits_until_the_last_is_applied_everywhere():
    decided = Decided()
    decided.committed()
    assert "number 0" in the_error(decided.commit(1), Busy)
    decided.step(Applied(4, "job", 0))
    the_error(decided.commit(1), Busy)
    decided.step(Applied(5, "job", 0))
    the_error(decided.commit(1), Busy)
    decided.durable()
    assert decided.commit(1) != []


def test_the_same_content_again_is_done_already_and_what_was_staged_for_it_dropped():
    decided = Decided()
    decided.finished()
    another = (participant(4, BOB, batches=1), participant(5, BOB, batches=7))
    assert decided.commit(participants=another) == [
        Drop(4, "job", 0, (BOB,)), Drop(5, "job", 0, (BOB,)), Answer(asker(), None),
    ]  # fmt: skip
    gone = (LocatedParticipant(None, another[0].participant), another[1])
    assert decided.commit(participants=gone) == [Drop(5, "job", 0, (BOB,)), Answer(asker(), None)]


def test_other_content_is_a_conflict():
    decided = Decided()
    decided.finished()
    message = the_error(
        decided.commit(participants=(participant(4), participant(5, records=6))),
        TransactionConflict,
    )
    assert "'topic-5': 5" in message
    assert "'topic-5': 6" in message


def test_a_number_below_the_last_is_a_conflict():
    decided = Decided()
    decided.finished(number=3)
    assert "number 3" in the_error(decided.commit(2), TransactionConflict)
    assert isinstance(decided.decider.refusal("job", 2, ALICE), TransactionConflict)
    assert decided.decider.refusal("job", 3, ALICE) is None
    assert decided.decider.refusal("job", 4, ALICE) is None
    assert decided.decider.refusal("other", 0, ALICE) is None


@pytest.mark.parametrize(
    ("participants", "kind"),
    [
        ((participant(4), participant(None)), UnknownTopic),
        ((participant(4), participant(4)), OutOfRange),
        ((participant(4, b"short"),), OutOfRange),
        ((participant(4, batches=0),), OutOfRange),
    ],
)
def test_participants_that_cannot_be_are_refused(participants, kind):
    decided = Decided()
    the_error(decided.commit(participants=participants), kind)
    assert decided.commit() != []


def test_there_are_not_too_many_participants(monkeypatch):
    monkeypatch.setattr(participants_core, "PARTICIPANTS_MAX", 1)
    assert "at most 1" in the_error(Decided().commit(), LimitExceeded)


# --- aborting ------------------------------------------------------------------------------------


def test_an_abort_is_told_when_it_is_durable():
    decided = Decided()
    assert decided.abort() == []
    assert decided.log == [
        {"decide": "abort", "id": "job", "number": 0, "producers": [ALICE.hex()]}
    ]
    dropped = [Drop(None, "job", 0, (ALICE,)), Answer(asker(), None)]
    assert decided.durable() == dropped
    assert decided.abort() == dropped  # again: nothing new is to be decided
    assert len(decided.log) == 1


def test_who_was_aborted_is_part_of_no_commit_and_its_number_can_be_used():
    decided = Decided()
    decided.abort()
    the_error(decided.commit(), Busy)  # it is not said before it is durable
    decided.durable()
    assert "dropped" in the_error(decided.commit(), TransactionAborted)
    the_error(
        decided.commit(participants=(participant(4, BOB), participant(5))), TransactionAborted
    )
    the_error(decided.commit(1), TransactionAborted)  # whatever its number
    assert isinstance(decided.decider.refusal("job", 0, ALICE), TransactionAborted)
    assert decided.decider.refusal("job", 0, BOB) is None
    decided.finished(participants=(participant(4, BOB), participant(5, BOB)))
    assert decided.decider.dropped.of("job") == {}
    # As many records for each topic: whose they are does not matter any more.
    assert decided.commit()[-1] == Answer(asker(), None)


def test_who_was_aborted_is_known_until_a_number_as_high_is_committed():
    decided = Decided()
    decided.abort(1, BOB)
    decided.abort(2, CAROL)
    decided.durable()
    decided.finished(0)
    assert decided.decider.dropped.of("job") == {BOB: 1, CAROL: 2}
    decided.finished(1)
    assert decided.decider.dropped.of("job") == {CAROL: 2}


def test_an_abort_wins_over_what_is_not_decided():
    decided = Decided()
    asked = decided.commit()
    assert decided.abort(request=2) == []
    assert decided.verify(asked) == []
    assert decided.abort(request=3) == []
    drop, told, done, *again = decided.durable()
    assert (drop, done) == (Drop(None, "job", 0, (ALICE,)), Answer(asker(2), None))
    the_error([told], TransactionAborted)
    assert again == [drop, Answer(asker(3), None)]


def test_an_abort_of_others_does_not_stop_what_is_being_committed():
    decided = Decided()
    asked = decided.commit()
    assert decided.abort(0, BOB, request=2) == []
    assert decided.verify(asked) == []
    assert decided.abort(0, CAROL, request=3) == []  # while it is being decided too
    assert [change["decide"] for change in decided.log] == ["abort", "commit", "abort"]
    said = decided.durable()
    assert [each for each in said if not isinstance(each, Apply)] == [
        Drop(None, "job", 0, (BOB,)), Answer(asker(2), None),
        Drop(None, "job", 0, (CAROL,)), Answer(asker(3), None),
    ]  # fmt: skip
    assert decided.decider.dropped.of("job") == {}  # number 0 is committed


def test_what_is_being_committed_is_not_aborted():
    decided = Decided()
    decided.verify(decided.commit())
    the_error(decided.abort(), Busy)
    the_error(decided.abort(1), Busy)  # it names somebody who is part of it
    decided.durable()
    assert "is committed already" in the_error(decided.abort(), TransactionConflict)
    assert decided.abort(1, BOB) == []
    assert decided.durable() == [Drop(None, "job", 1, (BOB,)), Answer(asker(), None)]
    decided.step(Applied(4, "job", 0))
    decided.step(Applied(5, "job", 0))
    decided.durable()


def test_an_abort_that_comes_late_drops_what_is_left_over():
    decided = Decided()
    decided.finished(1)
    for number in (0, 1):
        drop, told = decided.abort(number, BOB)
        assert drop == Drop(None, "job", number, (BOB,))
        assert "number 1 is committed already" in the_error([told], TransactionConflict)
    assert [change.get("decide") for change in decided.log] == ["commit", None]


@pytest.mark.parametrize(
    ("producers", "kind"),
    [
        ((), OutOfRange),
        ((ALICE, b"short"), OutOfRange),
        ((ALICE, ALICE), OutOfRange),
        ((ALICE, BOB, CAROL), LimitExceeded),
    ],
)
def test_aborts_that_name_nobody_or_too_many_are_refused(producers, kind, monkeypatch):
    monkeypatch.setattr(participants_core, "PARTICIPANTS_MAX", 2)
    decided = Decided()
    the_error(decided.step(AbortAsked(asker(), "job", 0, producers, NOW)), kind)
    assert decided.log == []


# --- participants that ask -----------------------------------------------------------------------


def test_what_is_open_is_aborted_only_if_nobody_touches_it():
    decided = Decided()
    both = (ALICE, BOB)
    assert decided.step(StageFound(4, "job", 0, both, idle=False)) == []
    assert decided.log == []
    assert decided.step(StageFound(4, "job", 0, (ALICE,), idle=True)) == []
    assert decided.step(StageFound(5, "job", 0, (ALICE,), idle=True)) == []  # being decided
    assert [change["producers"] for change in decided.log] == [[ALICE.hex()]]
    assert decided.durable() == [Drop(None, "job", 0, (ALICE,))]
    gone = [Drop(4, "job", 0, (ALICE,))]
    assert decided.step(StageFound(4, "job", 0, both, idle=False)) == gone
    assert decided.step(StageFound(4, "job", 0, both, idle=True)) == gone
    assert [change["producers"] for change in decided.log[1:]] == [[BOB.hex()]]


def test_what_a_commit_names_is_not_aborted_because_it_is_idle():
    decided = Decided()
    asked = decided.commit()
    found = StageFound(4, "job", 0, (ALICE, BOB), idle=True)
    assert decided.step(found) == []
    assert [change["producers"] for change in decided.log] == [[BOB.hex()]]
    decided.verify(asked)
    assert decided.step(found) == []
    assert [change["decide"] for change in decided.log] == ["abort", "commit"]


def test_what_is_committed_is_applied_where_it_is_not_and_dropped_where_it_is():
    decided = Decided()
    decided.committed(number=2)
    assert decided.step(StageFound(4, "job", 2, (ALICE,), idle=True)) == [
        Apply(4, "job", 2, 1, ((ALICE, 2),))
    ]
    for group, number in ((9, 2), (4, 1)):
        left_over = StageFound(group, "job", number, (BOB,), idle=False)
        assert decided.step(left_over) == [Drop(group, "job", number, (BOB,))]
    assert decided.step(StageFound(4, "job", 3, (BOB,), idle=False)) == []
    decided.step(Applied(4, "job", 2))
    assert decided.step(StageFound(4, "job", 2, (BOB,), idle=True)) == [Drop(4, "job", 2, (BOB,))]


def test_answers_that_nobody_waits_for_change_nothing():
    decided = Decided()
    assert decided.step(Applied(4, "job", 0)) == []
    decided.committed()
    assert decided.step(Applied(4, "job", 1)) == []
    assert decided.step(Applied(9, "job", 0)) == []
    decided.step(Applied(4, "job", 0))
    assert decided.step(Applied(4, "job", 0)) == []
    assert decided.step(Verified(4, "job", NOW, None)) == []
    assert len(decided.log) == 1


def test_history_ends_where_something_is_unfinished():
    decided = Decided()
    decided.committed()
    decided.step(CommitAsked(asker(), "other", 0, (), NOW))
    decided.durable()
    assert decided.step(AppliedFound(4)) == [Forget(4, 0)]
    decided.step(Applied(4, "job", 0))
    decided.step(Applied(5, "job", 0))
    decided.durable()
    assert decided.step(AppliedFound(4)) == [Forget(4, 2)]


def test_a_participant_is_told_to_forget_when_all_before_it_is_history():
    decided = Decided()
    decided.committed()
    asked = decided.step(CommitAsked(asker(), "other", 0, (participant(6),), NOW))
    decided.verify(asked)
    decided.durable()
    decided.step(Applied(6, "other", 0))
    decided.durable()
    assert decided.step(Tick(NOW + 1)) == []
    decided.step(Applied(4, "job", 0))
    decided.step(Applied(5, "job", 0))
    decided.durable()
    assert sorted(each.group for each in decided.step(Tick(NOW + 2))) == [4, 5, 6]


# --- time ----------------------------------------------------------------------------------------


def test_what_is_not_answered_is_said_again():
    decided = Decided()
    asked = decided.commit()
    decided.step(Verified(4, "job", NOW, None))
    assert decided.step(Tick(NOW + 1)) == []
    assert decided.step(Tick(NOW + REPEAT_US)) == asked[1:]
    decided.step(Verified(5, "job", NOW, None))
    assert decided.step(Tick(NOW + VERIFY_US)) == []  # its own log is waited for
    applies = decided.durable()
    decided.step(Applied(5, "job", 0))
    assert decided.step(Tick(NOW + VERIFY_US + 1)) == []
    assert decided.step(Tick(NOW + VERIFY_US + REPEAT_US)) == applies[:1]
    decided.step(Applied(4, "job", 0))
    assert decided.step(Tick(NOW + VERIFY_US + 9 * REPEAT_US)) == []


def test_who_does_not_verify_in_time_makes_the_asker_try_again():
    decided = Decided()
    decided.commit()
    decided.step(Verified(4, "job", NOW, None))
    assert "groups 5 did not answer" in the_error(decided.step(Tick(NOW + VERIFY_US)), Busy)
    assert decided.commit() != []


def test_ids_that_were_idle_for_long_are_forgotten():
    decided = Decided()
    decided.finished()
    decided.step(Tick(NOW + HOUR_US))
    assert len(decided.log) == 2
    later = NOW + IDLE_US + HOUR_US
    decided.step(CommitAsked(asker(), "young", 0, (), later - 1))
    decided.durable()
    decided.step(Tick(later))
    decided.step(Tick(later + HOUR_US))  # once is enough
    assert decided.log[3:] == [{"forget": [["job", 0]]}]
    assert isinstance(decided.decider.refusal("job", -1, ALICE), TransactionConflict)
    decided.durable()
    assert decided.decider.refusal("job", -1, ALICE) is None
    assert list(decided.decider.decided) == ["young"]
    assert list(decided.again().decider.decided) == ["young"]


def test_an_id_that_is_used_while_it_is_forgotten_stays():
    decided = Decided()
    decided.finished()
    asked = decided.commit(1)
    decided.verify(asked)
    decided.step(Tick(NOW + IDLE_US + HOUR_US))
    assert decided.log[3:] == [{"forget": [["job", 0]]}]
    decided.durable()
    assert decided.decider.decided["job"].number == 1


def test_what_is_unfinished_is_not_forgotten():
    decided = Decided()
    decided.committed()
    decided.step(Tick(NOW + IDLE_US + HOUR_US))
    assert len(decided.log) == 1


def test_too_many_ids_push_the_oldest_out(monkeypatch):
    monkeypatch.setattr(transactions, "IDS_MAX", 3)
    monkeypatch.setattr(transactions, "FORGOTTEN_AT_ONCE", 2)
    decided = Decided()
    for name in "abcdefg":
        decided.step(CommitAsked(asker(), name, 0, (), NOW))
    decided.durable()
    for tick in range(3):
        decided.step(Tick(NOW + tick))
        decided.durable()
    assert list(decided.decider.decided) == list("efg")


# --- the log -------------------------------------------------------------------------------------


def test_there_is_room_for_every_decision():
    decided = Decided()
    longest = "n" * 255
    participants = tuple(
        LocatedParticipant(
            2**40 + n, Participant(longest, 4095, b"\xff" * 16, 2**60, 2**60, 2**32 - 1)
        )
        for n in range(50)
    )
    commit = CommitAsked(asker(), longest, 2**60, participants, NOW)
    room = decided.decider.room_for(commit)
    asked = decided.step(commit)
    events = [Verified(each.group, longest, each.round, None) for each in asked]
    assert decided.decider.room_for(events[-1]) == 0
    for event in events[:-1]:
        decided.step(event)
    assert decided.decider.room_for(events[-1]) == room
    assert decided.decider.room_for(Verified(1, "none", 1, None)) == 0
    decided.step(events[-1])
    decided.durable()
    for n, each in enumerate(participants):
        applied = Applied(each.group, longest, 2**60)
        assert len(json.dumps({"finished": [longest, 2**60]})) < decided.decider.room_for(applied)
        decided.step(applied)
        assert len(decided.log) == 1 + (n == 49)
    decided.durable()
    producers = tuple(b"%016d" % n for n in range(1000))
    found = StageFound(1, longest, 2**60 + 1, producers, idle=True)
    abort = AbortAsked(asker(), longest, 2**60 + 2, (*producers, ALICE), NOW)
    room_for_both = [decided.decider.room_for(each) for each in (found, abort)]
    for event in (found, abort):
        decided.step(event)
        decided.durable()
    assert len(json.dumps(decided.log[0])) < room
    for change, most in zip(decided.log[2:], room_for_both, strict=True):
        assert len(json.dumps(change)) < most
    assert decided.decider.room_for(StageFound(1, longest, 0, producers, idle=False)) == 0
    assert decided.decider.room_for(Tick(NOW)) == decided.decider.room_for(Started(NOW)) == 0
    longest_forgotten = json.dumps({"forget": [[longest, 2**60]] * transactions.FORGOTTEN_AT_ONCE})
    assert len(longest_forgotten) < decided.decider.room_for(Tick(NOW + HOUR_US))


def a_life() -> Decided:
    decided = Decided()
    decided.finished()
    decided.abort(1, BOB)
    decided.abort(3, CAROL)
    decided.durable()
    decided.committed(2)
    return decided


@pytest.mark.parametrize("snapshot_at", [None, *range(len(a_life().log) + 1)])
def test_it_comes_up_as_it_was_and_says_again_what_is_not_finished(snapshot_at):
    life = a_life()
    again = life.again(snapshot_at=snapshot_at)
    assert again.decider.snapshot() == life.decider.snapshot()
    assert again.step(Started(NOW + 5)) == [
        Apply(4, "job", 2, 5, ((ALICE, 2),)),
        Apply(5, "job", 2, 5, ((ALICE, 2),)),
    ]
    assert again.decider.dropped.of("job") == {CAROL: 3}
    the_error(again.commit(1), TransactionConflict)
    assert again.commit(2) == []
    again.step(Applied(4, "job", 2))
    assert again.step(Applied(5, "job", 2)) == [Answer(asker(), None)]


def test_after_a_crash_rounds_have_other_numbers():
    decided = Decided()
    [first, _] = decided.commit()
    again = decided.again()
    again.step(Started(NOW + 1000))
    again.now_us = NOW + 1000
    [second, _] = again.commit()
    assert isinstance(first, Verify)
    assert isinstance(second, Verify)
    assert second.round > first.round


def test_what_older_versions_wrote_is_read_and_their_aborts_use_up_the_number():
    life = Decided()
    life.log = [{"decide": "abort", "id": "job", "number": 3, "members": []}]
    rows = [["job", 3, False, 1, {}, []], ["done", 4, True, 2, {"topic-4": 5}, []]]
    restored = Decided()
    restored.decider.restore(2, {"decided": rows, "last_decision": 2})
    rewritten = Decided()
    rewritten.decider.restore(2, json.loads(json.dumps(restored.decider.snapshot()[1])))
    for again in (life.again(), restored, rewritten):
        assert again.decider.dropped.of("job") == {}
        assert "use a higher one" in the_error(again.commit(3), TransactionAborted)
        assert "use a higher one" in the_error(again.commit(3, ()), TransactionAborted)
        assert isinstance(again.decider.refusal("job", 3, ALICE), TransactionAborted)
        assert "3, which is aborted already" in str(again.decider.refusal("job", 2, ALICE))
        assert "number 3 is aborted" in the_error(again.abort(2)[1:], TransactionConflict)
        assert again.abort(3) == [Drop(None, "job", 3, (ALICE,)), Answer(asker(), None)]
        found = StageFound(4, "job", 3, (ALICE,), idle=False)
        assert again.step(found) == [Drop(4, "job", 3, (ALICE,))]
    done = CommitAsked(asker(), "done", 4, (LocatedParticipant(None, BOTH[0].participant),), NOW)
    assert restored.step(done) == [Answer(asker(), None)]


def test_what_was_committed_with_members_named_twice_drops_each_once():
    decided = Decided()
    decided.finished(0)
    drop, _, done = decided.commit(
        0, (participant(4, BOB, records=2), participant(4, BOB, records=3), BOTH[1])
    )
    assert (drop, done) == (Drop(4, "job", 0, (BOB,)), Answer(asker(), None))


def test_members_are_looked_through_once_however_many_groups_there_are(monkeypatch):
    looked = []

    def counted(participants):
        looked.append(len(participants))
        return participants_core.by_group(participants)

    monkeypatch.setattr(transactions, "by_group", counted)
    decided = Decided()
    decided.committed(participants=tuple(participant(group) for group in range(4, 104)))
    assert looked == [100, 100]  # to verify, and to apply


# --- a log that several nodes keep ---------------------------------------------------------------


def test_who_leads_no_more_knows_everybody_who_is_not_answered():
    """They are told that it may have happened, and ask whoever leads next."""
    world = Decided()
    assert world.decider.waiting == []
    asked = world.commit(request=1)
    assert world.decider.waiting == [asker(1)]
    world.commit(request=2)  # the same once more: both wait for one decision
    assert world.decider.waiting == [asker(1), asker(2)]
    world.verify(asked)
    applied = world.durable()
    assert world.decider.waiting == [asker(1), asker(2)], "it is not applied everywhere yet"
    for effect in applied:
        assert isinstance(effect, Apply)
        world.step(Applied(effect.group, "job", 0))
    world.durable()
    assert world.decider.waiting == []


def test_who_waits_for_an_abort_is_known_and_so_is_whose_commit_it_prevents():
    world = Decided()
    world.commit(request=1)
    world.abort(0, request=2)
    assert world.decider.waiting == [asker(2), asker(1)]
    answers = world.durable()
    assert {each.origin for each in answers if isinstance(each, Answer)} == {asker(1), asker(2)}
    assert world.decider.waiting == []


def test_it_is_writing_while_an_entry_is_not_committed():
    """Only one that is not may go over to several voters."""
    world = Decided()
    world.verify(world.commit())
    assert world.decider.is_writing
    world.durable()
    assert not world.decider.is_writing


def test_an_entry_of_raft_takes_an_index_and_decides_nothing():
    world = Decided()
    world.decider.entered(1)
    world.log.append({"forget": []})
    assert world.decider.is_writing
    assert world.verify(world.commit()) == []
    assert [each.group for each in world.durable() if isinstance(each, Apply)] == [4, 5]
    assert world.decider.decided["job"].index == 2
    with pytest.raises(AssertionError):
        world.decider.entered(4)


# --- entries that are lost -----------------------------------------------------------------------


def without(decided: Decided, *lost: int) -> Decided:
    """As it comes up over its log, which has lost these entries."""
    other = Decided()
    other.decider = Decider()
    for index, change in enumerate(decided.log, 1):
        if index in lost:
            other.decider._indexes.last = index
        else:
            other.decider.replayed(index, json.dumps(change).encode())
    other.log = list(decided.log)
    other.decider.step(Started(NOW))
    return other


def test_what_finishes_or_forgets_a_decision_that_is_lost_changes_nothing():
    decided = Decided()
    decided.finished(0)
    decided.finished(1)
    assert [sorted(change)[0] for change in decided.log] == ["decide", "finished"] * 2
    assert without(decided, 1).decider.decided["job"].number == 1
    assert without(decided, 3).decider.decided["job"].number == 0
    assert not without(decided, 1, 3).decider.decided
    decided.log.append({"forget": [["job", 1]]})
    assert not without(decided, 1, 3).decider.decided
    assert without(decided, 3).decider.decided["job"].number == 0


def test_a_decision_whose_end_is_lost_is_told_again_and_does_not_stop_the_next():
    decided = Decided()
    decided.finished(0)
    assert len(decided.log) == 2
    again = without(decided, 2)
    assert again.decider._unfinished == {"job": None}
    for group in (4, 5):
        again.step(Applied(group, "job", 0))
    again.durable()
    assert not again.decider._unfinished
    forgotten = Decided()
    forgotten.log = [*decided.log, {"forget": [["job", 0]]}]
    again = without(forgotten, 2)
    assert not again.decider._unfinished
    assert again.commit(0) != []
    empty = Decided()
    empty.log = [*decided.log, {"decide": "commit", "id": "job", "number": 1, "members": []}]
    again = without(empty, 2)
    assert not again.decider._unfinished
    assert again.committed(2)


def test_decisions_go_on_behind_those_of_another_log():
    decider = Decider()
    decider.go_on_behind(7)
    assert decider.applied_index == 7
    decider.go_on_behind(3)
    decider.step(Started(0))
    effects = decider.step(CommitAsked(Origin(1, 0, 1), "job", 0, (), 0))
    assert [effect.index for effect in effects] == [8]
