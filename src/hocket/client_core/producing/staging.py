"""A producer whose batches are staged for a transaction, and the request that decides it.

Staging differs from producing in what a loss means. A transaction cannot leave out a batch that the
broker has lost, or that was given up here. So from then on `check_usable` and `check_whole` raise,
and the transaction can only be aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from hocket import frames
from hocket.client_core.outbox import Reply
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delivery import FULL_US, RETRYABLE, Pusher
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions
from hocket.client_core.session.answers import again, points_elsewhere
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.session import Request, Route, Routing, Session
from hocket.errors import (
    HocketError,
    MessageTooLarge,
    NotHere,
    ReplyLost,
    SeveralNodes,
    StorageFull,
    TransactionAborted,
    TransactionConflict,
    UnknownPartition,
    WrongType,
)
from hocket.frames import Frame
from hocket.model import DECIDERS, DECIDERS_COUNT, Participant, partition_of
from hocket.timers import Timer
from hocket.wire.entry import unpack_header


@dataclass(slots=True)
class Total:
    """How much is staged in one partition."""

    batches: int = 0
    records: int = 0
    crc: int = 0  # over the CRCs of the batches' bodies

    def add(self, batch: Outgoing) -> None:
        self.batches += 1
        self.records += batch.count
        self.crc = crc32c(unpack_header(batch.entry).body_crc.to_bytes(4, "little"), self.crc)


class StagingPusher(Pusher):
    """Stages at one node. Its producer id stays the same, since what is staged is known by it."""

    producer: StagingCore

    def _opening(self) -> frames.OpenProducer:
        return frames.OpenProducer(0, self.topic, self.producer_id, self.epoch, *self.producer.name)

    def _opened(self, frame: frames.ProducerOpened) -> None:
        self.producer.ids[frame.producer_id] = None
        super()._opened(frame)

    def _learn_fates(self, gathering: Gathering, expected: int) -> None:
        if not gathering.agrees(expected):
            self.producer.was_dropped(gathering.partition)
        super()._learn_fates(gathering, expected)

    def _ended_by_broker(self, error: HocketError) -> None:
        may_pass = isinstance(error, NotHere | SeveralNodes | UnknownPartition)
        if may_pass or error.code in RETRYABLE:
            super()._ended_by_broker(error)
        else:
            self.producer.end(error)

    def _refused(self, gathering: Gathering, sequence: int, error: HocketError) -> None:
        if isinstance(error, TransactionConflict):
            self.producer.end(error)  # other content is staged under this id, for good
        else:
            super()._refused(gathering, sequence, error)

    def _id_is_taken(self, _gathering: Gathering, _at: int, error: HocketError) -> None:
        """What is staged under the id cannot be staged again under another: it is not here."""
        self.producer.end(error)

    def _acked(self, gathering: Gathering, sequence: int, _offsets: list[int]) -> None:
        """Staged batches have no offsets: all up to `sequence` are staged."""
        count = sum(batch.sequence <= sequence for batch in gathering.queue)
        super()._acked(gathering, sequence, [0] * count)

    def _delivered(self, gathering: Gathering, batch: Outgoing, offset: int) -> None:
        self.producer.staged(gathering.partition, batch)
        self.producer.report(batch, Positions(self.topic, gathering.partition, offset, offset))

    def is_bound(self, gathering: Gathering) -> bool:
        """What is staged in the partition is so under this id, acknowledged or not."""
        return super().is_bound(gathering) or self.producer.has_staged(gathering.partition)


class StagingCore(ProducerCore):
    pusher_kind = StagingPusher

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        transaction: str,
        number: int,
    ) -> None:
        super().__init__(session, topic, options)
        self._transaction = transaction
        self._number = number
        self._totals: dict[int, Total] = {}  # by partition
        self.ids: dict[bytes, None] = {}  # every producer id that its pushers ever had

    def _tell(self, _batch: Outgoing, _outcome: Outcome) -> None:
        """Nobody waits for one batch of a transaction: its end reports them all."""

    def deliver(self) -> bool:
        """Nothing is waited for: what is staged and not committed is dropped with the session."""
        return True

    @property
    def name(self) -> tuple[str, int]:
        return self._transaction, self._number

    @property
    def is_taking(self) -> bool:
        """Nobody has begun to decide the transaction."""
        return self.failure is None and not self._closing

    def count(self) -> int:
        """How many records were taken, staged ones among them."""
        return super().count() + sum(total.records for total in self._totals.values())

    def remains_of(self, pusher: Pusher) -> str:
        """Only of one that is being decided, since nobody will hear how: see `Departure`."""
        if self._closing and self.failure is None and pusher is self.pushers[0]:
            return f"the decision of transaction {self._transaction!r} number {self._number}"
        return ""

    def _lose(self, _count: int, error: HocketError) -> None:
        """Nothing is lost unseen: whoever decides the transaction hears of it."""
        if self.first_error is None:
            self.first_error = error

    def was_dropped(self, partition: int) -> None:
        if self.first_error is None:
            self.first_error = TransactionAborted(
                f"the broker has dropped what was staged in partition {partition} of topic "
                f"{self.topic!r} for transaction {self._transaction!r} number {self._number}"
            )

    def staged(self, partition: int, batch: Outgoing) -> None:
        self._totals.setdefault(partition, Total()).add(batch)

    def has_staged(self, partition: int) -> bool:
        return partition in self._totals

    def participants(self) -> list[Participant]:
        """What is staged, wherever, as far as it was acknowledged."""
        return [
            Participant(
                self.topic,
                partition,
                self.gatherings[partition].pusher.producer_id,
                total.batches,
                total.records,
                total.crc,
            )
            for partition, total in sorted(self._totals.items())
        ]

    @property
    def producer_ids(self) -> list[bytes]:
        """The ids under which something may be staged: one for each node, unless some was lost."""
        return list(self.ids)

    def check_whole(self) -> None:
        """Raise if something that was to be staged is lost."""
        error = self.failure or self.first_error
        if error is not None:
            raise again(error)

    def is_staged(self) -> bool:
        """Whether the broker has everything. Raises if something is lost."""
        self.check_whole()
        return not self._unsettled

    def check_usable(self) -> None:
        super().check_usable()
        self.check_whole()


def participants_of(cores: Iterable[StagingCore]) -> tuple[Participant, ...]:
    return tuple(each for core in cores for each in core.participants())


def topic_of(parts: Sequence[StagingCore | Participant]) -> str:
    """One of the topics of a transaction; empty: it has none."""
    return parts[0].topic if parts else ""


def producers_of(cores: Iterable[StagingCore]) -> list[bytes]:
    return [each for core in cores for each in core.producer_ids]


def check_participants(participants: object) -> tuple[Participant, ...]:
    if isinstance(participants, Participant | str | bytes) or not isinstance(
        participants, Iterable
    ):
        raise WrongType(f"participants are what `prepare` has returned, not {participants!r:.100}")
    found = tuple(participants)
    for each in found:
        if not isinstance(each, Participant):
            raise WrongType(f"a participant is a hocket.model.Participant, not {each!r:.100}")
    return found


def abort_of(
    transaction: str, number: int, producers: Iterable[bytes]
) -> frames.AbortTransaction | None:
    """The request to abort; None: nobody has staged anything, so there is nothing to drop."""
    named = tuple(dict.fromkeys(producers))
    return frames.AbortTransaction(0, transaction, number, named) if named else None


FRAME_BYTES_MAX = (1 << 20) - 4096  # of participants in a commit: a header has at most 1 MiB
PART_BYTES_MAX = 512 << 10  # of participants in one part, if they are too many for one frame

Decision = frames.CommitTransaction | frames.AbortTransaction
Part = frames.NameParticipants | Decision


def _size(participant: Participant) -> int:
    """How many bytes it takes in a frame, at most."""
    return 64 + len(participant.topic.encode())


def in_parts(frame: Decision) -> list[Part]:
    """The frames by which a decision is asked for: one, unless it has very many participants."""
    if isinstance(frame, frames.AbortTransaction):
        return [frame]
    sizes = [_size(each) for each in frame.participants]
    if sum(sizes) <= FRAME_BYTES_MAX:
        return [frame]
    parts: list[Part] = []
    start = size = 0
    for end, each in enumerate(sizes):
        if size + each > PART_BYTES_MAX:
            some = frame.participants[start:end]
            parts.append(frames.NameParticipants(0, frame.transaction, frame.number, start, some))
            start, size = end, 0
        size += each
    rest = frame.participants[start:]
    return [*parts, replace(frame, participants=rest, named=start)]


class Deciding:
    """A request to commit or abort, sent again until the broker gives a final answer.

    It goes to the node that has the decider of this id; whoever is asked and has not says who has.
    The broker decides a transaction once, so that the request may reach it twice. A commit of many
    participants is sent in parts. The broker forgets these with the link, so all of them are sent
    again if the link breaks before the last one is answered.
    A broker whose disk is full is asked for some seconds; then what it said is the answer.
    """

    def __init__(self, session: Session, frame: Decision, topic: str = "") -> None:
        """`topic` is one of those that the transaction is about: its node is the first guess."""
        self.reply: Reply[Frame | HocketError] = Reply(session.outbox)
        decider = partition_of(frame.transaction.encode(), DECIDERS_COUNT)
        self._route = Route(DECIDERS, decider)
        self._session = session.place_of(Route(topic))
        router = session.router
        if router is not None:
            router.is_spread(DECIDERS, DECIDERS_COUNT)
            if router.leader_of(self._route):
                self._session = router.where(self._route)
        self._parts = in_parts(frame)
        self._part_error: HocketError | None = None  # why the broker would not take a part
        self._backoff = Backoff(session.outbox.random)
        self._requests: list[Request] = []
        self._timer: Timer | None = None
        self.refusal: HocketError | None = (
            None  # the last one, after which the request is sent again
        )
        self._full_until_us: int | None = None  # for how long a full disk is tried
        self._link: int | None = None  # on which the broker was asked last
        self._doubtful = False  # it was asked on a link that broke, and may have decided
        self._ask()

    def _ask(self) -> None:
        self._timer = None
        self._part_error = None
        session = self._session
        if len(self._parts) > 1 and frames.COMMIT_IN_PARTS not in session.features:
            self.reply.put(
                MessageTooLarge(
                    "the participants of this transaction do not fit into one frame, and the "
                    "broker is too old to take them in parts; upgrade it, or use fewer partitions"
                )
            )
            return
        # Copies each time: the session numbers the frames, and the last may be on their way yet.
        *parts, decision = (replace(part) for part in self._parts)
        try:
            self._link = session.link
            self._requests = [session.request(part, self._part_answered) for part in parts]
            asked = session.request(decision, self._answered, repeatable=not parts)
            self._requests.append(asked)
        except HocketError as error:
            router = session.router
            if router is not None and points_elsewhere(error):  # the node died before we asked it
                self._ask_elsewhere(router, error)
            else:  # the client was closed
                self.reply.put(error)

    def _part_answered(self, answer: Frame | HocketError) -> None:
        if isinstance(answer, HocketError) and self._part_error is None:
            self._part_error = answer

    def _answered(self, answer: Frame | HocketError) -> None:
        self._requests = []
        self._doubtful |= self._link != self._session.link
        if isinstance(answer, ReplyLost):
            self._ask()  # as soon as there is a link
            return
        router = self._session.router
        if router is not None and points_elsewhere(answer):
            self._ask_elsewhere(router, answer)
            return
        self._session.served(self._route)
        if isinstance(answer, HocketError) and self._part_error is not None:
            answer = self._part_error
        if isinstance(answer, HocketError) and self._may_be_asked_again(answer):
            self.refusal = answer
            self._timer = self._session.after(self._backoff.next_us(), self._ask)
        else:
            self.reply.put(answer)

    def _ask_elsewhere(self, router: Routing, error: HocketError) -> None:
        self._doubtful |= error.may_have_happened
        session = router.misplaced(self._session, self._route, error)
        self._session = session or router.first
        if session is not None:
            self._ask()
        else:
            self._timer = router.pause(self._route, self._ask)

    def _may_be_asked_again(self, error: HocketError) -> bool:
        if not isinstance(error, StorageFull):
            return error.code in RETRYABLE
        error.may_have_happened = self._doubtful
        now_us = self._session.outbox.now_us
        if self._full_until_us is None:
            self._full_until_us = now_us + FULL_US
        return now_us < self._full_until_us

    def cancel(self) -> None:
        for request in self._requests:
            self._session.cancel(request)
        if self._timer is not None:
            self._timer.cancel()
