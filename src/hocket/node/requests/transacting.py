"""Transactions on request: stages batches, asks the decider, and carries messages back and forth.

The decider and the partitions know each other by messages only. On this node both are at home, so
a message to a partition is a call. What partitions say to the decider is put in an inbox, and read
when no partition is at work (`pump`): the decider's answer may be for that very partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition.events import (
    DropStages,
    ForgetApplied,
    Name,
    StageBatch,
    StageKey,
    TransactionApplied,
)
from hocket.core.partition.stages import Stage, by_name
from hocket.core.session.session import Demand, OpenedProducer, Session, failure
from hocket.core.transactions import events as decisions
from hocket.core.transactions.decider import Decider
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import (
    Busy,
    HocketError,
    LimitExceeded,
    OutOfRange,
    UnknownTopic,
)
from hocket.model import DECISIONS, MINUTE_US, SECOND_US, Participant
from hocket.node.background.roll_forward import CONTROL_BYTES, RollForward
from hocket.node.running.partitions import Hosted, batch_of, entry_bytes
from hocket.node.wiring import Servant, Wiring
from hocket.wire.batch import NO_PRODUCER, BatchInfo

IDLE_CHECKED_EVERY_US = SECOND_US
# A producer that was not connected for this long is asked about, though it is not idle yet: it may
# be left over from a failed attempt at a transaction that was committed meanwhile.
LEFT_OVER_US = MINUTE_US
NAMED_MAX = 100_000  # participants kept in memory for commits that are to come, on all connections
PRODUCER_BYTES = 40  # more than one producer takes in the entry that drops stages


class Transacting:
    def __init__(self, wiring: Wiring, decider: Decider) -> None:
        self._wiring = wiring
        self._decider = decider
        self._rolling = RollForward(wiring, self._partition_gone)
        self.inbox: deque[decisions.Event] = deque()  # for the decider; see `pump`
        self._idle_at_us = 0

    def servants(self) -> dict[type, Servant]:
        return {
            frames.CommitTransaction: self._commit,
            frames.NameParticipants: self._name,
            frames.AbortTransaction: self._abort,
        }

    def started(self) -> None:
        """Everything is recovered: go on with decided transactions, and ask about the others."""
        self.inbox.append(decisions.Started(self._wiring.clock.now_us()))
        for hosted in self._wiring.partitions:
            stages = hosted.core.stages
            self._ask_about(hosted, stages.producers.values(), idle=False)
            if stages.applied:
                self.inbox.append(decisions.AppliedFound(hosted.group))
        self.pump()

    def tick(self, now_us: int) -> None:
        self._rolling.retry()
        self.inbox.append(decisions.Tick(now_us))
        if now_us >= self._idle_at_us:
            self._idle_at_us = now_us + IDLE_CHECKED_EVERY_US
            self._ask_about_idle(now_us)
        self.pump()

    def _ask_about_idle(self, now_us: int) -> None:
        waiting = [hosted for hosted in self._wiring.partitions if hosted.core.stages]
        if not waiting:
            return
        connected = {
            StageKey(opened.transaction, opened.number, opened.producer_id)
            for session in self._wiring.sessions.values()
            for opened in session.handles.values()
            if isinstance(opened, OpenedProducer) and opened.transaction
        }
        idle_us = now_us - self._wiring.settings.transaction_timeout_us
        for hosted in waiting:
            stages = hosted.core.stages.idle(max(idle_us, now_us - LEFT_OVER_US))
            left = [stage for stage in stages if stage.key not in connected]
            self._ask_about(hosted, (s for s in left if s.touched_us >= idle_us), idle=False)
            self._ask_about(hosted, (s for s in left if s.touched_us < idle_us), idle=True)

    def _ask_about(self, hosted: Hosted, stages: Iterable[Stage], *, idle: bool) -> None:
        for name, producers in by_name(stages).items():
            found = decisions.StageFound(hosted.group, *name, producers, idle=idle)
            self.inbox.append(found)

    # --- staging ---------------------------------------------------------------------------------

    def key_of(self, transaction: str, number: int, producer_id: bytes) -> StageKey:
        """The key of a producer that is being opened. Raises if it may not stage any more."""
        if producer_id == NO_PRODUCER:
            raise OutOfRange("who stages for a transaction needs a producer id, not 16 zeros")
        refusal = self._decider.refusal(transaction, number, producer_id)
        if refusal is not None:
            raise refusal
        return StageKey(transaction, number, producer_id)

    def stage(
        self,
        hosted: Hosted,
        origin: Origin,
        opened: OpenedProducer,
        info: BatchInfo,
        payload: memoryview,
    ) -> None:
        key = StageKey(opened.transaction, opened.number, opened.producer_id)
        header = info.header
        size = entry_bytes(header.length)
        if info.sequence >= hosted.core.stages.next_sequence(key):  # else it is staged already
            self._check_limits(hosted, key, size)
        # Twice: room for the stage now, and for the batch when it is published. For what others
        # have staged, that room is reserved already.
        self._wiring.partitions.admit(hosted.group, 2 * size)
        self._wiring.partitions.step(
            hosted,
            StageBatch(
                origin,
                key,
                batch_of(info, payload),
                size,
                header.body_crc,
                self._wiring.clock.now_us(),
            ),
        )

    def _check_limits(self, hosted: Hosted, key: StageKey, size: int) -> None:
        settings, stages = self._wiring.settings, hosted.core.stages
        where = f"partition {hosted.core.number} of topic {hosted.core.topic!r}"
        if stages.bytes + size > settings.staged_bytes_max:
            raise LimitExceeded(
                f"{stages.bytes} bytes are staged in {where}, and {size} more would be over the "
                f"{settings.staged_bytes_max} allowed; commit or abort transactions"
            )
        known = stages.producers.get(key.producer_id)
        if known is None and len(stages.producers) >= settings.stages_max:
            raise LimitExceeded(
                f"{len(stages.producers)} producers have staged in {where}, and no more may; "
                "commit or abort transactions"
            )
        if known is not None and len(known.batches) >= settings.staged_batches_max:
            raise LimitExceeded(
                f"{len(known.batches)} batches are staged in {where} by this producer, and no more "
                "may be; make them larger"
            )

    # --- deciding --------------------------------------------------------------------------------

    def _commit(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.CommitTransaction)
        participants = tuple(
            LocatedParticipant(self._group_of(each), each) for each in frame.participants
        )
        now_us = self._wiring.clock.now_us()
        origin = Origin(connection, 0, frame.request)
        self._ask(
            decisions.CommitAsked(origin, frame.transaction, frame.number, participants, now_us)
        )

    def _name(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.NameParticipants)
        others = (each.named for each in self._wiring.sessions.values() if each is not session)
        kept = frame.start + sum(len(named.participants) for named in others if named is not None)
        if kept + len(frame.participants) > NAMED_MAX:
            raise Busy(f"{kept} participants are named for commits that are to come; try again")
        session.name(frame)
        self._wiring.network.send(connection, frames.Done(frame.request))

    def _group_of(self, participant: Participant) -> int | None:
        topic = self._wiring.catalogue.topics.get(participant.topic)
        if topic is None or participant.partition >= len(topic.groups):
            return None
        return topic.groups[participant.partition]

    def _abort(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.AbortTransaction)
        now_us = self._wiring.clock.now_us()
        origin = Origin(connection, 0, frame.request)
        self._ask(
            decisions.AbortAsked(origin, frame.transaction, frame.number, frame.producers, now_us)
        )

    def _ask(self, event: decisions.CommitAsked | decisions.AbortAsked) -> None:
        room = self._decider.room_for(event)
        if isinstance(event, decisions.AbortAsked):
            self._wiring.partitions.admit_tidying(DECISIONS, room)
        else:
            self._wiring.partitions.admit(DECISIONS, room)
        self.inbox.append(event)
        self.pump()

    # --- messages between the decider and the partitions -----------------------------------------

    def applied(self, hosted: Hosted, effect: TransactionApplied) -> None:
        self.inbox.append(decisions.Applied(hosted.group, *effect.name))

    def _partition_gone(self, apply: decisions.Apply) -> None:
        """The partition was deleted with its topic; for the decider that is as good as applied."""
        self.inbox.append(decisions.Applied(apply.group, apply.transaction, apply.number))

    def pump(self) -> None:
        """Hand the decider everything that is in the inbox, and carry out what it wants."""
        while self.inbox:
            event = self._admitted(self.inbox.popleft())
            if event is not None:
                for effect in self._decider.step(event):
                    self.carry_out(effect)

    def _admitted(self, event: decisions.Event) -> decisions.Event | None:
        """The event, if there is room for what it may make the decider append; else None.

        An event that is dropped for want of room comes again later.
        """
        room = self._decider.room_for(event)
        if not room:
            return event
        is_verified = isinstance(event, decisions.Verified)
        try:
            if isinstance(event, decisions.AbortAsked | decisions.StageFound):
                self._wiring.partitions.admit_tidying(DECISIONS, room)
            else:
                self._wiring.partitions.admit(DECISIONS, room, reserved=not is_verified)
        except HocketError as error:
            if not isinstance(event, decisions.Verified):
                return None
            event.error = event.error or error
        return event

    def carry_out(self, effect: decisions.Effect) -> None:
        if isinstance(effect, decisions.AppendDecision):
            self._wiring.append_decision(effect.index, effect.body)
        elif isinstance(effect, decisions.Verify):
            self._verify(effect)
        elif isinstance(effect, decisions.Apply):
            self._rolling.begin(effect)
        elif isinstance(effect, decisions.Drop):
            self._drop(effect)
        elif isinstance(effect, decisions.Forget):
            self._step(self._wiring.partitions.get(effect.group), ForgetApplied(effect.through))
        else:
            self._answer(effect)

    def _verify(self, effect: decisions.Verify) -> None:
        hosted = self._wiring.partitions.get(effect.group)
        error: HocketError | None
        if hosted is None:
            named = effect.participants[0]
            topic = self._wiring.catalogue.topics.get(named.topic)
            error = UnknownTopic(f"topic {named.topic!r} was deleted")
            if topic is not None and not self._wiring.catalogue.is_here(topic):
                error = self._wiring.catalogue.not_here(topic)
        else:
            name: Name = (effect.transaction, effect.number)
            error = hosted.core.stages.verify(name, effect.participants)
        self.inbox.append(decisions.Verified(effect.group, effect.transaction, effect.round, error))

    def _drop(self, effect: decisions.Drop) -> None:
        name = (effect.transaction, effect.number)
        everywhere = list(self._wiring.partitions)
        for hosted in (
            everywhere if effect.group is None else [self._wiring.partitions.get(effect.group)]
        ):
            found = hosted.core.stages.droppable(name, effect.producers) if hosted else []
            if found:
                named = tuple(stage.key.producer_id for stage in found)
                self._step(hosted, DropStages(name, named))

    def _step(self, hosted: Hosted | None, event: DropStages | ForgetApplied) -> None:
        if hosted is None:
            return
        size = CONTROL_BYTES
        if isinstance(event, DropStages):
            size += PRODUCER_BYTES * len(event.producers)
        try:
            self._wiring.partitions.admit_tidying(hosted.group, size)
        except HocketError:  # the decider asks again some time later
            return
        self._wiring.partitions.step(hosted, event)

    def _answer(self, effect: decisions.Answer) -> None:
        connection, _, request = effect.origin
        answer = frames.Done(request) if effect.error is None else failure(request, effect.error)
        self._wiring.network.send(connection, answer)
