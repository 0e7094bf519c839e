"""Transactions on request: batches are staged, and the decider is asked, if it is on this node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition.events import StageBatch, StageKey
from hocket.core.session.session import Demand, OpenedProducer, Session, failure
from hocket.core.transactions import events as decisions
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import Busy, HocketError, LimitExceeded, OutOfRange
from hocket.model import Participant, is_own_topic
from hocket.node.background.transactions import Transactions
from hocket.node.running.deciders import Seat
from hocket.node.running.partitions import Hosted, batch_of, entry_bytes
from hocket.node.wiring import Servant, Wiring
from hocket.wire.batch import NO_PRODUCER, BatchInfo

NAMED_MAX = 100_000  # participants kept in memory for commits that are to come, on all connections


class Transacting:
    def __init__(self, wiring: Wiring, transactions: Transactions) -> None:
        self._wiring = wiring
        self._transactions = transactions
        # Calls its argument when this node may know of topics that are new.
        self.catch_up: Callable[[Callable[[], None]], None] = lambda again: again()

    def servants(self) -> dict[type, Servant]:
        return {
            frames.CommitTransaction: self._commit,
            frames.NameParticipants: self._name,
            frames.AbortTransaction: self._abort,
        }

    # --- staging ---------------------------------------------------------------------------------

    def key_of(self, transaction: str, number: int, producer_id: bytes) -> StageKey:
        """The key of a producer that is being opened. Raises if it may not stage any more."""
        if producer_id == NO_PRODUCER:
            raise OutOfRange("who stages for a transaction needs a producer id, not 16 zeros")
        refusal = self._transactions.refusal(transaction, number, producer_id)
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
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.CommitTransaction)
        self._transactions.seat_of(frame.transaction)
        if any(self._group_of(each) is None for each in frame.participants):
            # Who has staged there knows of a topic that was made a moment ago, and not yet here.
            self.catch_up(partial(self._commit_now, connection, session, frame))
        else:
            self._ask_to_commit(connection, frame)

    def _commit_now(
        self, connection: int, session: Session, frame: frames.CommitTransaction
    ) -> None:
        if self._wiring.sessions.get(connection) is not session:
            return
        try:
            self._ask_to_commit(connection, frame)
        except HocketError as error:
            self._wiring.network.send(connection, failure(frame.request, error))

    def _ask_to_commit(self, connection: int, frame: frames.CommitTransaction) -> None:
        seat = self._transactions.seat_of(frame.transaction)
        participants = tuple(
            LocatedParticipant(self._group_of(each), each) for each in frame.participants
        )
        now_us = self._wiring.clock.now_us()
        origin = Origin(connection, 0, frame.request)
        event = decisions.CommitAsked(origin, frame.transaction, frame.number, participants, now_us)
        self._ask(seat, event)

    def _name(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.NameParticipants)
        self._transactions.seat_of(frame.transaction)
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
        if is_own_topic(topic.name):
            return None
        return topic.groups[participant.partition]

    def _abort(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.AbortTransaction)
        seat = self._transactions.seat_of(frame.transaction)
        now_us = self._wiring.clock.now_us()
        origin = Origin(connection, 0, frame.request)
        event = decisions.AbortAsked(
            origin, frame.transaction, frame.number, frame.producers, now_us
        )
        self._ask(seat, event)

    def _ask(self, seat: Seat, event: decisions.CommitAsked | decisions.AbortAsked) -> None:
        room = seat.core.room_for(event)
        if isinstance(event, decisions.AbortAsked):
            self._wiring.partitions.admit_tidying(seat.group, room)
        else:
            self._wiring.partitions.admit(seat.group, room)
        self._transactions.inbox.append((seat, event))
        self._transactions.pump()
