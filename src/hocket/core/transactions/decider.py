"""The decider: what becomes of transactions. Stage, decide once, roll forward.

Rule 1: a commit is decided only when every participant has said that its stage is durable, and is
        what the asker names; the decision names participants, counts and CRCs.
Rule 2: only the decider aborts, and what it aborts is what some producers have staged, not a
        number: that can be staged by others, and committed. A producer that was aborted is part of
        no commit any more. A participant that has waited long asks.
Rule 3: participants keep what they have applied until they are told that all decisions up to some
        one are history; so repeating a decision does no harm, and it is repeated until answered.
Rule 4: transactions of one id are decided in the order of their numbers, and the next one only when
        the last is applied everywhere.
Rule 5: what is committed is never decided again. The same content again is done already; other
        content is a conflict.

Decisions are entries of the metadata's log. Participants are partitions, by the number of their
group; they answer by events, wherever they are, and messages to and from them may be lost, late or
double. A message from an earlier attempt is known by its number and counts for nothing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from hocket.core.metadata.metadata import Indexes
from hocket.core.origin import Origin
from hocket.core.transactions.dropped import Dropped
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
    Event,
    Forget,
    StageFound,
    Started,
    Tick,
    Verified,
    Verify,
)
from hocket.core.transactions.participants import (
    Member,
    by_group,
    groups_of,
    producers_of,
    records_of,
    wrong_with,
    wrong_with_producers,
)
from hocket.core.transactions.state import Abort, Attempt, Decided, behind, burned, busy, given_up
from hocket.errors import Busy, HocketError, TransactionConflict
from hocket.model import DAY_US, HOUR_US, SECOND_US, Participant

IDS_MAX = 100_000  # beyond it, those that were used longest ago are forgotten
IDLE_US = 7 * DAY_US  # after this long without a decision an id may be forgotten
FORGOTTEN_AT_ONCE = 100  # ids, so that their names fit into a small entry
REPEAT_US = SECOND_US  # what was not answered is said again
VERIFY_US = 30 * SECOND_US  # for all participants to say whether they have what is named
MEMBER_BYTES = 1024  # more than one of them takes in a decision, and more than the id does
PRODUCER_BYTES = 40  # more than one of them takes in an abort


class Decider:
    """A machine of the metadata's log. `step` never raises: what is wrong is an Answer."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        self.decided: dict[str, Decided] = {}  # by id, those of long ago first
        self.dropped = Dropped()
        self.applied_index = 0
        self._indexes = indexes or Indexes()
        self._attempts: dict[str, Attempt] = {}  # by id
        self._aborts: dict[int, Abort] = {}  # by the index of the decision
        self._unfinished: dict[str, None] = {}
        self._owed: dict[int, int] = {}  # group -> a decision that it may forget
        self._pending: deque[tuple[int, dict[str, Any]]] = deque()
        self._last_decision = 0
        self._last_attempt = 0
        self._forgetting: set[str] = set()
        self._now_us = 0
        self._forget_at_us = 0

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    # --- what users ask --------------------------------------------------------------------------

    def refusal(self, transaction: str, number: int, producer_id: bytes) -> HocketError | None:
        """Why this producer can stage nothing more for it; None if it can."""
        known = self.decided.get(transaction)
        if known is not None and number < known.number:
            return behind(transaction, number, known)
        if known is not None and number == known.number and known.aborted:
            return burned(transaction, number)
        # What is committed already may be done again, to find that out.
        if producer_id in self.dropped.of(transaction):
            return given_up(transaction, number)
        return None

    def _commit_asked(self, event: CommitAsked) -> list[Effect]:
        self._now_us = event.now_us
        transaction, number, origin = event.transaction, event.number, event.origin
        attempt = self._attempts.get(transaction)
        if attempt is not None:
            if (attempt.number, attempt.members) == (number, event.members):
                attempt.askers.append(origin)
                return []
            return [Answer(origin, busy(transaction, attempt.number))]
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            return self._asked_again(event, known)
        named = producers_of(event.members)
        if not self._being_dropped(transaction).isdisjoint(named):
            return [Answer(origin, busy(transaction, number))]
        if any(map(self.dropped.of(transaction).__contains__, named)):
            return [Answer(origin, given_up(transaction, number))]
        if transaction in self._unfinished:
            assert known is not None
            return [Answer(origin, busy(transaction, known.number))]
        wrong = wrong_with(event.members)
        if wrong is not None:
            return [Answer(origin, wrong)]
        return self._begin(transaction, number, event.members, [origin])

    def _asked_again(self, event: CommitAsked, known: Decided) -> list[Effect]:
        """What was decided stays; who names the same content only hears of it."""
        transaction, number = event.transaction, event.number
        if number < known.number:
            return [Answer(event.origin, behind(transaction, number, known))]
        if known.aborted:
            return [Answer(event.origin, burned(transaction, number))]
        records = records_of(event.members)
        if records != known.records:
            error = TransactionConflict(
                f"transaction {transaction!r} number {number} is committed already, with other "
                f"content: {known.records or 'no'} records, not {records or 'none'}"
            )
            return [Answer(event.origin, error)]
        if known.unapplied:
            known.askers.append(event.origin)
            return []
        # Whoever came too late has staged it once more.
        late = [
            Drop(
                group, transaction, number, tuple({each.producer_id: None for each in participants})
            )
            for group, participants in by_group(event.members).items()
        ]
        return [*late, Answer(event.origin, None)]

    def _begin(
        self, transaction: str, number: int, members: tuple[Member, ...], askers: list[Origin]
    ) -> list[Effect]:
        # By the time too, so that answers to an attempt before a crash are not taken for ours.
        self._last_attempt = max(self._last_attempt + 1, self._now_us)
        attempt = self._attempts[transaction] = Attempt(
            number, members, self._last_attempt, askers, self._now_us, self._now_us,
            dict.fromkeys(groups_of(members)),
        )  # fmt: skip
        if not members:
            return self._decide(transaction, attempt)
        return self._ask_to_verify(transaction, attempt)

    def _ask_to_verify(self, transaction: str, attempt: Attempt) -> list[Effect]:
        named = by_group(attempt.members)
        return [
            Verify(group, transaction, attempt.number, attempt.attempt, tuple(named[group]))
            for group in attempt.unverified
        ]

    def _abort_asked(self, event: AbortAsked) -> list[Effect]:
        self._now_us = event.now_us
        transaction, number, origin = event.transaction, event.number, event.origin
        wrong = wrong_with_producers(event.producers)
        if wrong is not None:
            return [Answer(origin, wrong)]
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            return self._abort_came_late(event, known)
        attempt = self._attempts.get(transaction)
        if attempt is not None and attempt.deciding and _names_one_of(attempt, event.producers):
            return [Answer(origin, busy(transaction, attempt.number))]
        if all(map(self.dropped.of(transaction).__contains__, event.producers)):
            return [Drop(None, transaction, number, event.producers), Answer(origin, None)]
        return self._abort(transaction, number, event.producers, [origin])

    def _abort_came_late(self, event: AbortAsked, known: Decided) -> list[Effect]:
        """Who was part of it is known only while it is being applied; what is left is dropped."""
        transaction, number = event.transaction, event.number
        error: TransactionConflict | None = TransactionConflict(
            f"transaction {transaction!r} number {number} cannot be aborted: number "
            f"{known.number} is {known.fate} already"
        )
        if number == known.number and known.aborted:
            error = None
        drops: list[Effect] = []
        if number < known.number or not known.members:
            drops.append(Drop(None, transaction, number, event.producers))
        return [*drops, Answer(event.origin, error)]

    def _abort(
        self, transaction: str, number: int, producers: tuple[bytes, ...], askers: list[Origin]
    ) -> list[Effect]:
        losers: list[Origin] = []
        attempt = self._attempts.get(transaction)
        if attempt is not None and not attempt.deciding and _names_one_of(attempt, producers):
            losers = self._attempts.pop(transaction).askers
        effects = self._append(
            {
                "decide": "abort",
                "id": transaction,
                "number": number,
                "producers": [producer_id.hex() for producer_id in producers],
            }
        )
        self._aborts[self._pending[-1][0]] = Abort(
            transaction, frozenset(producers), askers, losers
        )
        return effects

    def _being_dropped(self, transaction: str) -> set[bytes]:
        aborts = (each for each in self._aborts.values() if each.transaction == transaction)
        return set().union(*(abort.producers for abort in aborts))

    # --- what participants say -------------------------------------------------------------------

    def _verified(self, event: Verified) -> list[Effect]:
        attempt = self._attempts.get(event.transaction)
        if attempt is None or attempt.attempt != event.attempt or attempt.deciding:
            return []
        if event.error is not None:
            del self._attempts[event.transaction]
            return [Answer(origin, event.error) for origin in attempt.askers]
        attempt.unverified.pop(event.group, None)
        if attempt.unverified:
            return []
        return self._decide(event.transaction, attempt)

    def _decide(self, transaction: str, attempt: Attempt) -> list[Effect]:
        attempt.deciding = True
        return self._append(
            {
                "decide": "commit",
                "id": transaction,
                "number": attempt.number,
                "members": [member.encoded() for member in attempt.members],
            }
        )

    def _applied(self, event: Applied) -> list[Effect]:
        known = self.decided.get(event.transaction)
        if known is None or known.number != event.number or event.group not in known.unapplied:
            return []
        del known.unapplied[event.group]
        if known.unapplied:
            return []
        return [
            *self._answer_askers(known),
            *self._append({"finished": [event.transaction, event.number]}),
        ]

    def _answer_askers(self, known: Decided) -> list[Effect]:
        askers, known.askers = known.askers, []
        return [Answer(origin, None) for origin in askers]

    def _stage_found(self, event: StageFound) -> list[Effect]:
        transaction, number, group = event.transaction, event.number, event.group
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            if number == known.number and group in known.unapplied:
                return [_apply_of(group, transaction, known, by_group(known.members)[group])]
            return [Drop(group, transaction, number, event.producers)]
        dropped = self.dropped.of(transaction)
        gone = tuple(each for each in event.producers if each in dropped)
        effects: list[Effect] = [Drop(group, transaction, number, gone)] if gone else []
        if event.idle:
            spoken_for = self._being_dropped(transaction).union(dropped)
            if transaction in self._attempts:  # what it names is being decided
                spoken_for.update(producers_of(self._attempts[transaction].members))
            idle = tuple(each for each in event.producers if each not in spoken_for)
            effects += self._abort(transaction, number, idle, []) if idle else []
        return effects

    def _applied_found(self, event: AppliedFound) -> list[Effect]:
        return [Forget(event.group, self._history())]

    def _history(self) -> int:
        """Every decision up to here is applied everywhere, durably."""
        indexes = (self.decided[transaction].index for transaction in self._unfinished)
        return min(indexes, default=self._last_decision + 1) - 1

    # --- time ------------------------------------------------------------------------------------

    def _started(self, event: Started) -> list[Effect]:
        self._now_us = event.now_us
        self._forget_at_us = event.now_us + HOUR_US
        effects: list[Effect] = []
        for transaction, known in self.decided.items():
            known.touched_us = known.told_us = event.now_us
            if known.members:
                known.unapplied = dict.fromkeys(groups_of(known.members))
                effects += self._apply_everywhere(transaction, known)
        return effects

    def _tick(self, event: Tick) -> list[Effect]:
        self._now_us = now = event.now_us
        effects: list[Effect] = []
        for transaction, attempt in list(self._attempts.items()):
            if attempt.deciding:
                continue
            if now - attempt.begun_us >= VERIFY_US:
                del self._attempts[transaction]
                late = ", ".join(map(str, attempt.unverified))
                error = f"transaction {transaction!r}: groups {late} did not answer; try again"
                effects += (Answer(origin, Busy(error)) for origin in attempt.askers)
            elif now - attempt.told_us >= REPEAT_US:
                attempt.told_us = now
                effects += self._ask_to_verify(transaction, attempt)
        for transaction in self._unfinished:
            known = self.decided[transaction]
            if known.unapplied and now - known.told_us >= REPEAT_US:
                known.told_us = now
                effects += self._apply_everywhere(transaction, known)
        if self._owed:
            effects += self._tell_to_forget()
        if self._forgets_at(now):
            self._forget_at_us = now + HOUR_US
            effects += self._forget_idle()
        return effects

    def _tell_to_forget(self) -> list[Effect]:
        through = self._history()
        ready = [group for group, decision in self._owed.items() if decision <= through]
        for group in ready:
            del self._owed[group]
        return [Forget(group, through) for group in ready]

    def _forget_idle(self) -> list[Effect]:
        idle: list[tuple[str, int]] = []
        surplus = len(self.decided) - IDS_MAX
        for transaction, known in self.decided.items():
            if len(idle) >= FORGOTTEN_AT_ONCE:
                break
            if known.touched_us >= self._now_us - IDLE_US and len(idle) >= surplus:
                break  # those behind it were used later
            if transaction not in self._unfinished and transaction not in self._forgetting:
                idle.append((transaction, known.number))
        if not idle:
            return []
        self._forgetting.update(transaction for transaction, _ in idle)
        return self._append({"forget": idle})

    # --- the log ---------------------------------------------------------------------------------

    def room_for(self, event: Event) -> int:
        """What it may append when it hears this is sure to fit into so many bytes; 0: nothing."""
        if isinstance(event, CommitAsked):
            return MEMBER_BYTES * (len(event.members) + 1)
        if isinstance(event, Verified):
            attempt = self._attempts.get(event.transaction)
            is_last = attempt is not None and list(attempt.unverified) == [event.group]
            return MEMBER_BYTES * (len(attempt.members) + 1) if attempt and is_last else 0
        if isinstance(event, Tick):
            return MEMBER_BYTES * FORGOTTEN_AT_ONCE if self._forgets_at(event.now_us) else 0
        if isinstance(event, AbortAsked) or (isinstance(event, StageFound) and event.idle):
            return MEMBER_BYTES + PRODUCER_BYTES * len(event.producers)
        return MEMBER_BYTES if isinstance(event, Applied) else 0

    def _forgets_at(self, now_us: int) -> bool:
        return now_us >= self._forget_at_us or len(self.decided) > IDS_MAX

    def _append(self, change: dict[str, Any]) -> list[Effect]:
        index = self._indexes.take()
        self._pending.append((index, change))
        return [AppendDecision(index, json.dumps(change, separators=(",", ":")).encode())]

    def durable(self, index: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._pending and self._pending[0][0] <= index:
            entry, change = self._pending.popleft()
            self.applied_index = entry
            effects += self._change(entry, change)
        return effects

    def _change(self, index: int, change: dict[str, Any]) -> list[Effect]:
        if "producers" in change:
            return self._became_dropped(index, change)
        if "decide" in change:  # an abort that names no producers, as they once were, takes all
            return self._became_decided(index, change)
        if "finished" in change:
            transaction, number = change["finished"]
            known = self.decided[transaction]
            assert known.number == number
            for group in groups_of(known.members):
                self._owed[group] = known.index
            known.members = ()
            known.unapplied.clear()
            del self._unfinished[transaction]
        else:
            for transaction, number in change["forget"]:
                self._forgetting.discard(transaction)
                if self.decided[transaction].number == number:  # else it was used meanwhile
                    del self.decided[transaction]
        return []

    def _became_decided(self, index: int, change: dict[str, Any]) -> list[Effect]:
        transaction = change["id"]
        attempt = self._attempts.pop(transaction, None)
        members = tuple(Member.decode(fields) for fields in change["members"])
        self._last_decision = index
        self.decided.pop(transaction, None)  # so that the newest stands last
        known = self.decided[transaction] = Decided(
            change["number"], index, records_of(members), members, self._now_us,
            dict.fromkeys(groups_of(members)), self._now_us, attempt.askers if attempt else [],
            aborted=change["decide"] == "abort",
        )  # fmt: skip
        self.dropped.committed(transaction, known.number)
        if members:
            self._unfinished[transaction] = None
            return self._apply_everywhere(transaction, known)
        return self._answer_askers(known)

    def _became_dropped(self, index: int, change: dict[str, Any]) -> list[Effect]:
        transaction, number = change["id"], change["number"]
        producers = tuple(map(bytes.fromhex, change["producers"]))
        self._last_decision = index
        known = self.decided.get(transaction)
        if known is None or number > known.number:
            self.dropped.add(transaction, number, producers)
        answers: list[Answer] = []
        abort = self._aborts.pop(index, None)
        if abort is not None:
            error = given_up(transaction, number)
            answers += (Answer(each, error) for each in abort.losers)
            answers += (Answer(each, None) for each in abort.askers)
        return [Drop(None, transaction, number, producers), *answers]

    def _apply_everywhere(self, transaction: str, known: Decided) -> list[Effect]:
        named = by_group(known.members)
        return [_apply_of(group, transaction, known, named[group]) for group in known.unapplied]

    # --- recovery --------------------------------------------------------------------------------

    def replayed(self, index: int, body: bytes) -> None:
        self._indexes.last = self.applied_index = index
        self._change(index, json.loads(body))

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        decided = [
            [transaction, known.number, not known.aborted, known.index, known.records,
             [member.encoded() for member in known.members]]
            for transaction, known in self.decided.items()
        ]  # fmt: skip
        return self.applied_index, {
            "decided": decided,
            "dropped": self.dropped.snapshot(),
            "last_decision": self._last_decision,
        }

    def restore(self, index: int, state: dict[str, Any]) -> None:
        """To be followed by the replay of what stands behind it, and `Started`."""
        self._indexes.last = self.applied_index = index
        self._last_decision = state["last_decision"]
        # Versions that did not write whether it was committed had none that was not.
        for transaction, number, *committed, at, records, encoded in state["decided"]:
            members = tuple(Member.decode(fields) for fields in encoded)
            aborted = committed == [False]
            self.decided[transaction] = Decided(number, at, records, members, aborted=aborted)
            if members:
                self._unfinished[transaction] = None
        self.dropped.restore(state.get("dropped", {}))

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        Started: _started,
        CommitAsked: _commit_asked,
        AbortAsked: _abort_asked,
        Verified: _verified,
        Applied: _applied,
        StageFound: _stage_found,
        AppliedFound: _applied_found,
        Tick: _tick,
    }


def _apply_of(
    group: int, transaction: str, known: Decided, participants: list[Participant]
) -> Apply:
    producers = tuple((each.producer_id, each.batches) for each in participants)
    return Apply(group, transaction, known.number, known.index, producers)


def _names_one_of(attempt: Attempt, producers: tuple[bytes, ...]) -> bool:
    return not set(producers).isdisjoint(producers_of(attempt.members))
