"""The decider: what becomes of transactions. Stage, decide once, roll forward.

Rule 1: a commit is decided only when every participant has said that its stage is durable, and is
        what the asker names; the decision names participants, counts and CRCs.
Rule 2: only the decider aborts. It aborts what some producers have staged, and not a number: others
        can stage under that number, and commit it. An aborted producer is part of no commit any
        more. A participant whose stage has waited long asks the decider.
Rule 3: a participant remembers what it has applied until it is told that all decisions up to some
        one are history. So repeating a decision does no harm, and it is repeated until answered.
Rule 4: transactions of one id are decided in the order of their numbers, and the next one only when
        the last is applied everywhere.
Rule 5: a committed number is never decided again. A commit of the same content is answered that it
        is done; other content is a conflict.
Rule 6: a decider that follows another one decides on an id when it knows all that the other knew of
        it: see `inheritance`.

Decisions are entries of a log of their own. Participants are partitions, known by the number of
their group; they answer by events, and messages to and from them may be lost, late or double. An
answer from an earlier round of verifying is known by its number, and counts for nothing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
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
    CommitAsked,
    Drop,
    Effect,
    Event,
    Forget,
    Inherit,
    Inherited,
    StageFound,
    Started,
    Tick,
    Verified,
    Verify,
)
from hocket.core.transactions.inheritance import About, Inheritance
from hocket.core.transactions.participants import (
    LocatedParticipant,
    by_group,
    groups_of,
    producers_of,
    records_of,
    wrong_with,
    wrong_with_producers,
)
from hocket.core.transactions.state import (
    Decided,
    PendingAbort,
    PendingCommit,
    Waits,
    apply_of,
    behind,
    burned,
    busy,
    given_up,
    not_heard_of,
)
from hocket.errors import Busy, HocketError, TransactionConflict
from hocket.model import DAY_US, HOUR_US, SECOND_US

IDS_MAX = 100_000  # beyond it, the ids that were used longest ago are forgotten
IDLE_US = 7 * DAY_US  # after this long without a decision an id may be forgotten
FORGOTTEN_AT_ONCE = 100  # ids, so that their names fit into a small entry
REPEAT_US = SECOND_US  # after this long without an answer a message is sent again
VERIFY_US = 30 * SECOND_US  # within which all participants must say that they have what is named
PARTICIPANT_BYTES = 1024  # more than a participant takes in a decision, and more than the id does
PRODUCER_BYTES = 40  # more than a producer takes in an abort
NOTHING: dict[str, Any] = {"forget": []}  # the body of an entry that changes nothing


class Decider:
    """A machine with a log of its own. `step` never raises: an Answer says what is wrong."""

    def __init__(self, indexes: Indexes | None = None, *, inherits: bool = False) -> None:
        """`inherits`: this one follows the founder's own decider."""
        self.inheritance = Inheritance(whole=not inherits)
        self._inheriting: dict[int, Inherit] = {}  # by the index of the entry
        self.decided: dict[str, Decided] = {}  # id -> its last decision; the oldest first
        self.dropped = Dropped()
        self.applied_index = 0
        self._indexes = indexes or Indexes()
        self._commits: dict[str, PendingCommit] = {}  # by id
        self._aborts: dict[int, PendingAbort] = {}  # by the index of the entry
        self._unfinished: dict[str, None] = {}  # ids whose last decision is not applied everywhere
        self._owed: dict[int, int] = {}  # group -> the decision that it will be told to forget
        self._pending: deque[tuple[int, dict[str, Any]]] = deque()  # appended, not yet durable
        self._last_decision = 0
        self._last_round = 0
        self._forgetting: set[str] = set()  # ids that an entry on its way forgets
        self._now_us = 0
        self._forget_at_us = 0

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    # --- what users ask --------------------------------------------------------------------------

    def refusal(self, transaction: str, number: int, producer_id: bytes) -> HocketError | None:
        """Why this producer can stage nothing more for the transaction; None if it can."""
        known = self.decided.get(transaction)
        if self.inheritance.lacks(transaction):
            return not_heard_of(transaction)
        if known is not None and number < known.number:
            return behind(transaction, number, known)
        if known is not None and number == known.number and known.aborted:
            return burned(transaction, number)
        # A committed number may be staged again: the commit then finds that it is done.
        if producer_id in self.dropped.of(transaction):
            return given_up(transaction, number)
        return None

    def _commit_asked(self, event: CommitAsked) -> list[Effect]:
        self._now_us = event.now_us
        transaction, number, origin = event.transaction, event.number, event.origin
        if self.inheritance.lacks(transaction):
            return [Answer(origin, not_heard_of(transaction))]
        pending = self._commits.get(transaction)
        if pending is not None:
            if (pending.number, pending.participants) == (number, event.participants):
                pending.askers.append(origin)
                return []
            return [Answer(origin, busy(transaction, pending.number))]
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            return self._asked_again(event, known)
        named = producers_of(event.participants)
        if not self._being_dropped(transaction).isdisjoint(named):
            return [Answer(origin, busy(transaction, number))]
        if any(map(self.dropped.of(transaction).__contains__, named)):
            return [Answer(origin, given_up(transaction, number))]
        if transaction in self._unfinished:
            assert known is not None
            return [Answer(origin, busy(transaction, known.number))]
        wrong = wrong_with(event.participants)
        if wrong is not None:
            return [Answer(origin, wrong)]
        return self._begin(transaction, number, event.participants, [origin])

    def _asked_again(self, event: CommitAsked, known: Decided) -> list[Effect]:
        """A decision stays. An asker that names the same content hears that it is done."""
        transaction, number = event.transaction, event.number
        if number < known.number:
            return [Answer(event.origin, behind(transaction, number, known))]
        if known.aborted:
            return [Answer(event.origin, burned(transaction, number))]
        records = records_of(event.participants)
        if records != known.records:
            error = TransactionConflict(
                f"transaction {transaction!r} number {number} is committed already, with other "
                f"content: {known.records or 'no'} records, not {records or 'none'}"
            )
            return [Answer(event.origin, error)]
        if known.unapplied:
            known.askers.append(event.origin)
            return []
        # The asker has staged the same content once more; that is dropped.
        drops = [
            Drop(
                group, transaction, number, tuple({each.producer_id: None for each in participants})
            )
            for group, participants in by_group(event.participants).items()
        ]
        return [*drops, Answer(event.origin, None)]

    def _begin(
        self,
        transaction: str,
        number: int,
        participants: tuple[LocatedParticipant, ...],
        askers: list[Origin],
    ) -> list[Effect]:
        # Not below the time, so that answers to a round before a crash do not count for this one.
        self._last_round = max(self._last_round + 1, self._now_us)
        pending = self._commits[transaction] = PendingCommit(
            number, participants, self._last_round, askers, self._now_us, self._now_us,
            dict.fromkeys(groups_of(participants)),
        )  # fmt: skip
        if not participants:
            return self._decide(transaction, pending)
        return self._ask_to_verify(transaction, pending)

    def _ask_to_verify(self, transaction: str, pending: PendingCommit) -> list[Effect]:
        named = by_group(pending.participants)
        return [
            Verify(group, transaction, pending.number, pending.round, tuple(named[group]))
            for group in pending.unverified
        ]

    def _abort_asked(self, event: AbortAsked) -> list[Effect]:
        self._now_us = event.now_us
        transaction, number, origin = event.transaction, event.number, event.origin
        wrong = wrong_with_producers(event.producers)
        if wrong is not None:
            return [Answer(origin, wrong)]
        if self.inheritance.lacks(transaction):
            return [Answer(origin, not_heard_of(transaction))]
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            return self._abort_came_late(event, known)
        pending = self._commits.get(transaction)
        if pending is not None and pending.deciding and pending.names_one_of(event.producers):
            return [Answer(origin, busy(transaction, pending.number))]
        if all(map(self.dropped.of(transaction).__contains__, event.producers)):
            return [Drop(None, transaction, number, event.producers), Answer(origin, None)]
        return self._abort(transaction, number, event.producers, [origin])

    def _abort_came_late(self, event: AbortAsked, known: Decided) -> list[Effect]:
        """Drop what is left, unless the decision is being applied: it may be part of that."""
        transaction, number = event.transaction, event.number
        error: TransactionConflict | None = TransactionConflict(
            f"transaction {transaction!r} number {number} cannot be aborted: number "
            f"{known.number} is {known.fate} already"
        )
        if number == known.number and known.aborted:
            error = None
        drops: list[Effect] = []
        if number < known.number or not known.participants:
            drops.append(Drop(None, transaction, number, event.producers))
        return [*drops, Answer(event.origin, error)]

    def _abort(
        self, transaction: str, number: int, producers: tuple[bytes, ...], askers: list[Origin]
    ) -> list[Effect]:
        losers: list[Origin] = []
        pending = self._commits.get(transaction)
        if pending is not None and not pending.deciding and pending.names_one_of(producers):
            losers = self._commits.pop(transaction).askers
        effects = self._append(
            {"decide": "abort", "id": transaction, "number": number,
             "producers": [producer_id.hex() for producer_id in producers]}
        )  # fmt: skip
        self._aborts[self._pending[-1][0]] = PendingAbort(
            transaction, frozenset(producers), askers, losers
        )
        return effects

    def _being_dropped(self, transaction: str) -> set[bytes]:
        aborts = (each for each in self._aborts.values() if each.transaction == transaction)
        return set().union(*(abort.producers for abort in aborts))

    # --- what participants say -------------------------------------------------------------------

    def _verified(self, event: Verified) -> list[Effect]:
        pending = self._commits.get(event.transaction)
        if pending is None or pending.round != event.round or pending.deciding:
            return []
        if event.error is not None:
            del self._commits[event.transaction]
            return [Answer(origin, event.error) for origin in pending.askers]
        pending.unverified.pop(event.group, None)
        if pending.unverified:
            return []
        return self._decide(event.transaction, pending)

    def _decide(self, transaction: str, pending: PendingCommit) -> list[Effect]:
        pending.deciding = True
        return self._append(
            {"decide": "commit", "id": transaction, "number": pending.number,
             "members": [participant.encoded() for participant in pending.participants]}
        )  # fmt: skip

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
        if self.inheritance.lacks(transaction):
            return []  # it is asked again
        known = self.decided.get(transaction)
        if known is not None and number <= known.number:
            if number == known.number and group in known.unapplied:
                return [apply_of(group, transaction, known, by_group(known.participants)[group])]
            return [Drop(group, transaction, number, event.producers)]
        dropped = self.dropped.of(transaction)
        gone = tuple(each for each in event.producers if each in dropped)
        effects: list[Effect] = [Drop(group, transaction, number, gone)] if gone else []
        if event.idle:
            spoken_for = self._being_dropped(transaction).union(dropped)
            if transaction in self._commits:  # the producers that it names are being decided on
                spoken_for.update(producers_of(self._commits[transaction].participants))
            idle = tuple(each for each in event.producers if each not in spoken_for)
            effects += self._abort(transaction, number, idle, []) if idle else []
        return effects

    def _applied_found(self, event: AppliedFound) -> list[Effect]:
        return [Forget(event.group, self._history())]

    def _history(self) -> int:
        """The last decision up to which all are, durably, applied everywhere."""
        indexes = (self.decided[transaction].index for transaction in self._unfinished)
        return min(indexes, default=self._last_decision + 1) - 1

    # --- one decider follows another -------------------------------------------------------------

    def about(self, transaction: str) -> About | None:
        """What is known of an id, for the decider that follows; None: it is not done with yet."""
        if transaction in self._commits or transaction in self._unfinished:
            return None
        if any(abort.transaction == transaction for abort in self._aborts.values()):
            return None
        known = self.decided.get(transaction)
        decided = None if known is None else [known.number, known.aborted, known.records]
        of_them = self.dropped.of(transaction).items()
        return About(transaction, decided, [[each.hex(), number] for each, number in of_them])

    @property
    def ids(self) -> list[str]:
        """All ids that anything is known of, or asked about."""
        aborts = (abort.transaction for abort in self._aborts.values())
        return list(dict.fromkeys((*self.decided, *self.dropped, *self._commits, *aborts)))

    def mark(self) -> AppendDecision:
        """An entry that changes nothing: when it is durable, so is all that was appended before."""
        return self._entry(NOTHING)

    def _inherit(self, event: Inherit) -> list[Effect]:
        if self.inheritance.has(event.term, event.part):
            return [Inherited(event.term, event.part, self.inheritance.whole)]
        under_way = self._inheriting.values()
        if any((each.term, each.part) == (event.term, event.part) for each in under_way):
            return []
        effects = self._append({"inherit": json.loads(event.body)})
        self._inheriting[self._pending[-1][0]] = event
        return effects

    def _inherited(self, index: int, change: dict[str, Any]) -> list[Effect]:
        for about in self.inheritance.take(change):
            known = self.decided.get(about.transaction)
            if about.decided is not None and (known is None or known.number < about.decided[0]):
                number, aborted, records = about.decided
                self.decided[about.transaction] = Decided(
                    number, index, records, (), self._now_us, aborted=aborted
                )
            for producer_id, number in about.dropped:
                self.dropped.add(about.transaction, number, (bytes.fromhex(producer_id),))
        event = self._inheriting.pop(index, None)
        if event is None:
            return []
        return [Inherited(event.term, event.part, self.inheritance.whole)]

    # --- time ------------------------------------------------------------------------------------

    def _started(self, event: Started) -> list[Effect]:
        self._now_us = event.now_us
        self._forget_at_us = event.now_us + HOUR_US
        effects: list[Effect] = []
        for transaction, known in self.decided.items():
            known.touched_us = known.told_us = event.now_us
            if known.participants:
                known.unapplied = dict.fromkeys(groups_of(known.participants))
                effects += self._apply_everywhere(transaction, known)
        return effects

    def passes(self, now_us: int) -> bool:
        """It is this time, and nothing is to be done about that; False: it wants a `Tick`."""
        is_due = self._commits or self._unfinished or self._owed or self._forgets_at(now_us)
        self._now_us = self._now_us if is_due else now_us
        return not is_due

    def _tick(self, event: Tick) -> list[Effect]:
        self._now_us = now = event.now_us
        effects: list[Effect] = []
        for transaction, pending in list(self._commits.items()):
            if pending.deciding:
                continue
            if now - pending.begun_us >= VERIFY_US:
                del self._commits[transaction]
                late = ", ".join(map(str, pending.unverified))
                error = f"transaction {transaction!r}: groups {late} did not answer; try again"
                effects += (Answer(origin, Busy(error)) for origin in pending.askers)
            elif now - pending.told_us >= REPEAT_US:
                pending.told_us = now
                effects += self._ask_to_verify(transaction, pending)
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
                break  # the ids behind this one were used later
            if transaction not in self._unfinished and transaction not in self._forgetting:
                idle.append((transaction, known.number))
        if not idle:
            return []
        self._forgetting.update(transaction for transaction, _ in idle)
        return self._append({"forget": idle})

    # --- the log ---------------------------------------------------------------------------------

    def room_for(self, event: Event) -> int:
        """An upper bound of the bytes that this event may append to the log; 0: it appends none."""
        if isinstance(event, CommitAsked):
            return PARTICIPANT_BYTES * (len(event.participants) + 1)
        if isinstance(event, Verified):
            pending = self._commits.get(event.transaction)
            is_last = pending is not None and list(pending.unverified) == [event.group]
            return PARTICIPANT_BYTES * (len(pending.participants) + 1) if pending and is_last else 0
        if isinstance(event, Inherit):
            return PARTICIPANT_BYTES + len(event.body)
        if isinstance(event, Tick):
            return PARTICIPANT_BYTES * FORGOTTEN_AT_ONCE if self._forgets_at(event.now_us) else 0
        if isinstance(event, AbortAsked) or (isinstance(event, StageFound) and event.idle):
            return PARTICIPANT_BYTES + PRODUCER_BYTES * len(event.producers)
        return PARTICIPANT_BYTES if isinstance(event, Applied) else 0

    def _forgets_at(self, now_us: int) -> bool:
        return now_us >= self._forget_at_us or len(self.decided) > IDS_MAX

    def _append(self, change: dict[str, Any]) -> list[Effect]:
        return [self._entry(change)]

    def _entry(self, change: dict[str, Any]) -> AppendDecision:
        index = self._indexes.take()
        self._pending.append((index, change))
        return AppendDecision(index, json.dumps(change, separators=(",", ":")).encode())

    def durable(self, index: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._pending and self._pending[0][0] <= index:
            entry, change = self._pending.popleft()
            self.applied_index = entry
            effects += self._change(entry, change)
        return effects

    def _change(self, index: int, change: dict[str, Any]) -> list[Effect]:
        if "inherit" in change:
            return self._inherited(index, change["inherit"])
        if "producers" in change:
            return self._became_dropped(index, change)
        if "decide" in change:  # a commit, or an abort of an older version: it names no producers
            return self._became_decided(index, change)
        if "finished" in change:
            transaction, number = change["finished"]
            known = self.decided.get(transaction)
            if known is None or known.number != number:
                return []  # the entry of the decision was lost to damage
            for group in groups_of(known.participants):
                self._owed[group] = known.index
            known.participants = ()
            known.unapplied.clear()
            del self._unfinished[transaction]
        else:
            for transaction, number in change["forget"]:
                self._forgetting.discard(transaction)
                known = self.decided.get(transaction)
                if known is not None and known.number == number:  # else the id was used meanwhile
                    del self.decided[transaction]
                    self._unfinished.pop(transaction, None)  # what finished it was lost to damage
        return []

    def _became_decided(self, index: int, change: dict[str, Any]) -> list[Effect]:
        transaction = change["id"]
        pending = self._commits.pop(transaction, None)
        participants = tuple(LocatedParticipant.decode(fields) for fields in change["members"])
        self._last_decision = index
        self.decided.pop(transaction, None)  # so that the newest stands last
        known = self.decided[transaction] = Decided(
            change["number"], index, records_of(participants), participants, self._now_us,
            dict.fromkeys(groups_of(participants)), self._now_us, pending.askers if pending else [],
            aborted=change["decide"] == "abort",
        )  # fmt: skip
        self.dropped.committed(transaction, known.number)
        if participants:
            self._unfinished[transaction] = None
            return self._apply_everywhere(transaction, known)
        self._unfinished.pop(transaction, None)  # what finished the last one was lost to damage
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
        named = by_group(known.participants)
        return [apply_of(group, transaction, known, named[group]) for group in known.unapplied]

    # --- a log that several nodes keep -----------------------------------------------------------

    @property
    def waiting(self) -> list[Origin]:
        """Those who are not answered yet."""
        tables: tuple[Mapping[Any, Waits], ...] = (self._commits, self.decided, self._aborts)
        return [asker for table in tables for each in table.values() for asker in each.waiting]

    @property
    def is_writing(self) -> bool:
        """Whether an entry is appended that is not committed."""
        return bool(self._pending)

    def entered(self, index: int) -> None:
        """Somebody else has appended an entry, which changes nothing here."""
        taken = self._indexes.take()
        assert taken == index, (taken, index)
        self._pending.append((index, NOTHING))

    # --- recovery --------------------------------------------------------------------------------

    def replayed(self, index: int, body: bytes) -> None:
        self._indexes.last = self.applied_index = index
        self._change(index, json.loads(body))

    def go_on_behind(self, index: int) -> None:
        """Entries up to this one were lost, or were in another log: the next is behind it.

        Partitions remember decisions by their indexes, which therefore never begin again.
        """
        self._indexes.last = self.applied_index = max(index, self._indexes.last)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        state = {
            "decided": [[each, *known.encoded()] for each, known in self.decided.items()],
            "dropped": self.dropped.snapshot(),
            "last_decision": self._last_decision,
        }
        if self.inheritance.term or not self.inheritance.whole:
            state["inheritance"] = self.inheritance.snapshot()
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        """To be followed by the replay of the entries behind `index`, and by `Started`."""
        self._indexes.last = self.applied_index = index
        self._last_decision = state["last_decision"]
        if "inheritance" in state:
            self.inheritance = Inheritance.restore(state["inheritance"])
        for transaction, *fields in state["decided"]:
            known = self.decided[transaction] = Decided.decode(fields)
            if known.participants:
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
        Inherit: _inherit,
        Tick: _tick,
    }
