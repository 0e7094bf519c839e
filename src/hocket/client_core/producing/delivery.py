"""The far half of a producer: batches that were cut, on their way to the broker and acknowledged.

Rule 1: within a partition batches are pushed in the order of their sequence, without gaps. A batch
that is pushed again under the same id is the same bytes, so the broker knows it and stores it once.
Rule 2: a batch is reported once, as delivered or as failed.
Rule 3: an acknowledgement proves that a batch is stored; the sequence that the broker expects next,
which it says when the producer is opened, proves that a batch is not. A refusal proves neither: it
may be the answer to an earlier push of the batch, so it is only a reason to push again, or to ask.
Two refusals do prove that a batch is not stored, and nothing behind it: that another batch stands
in its place (`ProducerConflict`), and that its id is somebody else's (`Fenced`), if it was pushed
only once. Such batches are pushed again under a new id.
Rule 4: a batch that may be stored is given up only together with its producer id. What comes after
it is stamped as a new producer's, so that neither the gap nor a late copy of it can do harm.

For rule 4 the producer drains: nothing new is pushed under the old id, and once the fate of every
batch that the broker may hold is known, it asks for a new id and restamps the waiting batches.

A full disk may have room again in a moment, so what it refuses is pushed again, for some seconds.
Then all that waits is given up, with the broker's words: nobody should wait minutes to read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from hocket import frames
from hocket.client_core.outbox import Tell, WakeUps
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.session import Session, again, closed
from hocket.errors import (
    Fenced,
    HocketError,
    NotHere,
    OutcomeUnknown,
    ProducerConflict,
    ProtocolError,
    ReplyLost,
    SequenceGap,
    StorageFull,
    Timeout,
    UnknownProducer,
    WrongProcess,
    WrongVersion,
    from_code,
)
from hocket.frames import Frame, unpacked
from hocket.model import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, SECOND_US
from hocket.timers import Timer

RETRYABLE = frozenset({"busy", "storageFull", "shuttingDown", "sequenceGap"})
FORGOTTEN_OFFSET = 2**64 - 1  # acknowledges a batch whose offset the broker no longer knows
FRAMING_BYTES = 1024  # an entry adds less than this to its records
FULL_US = 3 * SECOND_US  # for so long a broker whose disk is full is asked again


@dataclass(slots=True)
class ProducerOptions:
    linger_us: int = 2000
    batch_bytes: int = 1 << 20
    window_bytes: int = 16 << 20
    codec: str = "none"
    delivery_us: int = 120 * SECOND_US


# Who is told what became of each batch; a face's, so it is called when the turn is over.
Settle = Callable[[Outgoing, Outcome], None]


class Pusher:
    """Opens a producer on each link, pushes its batches, and reports what became of each."""

    delayed = False  # the timestamps of its records say when they are due

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Settle | None = None,
    ) -> None:
        self.session = session
        self.topic = topic
        self.options = options
        self.gatherings: list[Gathering] = []
        self.failure: HocketError | None = None  # why the producer takes no more records
        self.first_error: HocketError | None = None  # the first that `flush` has not raised yet
        self.full_disk: StorageFull | None = None  # the broker's last word, if it is that
        self.unacked_bytes = 0
        outbox = session.outbox
        self.changed = WakeUps(outbox)  # called when the producer is opened or ended
        self.settled = WakeUps(outbox)  # when a batch was reported, so that there is room again
        self.batch_bytes = options.batch_bytes
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.entry_bytes_max = BATCH_BYTES_MAX
        self._settle = settle
        self._handle: int | None = None
        self._is_asking = False  # the broker was asked to open it, and has not answered
        self._producer_id = b""
        self._epoch = 0
        self._renewing = False  # the producer drains, to ask for a new id: see rule 4
        self._full_since_us = 0  # since when `full_disk` is so
        self._closing = False
        self._serials = count()
        self._unsettled: dict[int, Outgoing] = {}  # by serial, oldest first
        self.tells_all = False  # somebody is told of every batch: see `untold`
        self._untold = 0  # records that were given up, and that nobody was told of
        self._expiry_timer: Timer | None = None
        self._backoff = Backoff(outbox.random)

    # --- opening and ending ----------------------------------------------------------------------

    def open(self) -> None:
        self.session = self.session.place_of(self.topic)
        self.session.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the producer was ever opened: from then on it takes records, link or no link."""
        return bool(self.gatherings)

    def check_usable(self) -> None:
        if self.failure is not None:
            raise again(self.failure)
        if self._closing:
            raise closed("the producer")

    def link_up(self) -> None:
        if self._renewing and not self._anything_exposed():
            self._producer_id, self._epoch = b"", 0
        if self.delayed and frames.DELAYED not in self.session.features:
            self.end(
                WrongVersion(
                    "the broker is too old to delay messages, and would deliver them at once; "
                    "upgrade it"
                )
            )
            return
        self._is_asking = True
        self.session.request(self._opening(), self._open_answered)

    def _opening(self) -> frames.OpenProducer:
        return frames.OpenProducer(
            0, self.topic, self._producer_id, self._epoch, delayed=self.delayed
        )

    def link_down(self) -> None:
        self._close_up()
        self.full_disk = None  # the next broker, or life of the broker, has its own word
        for gathering in self.gatherings:
            for batch in gathering.queue:
                batch.doubtful = batch.exposed

    def _close_up(self) -> None:
        self._handle = None
        for gathering in self.gatherings:
            gathering.sent = 0

    def deliver(self) -> bool:
        return not self.unacked_bytes

    def count(self) -> int:
        """How many records were taken and are not acknowledged."""
        return sum(
            len(gathering.items) + sum(batch.count for batch in gathering.queue)
            for gathering in self.gatherings
        )

    def remains(self) -> str:
        count = self.count()
        return (
            f"{count} message{'s' if count > 1 else ''} for topic {self.topic!r}" if count else ""
        )

    def forked(self, error: WrongProcess) -> None:
        self.failure = error
        for gathering in self.gatherings:
            gathering.close()

    def told(self) -> None:
        """Somebody has heard of what was given up so far."""
        self.first_error, self._untold = None, 0
        self.session.losses.pop(self, None)

    def _lose(self, count: int, error: HocketError) -> None:
        """So many records were given up, and nobody waits for one of them."""
        if self.first_error is None:
            self.first_error = error
        if count and not self.tells_all:
            self._untold += count
            self.session.losses[self] = (
                f"{self._untold} message{'s' if self._untold > 1 else ''} for topic "
                f"{self.topic!r} had been given up unseen: {self.first_error}"
            )

    def end(self, error: HocketError) -> None:
        """Take no more records; report what is not acknowledged as failed."""
        if self.failure is not None:
            return
        self.failure = error
        for gathering in self.gatherings:
            gathering.close()
            while gathering.queue:
                self._fail(gathering.queue.popleft(), error)
            self._fail_gathered(gathering, error)
        if self._handle is not None and self._handle in self.session.handles:
            self.session.close_handle(self._handle)
        self.session.remove(self)
        self.changed.wake_all()
        self.settled.wake_all()

    def _fail_gathered(self, gathering: Gathering, error: HocketError) -> None:
        """Report records that are not part of a batch yet as failed, too."""

    def _gathering_is_idle(self, gathering: Gathering) -> None:
        """Nothing of this partition is on its way any more."""

    def _open_answered(self, answer: Frame | HocketError) -> None:
        self._is_asking = False
        if isinstance(answer, ReplyLost):
            return  # the next link opens it
        if isinstance(answer, frames.ProducerOpened):
            if self.failure is None:
                self._opened(answer)
            else:
                self.session.close_handle(answer.handle)
        elif isinstance(answer, HocketError):
            self._ended_by_broker(answer)
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to OpenProducer")

    def _opened(self, frame: frames.ProducerOpened) -> None:
        sequences = unpacked(frame.sequences)
        if not 0 < frame.partitions == len(sequences) >= len(self.gatherings):
            raise ProtocolError(
                f"{len(sequences)} sequences for {frame.partitions} partitions, of which "
                f"{len(self.gatherings)} were there before"
            )
        self._handle = frame.handle
        self.session.handles[frame.handle] = self
        self.session.served(self.topic)
        self._take_limits()
        self._grow(frame.partitions)
        self._backoff.reset()
        is_new = (frame.producer_id, frame.epoch) != (self._producer_id, self._epoch)
        if is_new:
            self._give_up_exposed(UnknownProducer("the broker knows this producer no more"))
            self._producer_id, self._epoch = frame.producer_id, frame.epoch
            self._renewing = False
        for gathering, expected in zip(self.gatherings, sequences, strict=True):
            gathering.paused = False
            if is_new:
                gathering.renumber(expected)
            else:
                self._learn_fates(gathering, expected)
        for gathering in self.gatherings:
            self._pump(gathering)
        self._renew_if_drained()
        self.changed.wake_all()

    def _learn_fates(self, gathering: Gathering, expected: int) -> None:
        """Learn from the sequence that the broker expects next what it has stored."""
        if not gathering.agrees(expected):
            # The broker has lost what it had acknowledged (its topic is kept in memory only, say),
            # or what comes next in the queue was given up. The rest cannot follow under this id.
            self._renewing = True
        for batch in gathering.take_refused(expected):
            assert batch.refusal is not None
            self._fail(batch, batch.refusal)
            self._renewing = True
        if not gathering.queue:
            self._gathering_is_idle(gathering)

    def _take_limits(self) -> None:
        limits = self.session.limits
        self.entry_bytes_max = min(limits.batch_bytes_max, limits.frame_bytes_max)
        largest = self.entry_bytes_max - FRAMING_BYTES
        self.message_bytes_max = min(MESSAGE_BYTES_MAX, largest)
        self.batch_bytes = min(self.options.batch_bytes, largest)

    def _grow(self, partitions: int) -> None:
        for number in range(len(self.gatherings), partitions):
            self.gatherings.append(Gathering(number, self.batch_bytes))

    def _handle_ended(self, error: HocketError) -> None:
        if isinstance(error, NotHere):
            # The partitions went to another node. Whoever is asked now says to which.
            self._close_up()
            self.session.after(self._backoff.next_us(), self.open_again)
        else:
            self._ended_by_broker(error)

    def _ended_by_broker(self, error: HocketError) -> None:
        """The broker has ended the producer, or did not open it; some reasons can be mended."""
        self._close_up()
        if self.session.redirect(self, error):
            return
        if error.code in RETRYABLE:
            self.session.after(self._backoff.next_us(), self.open_again)
        elif isinstance(error, Fenced | UnknownProducer) and self._producer_id:
            self._give_up_exposed(error)
            self._renewing = True
            self.open_again()
        else:
            self.end(error)

    def open_again(self) -> None:
        is_open = self._handle is not None or self._is_asking
        if self.session.state == "ready" and not is_open and self.failure is None:
            self.link_up()

    # --- pushing ---------------------------------------------------------------------------------

    def enqueue(self, gathering: Gathering, batch: Outgoing) -> None:
        gathering.queue.append(batch)
        self._unsettled[batch.serial] = batch
        self.unacked_bytes += len(batch.entry)
        if self._expiry_timer is None:
            self._set_expiry_timer(batch.expires_us)
        self._pump(gathering)

    def stamp_of_next(self, gathering: Gathering) -> Stamp:
        return Stamp(self._producer_id, self._epoch, gathering.next_sequence)

    def new_serial(self) -> int:
        return next(self._serials)

    def is_settled(self, serial: int) -> bool:
        """Whether every batch with a smaller serial was reported."""
        return next(iter(self._unsettled), serial) >= serial

    @property
    def in_flight_max(self) -> int:
        return self.session.limits.in_flight_max

    def _pump(self, gathering: Gathering) -> None:
        """Push what may be pushed now."""
        queue = gathering.queue
        while (
            self._handle is not None
            and not gathering.paused
            and gathering.sent < len(queue)
            and gathering.sent < self.in_flight_max
        ):
            batch = queue[gathering.sent]
            if self._renewing and not batch.exposed:
                return
            batch.restamp(Stamp(self._producer_id, self._epoch, batch.sequence))
            batch.exposed = True
            batch.pushes += 1
            gathering.sent += 1
            self._push(gathering, batch)

    def _push(self, gathering: Gathering, batch: Outgoing) -> None:
        assert self._handle is not None
        self.session.send(frames.Push(0, self._handle, gathering.partition), [batch.entry])

    def received(self, frame: Frame, _payload: memoryview) -> None:
        if isinstance(frame, frames.PushAcked):
            self._acked(
                self._gathering_in(frame.partition), frame.sequence, unpacked(frame.offsets)
            )
        elif isinstance(frame, frames.PushRefused):
            error = from_code(frame.code, frame.message)
            self._refused(self._gathering_in(frame.partition), frame.sequence, error)
        elif isinstance(frame, frames.HandleEnded):
            self._handle_ended(from_code(frame.code, frame.message))
        elif isinstance(frame, frames.PartitionsChanged):
            self._grow(frame.partitions)
        else:
            raise ProtocolError(f"{type(frame).__name__} came for a producer")

    def _gathering_in(self, partition: int) -> Gathering:
        if not 0 <= partition < len(self.gatherings):
            raise ProtocolError(f"partition {partition} of topic {self.topic!r} is not known here")
        return self.gatherings[partition]

    def _acked(self, gathering: Gathering, sequence: int, offsets: list[int]) -> None:
        """The batches whose sequences end with `sequence` are stored, at these offsets.

        So are all batches before them. One of these that is still in the queue was pushed again and
        then refused; the broker tells its offset when it is pushed once more.
        """
        first = sequence - len(offsets) + 1
        self._backoff.reset()
        self.full_disk = None
        for batch in gathering.take_acked(first, sequence):
            self._delivered(gathering, batch, offsets[batch.sequence - first])
        if not gathering.queue:
            self._gathering_is_idle(gathering)
        self._pump(gathering)
        self._renew_if_drained()

    def _delivered(self, gathering: Gathering, batch: Outgoing, offset: int) -> None:
        outcome: Outcome = Positions(
            self.topic, gathering.partition, offset, offset + batch.count, self.delayed
        )
        if offset == FORGOTTEN_OFFSET:
            outcome = ReplyLost("the batch is stored, but the broker no longer knows where")
        self._report(batch, outcome)

    def _refused(self, gathering: Gathering, sequence: int, error: HocketError) -> None:
        """This push of the batch, and all pushes behind it, stored nothing."""
        found = (at for at, batch in enumerate(gathering.queue) if batch.sequence == sequence)
        at = next(found, None)
        if at is None or at >= gathering.sent:
            return  # the refused push was already taken back
        if self._may_be_pushed_again(error):
            # A gap means that what was pushed before did not arrive either.
            gathering.sent = 0 if isinstance(error, SequenceGap) else at
            gathering.paused = True
            self.session.after(self._backoff.next_us(), lambda: self._resume(gathering))
        elif isinstance(error, ProducerConflict | Fenced):
            self._id_is_taken(gathering, at, error)
        else:
            if isinstance(error, StorageFull):
                self._refuse_all(error)
            elif not isinstance(error, UnknownProducer | NotHere):
                gathering.queue[at].refusal = error
            self._ask()

    def _id_is_taken(self, gathering: Gathering, at: int, error: HocketError) -> None:
        """Somebody else uses the id: what comes from this batch on needs a new one.

        The broker stores no batch behind one that it has refused. So if this one is not stored, no
        batch behind it is.
        """
        gathering.sent = at
        self._renewing = True
        behind = list(gathering.queue)[at:]
        if isinstance(error, ProducerConflict) or behind[0].pushes == 1:
            for batch in behind:
                batch.take_back()
        else:  # an earlier push may have stored it, and nobody can tell any more
            for batch in behind:
                if batch.exposed:
                    gathering.queue.remove(batch)
                    self._fail(batch, error)
            if not gathering.queue:
                self._gathering_is_idle(gathering)
        self._renew_if_drained()

    def _may_be_pushed_again(self, error: HocketError) -> bool:
        if not isinstance(error, StorageFull):
            return error.code in RETRYABLE
        now_us = self.session.outbox.now_us
        if self.full_disk is None:
            self._full_since_us = now_us
        self.full_disk = error
        return now_us - self._full_since_us < FULL_US

    def _refuse_all(self, error: StorageFull) -> None:
        """What waits is not tried one by one: it would only meet the same disk."""
        for gathering in self.gatherings:
            for batch in gathering.queue:
                batch.refusal = error

    def _resume(self, gathering: Gathering) -> None:
        gathering.paused = False
        self._pump(gathering)

    # --- giving up -------------------------------------------------------------------------------

    def _anything_exposed(self) -> bool:
        return any(batch.exposed for batch in self._unsettled.values())

    def _ask(self) -> None:
        """Open the producer anew: to learn what the broker has stored, or under a new id."""
        if self._handle is not None:
            self.session.close_handle(self._handle)
            self._close_up()
            self.link_up()

    def _renew_if_drained(self) -> None:
        if self._renewing and not self._anything_exposed():
            self._ask()

    def _give_up_exposed(self, error: HocketError) -> None:
        for gathering in self.gatherings:
            for batch in gathering.take_exposed():
                self._fail(batch, error)
            if not gathering.queue:
                self._gathering_is_idle(gathering)

    def _set_expiry_timer(self, due_us: int) -> None:
        delay = max(0, due_us - self.session.outbox.now_us)
        self._expiry_timer = self.session.after(delay, self._expire)

    def _expire(self) -> None:
        """Give up what could not be delivered in time."""
        self._expiry_timer = None
        expired = False
        now = self.session.outbox.now_us
        for gathering in self.gatherings:
            waits = gathering.paused and not gathering.sent
            for batch in gathering.take_expired(now):
                self._renewing = expired = True
                if self.full_disk is not None:
                    if waits:  # nothing of it is on its way, so that it was refused, or never left
                        batch.refusal = self.full_disk
                    self._fail(batch, self.full_disk)
                    continue
                reason = self.session.last_error if self._handle is None else None
                kind = OutcomeUnknown if batch.may_be_stored else Timeout
                self._fail(
                    batch,
                    kind(
                        f"{batch.count} records for partition {gathering.partition} of topic "
                        f"{self.topic!r} could not be delivered in time"
                        + (f"; there is no connection: {reason}" if reason else "")
                    ),
                )
            if not gathering.queue:
                self._gathering_is_idle(gathering)
        first = min((batch.expires_us for batch in self._unsettled.values()), default=None)
        if first is not None:
            self._set_expiry_timer(first)
        if expired:
            self._ask()

    def _fail(self, batch: Outgoing, error: HocketError) -> None:
        error = again(error)
        error.may_have_happened = batch.may_be_stored
        self._lose(batch.count - len(batch.waiters), error)
        self._report(batch, error)

    def _tell(self, batch: Outgoing, outcome: Outcome) -> None:
        if self._settle is not None:
            self.session.outbox.effects.append(Tell(partial(self._settle, batch, outcome)))

    def _report(self, batch: Outgoing, outcome: Outcome) -> None:
        del self._unsettled[batch.serial]
        self.unacked_bytes -= len(batch.entry)
        self._tell(batch, outcome)
        self.settled.wake_all()
