"""The far half of a producer: batches that were cut, on their way to a node and acknowledged.

A *pusher* is one handle of a producer at one node, with a producer id of its own. It pushes the
batches of all partitions while one node has all of them, and else those of the partitions that its
node leads (`placing`). All that is said here holds for each pusher on its own.

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

For rule 4 the pusher drains: nothing new is pushed under the old id, and once the fate of every
batch that the broker may hold is known, it asks for a new id and restamps the waiting batches.

A full disk may have room again in a moment, so what it refuses is pushed again, for some seconds.
Then all that waits is given up, with the broker's words: nobody should wait minutes to read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from hocket import frames
from hocket.client_core.outbox import WakeUps
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.session import Route, Session
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
    UnknownPartition,
    UnknownProducer,
    WrongVersion,
    from_code,
)
from hocket.frames import Frame, packed, unpacked
from hocket.model import SECOND_US

RETRYABLE = frozenset({"busy", "storageFull", "shuttingDown", "sequenceGap", "rootAway"})
FORGOTTEN_OFFSET = 2**64 - 1  # acknowledges a batch whose offset the broker no longer knows
FULL_US = 3 * SECOND_US  # for so long a broker whose disk is full is asked again


class Producing(Protocol):
    """What pushers tell their producer, and ask it: see `fates` and `placing`."""

    topic: str
    delayed: bool
    gatherings: list[Gathering]
    changed: WakeUps

    def pusher_opened(self, pusher: Pusher, partitions: int) -> None: ...

    def grew(self, pusher: Pusher, partitions: int) -> None:
        """The topic has so many partitions."""

    def place(self, pusher: Pusher) -> None:
        """Who leads what is known: have its partitions pushed where they are."""

    def begins_anew(self) -> bool:
        """The topic has fewer partitions than was known; False: it is too late for that."""

    def gathering_is_idle(self, gathering: Gathering) -> None:
        """Nothing of this partition is on its way any more."""

    def report(self, batch: Outgoing, outcome: Outcome) -> None: ...

    def fail(self, batch: Outgoing, error: HocketError) -> None: ...

    def deliver(self) -> bool: ...

    def remains_of(self, pusher: Pusher) -> str: ...

    def end(self, error: HocketError) -> None: ...

    def forked(self, error: HocketError) -> None: ...


class Pusher:
    """Opens its producer on each link, pushes its batches, and says what became of each."""

    def __init__(self, producer: Producing, session: Session) -> None:
        self.producer = producer
        self.session = session
        self.gatherings: list[Gathering] = []  # of the partitions that it pushes to, in order
        self.is_part = False  # it is for these partitions alone; else for all that there are
        self.node = ""  # of a part: the node that was said to lead its partitions
        self.full_disk: StorageFull | None = None  # the broker's last word, if it is that
        self.handle: int | None = None
        self.producer_id = b""
        self.epoch = 0
        self.renewing = False  # it drains, to ask for a new id: see rule 4
        self._asked = 0  # counts how often it was asked to be opened: an old answer is not meant
        self._is_asking: Session | None = None  # who was asked, and has not answered
        self._full_since_us = 0  # since when `full_disk` is so
        self._backoff = Backoff(session.outbox.random)

    # --- opening and ending ----------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return self.producer.topic

    @property
    def route(self) -> Route:
        return Route(self.topic, self.gatherings[0].partition if self.is_part else -1)

    def located(self, error: HocketError | None) -> None:
        if error is None:
            self.producer.place(self)
        else:
            self._ended_by_broker(error)

    def link_up(self) -> None:
        if self.renewing and not self._anything_exposed():
            self.producer_id, self.epoch = b"", 0
        if self.producer.delayed and frames.DELAYED not in self.session.features:
            self.producer.end(
                WrongVersion(
                    "the broker is too old to delay messages, and would deliver them at once; "
                    "upgrade it"
                )
            )
            return
        self._asked += 1
        self._is_asking = self.session
        opening = self._opening()
        if self.is_part:
            opening.partitions = packed(each.partition for each in self.gatherings)
        answer = partial(self._open_answered, self.session, self._asked, tuple(self.gatherings))
        self.session.request(opening, answer)

    def _opening(self) -> frames.OpenProducer:
        return frames.OpenProducer(
            0, self.topic, self.producer_id, self.epoch, delayed=self.producer.delayed
        )

    def link_down(self) -> None:
        self._close_up()
        self.full_disk = None  # the next broker, or life of the broker, has its own word
        for gathering in self.gatherings:
            for batch in gathering.queue:
                batch.doubtful = batch.exposed

    def _close_up(self) -> None:
        self.handle = None
        for gathering in self.gatherings:
            gathering.sent = 0

    def deliver(self) -> bool:
        return self.producer.deliver()

    def remains(self) -> str:
        return self.producer.remains_of(self)

    def forked(self, error: HocketError) -> None:
        self.producer.forked(error)

    def end(self, error: HocketError) -> None:
        """A session of the client is over for good, and so is what needs it."""
        self.producer.end(error)

    def let_go(self) -> None:
        """The producer has ended, or others push for this one."""
        if self.handle is not None and self.handle in self.session.handles:
            self.session.close_handle(self.handle)
        self._asked += 1  # so that an answer which is still to come is not meant
        self.session.remove(self)

    def _open_answered(
        self,
        session: Session,
        number: int,
        asked: tuple[Gathering, ...],
        answer: Frame | HocketError,
    ) -> None:
        if number == self._asked:
            self._is_asking = None  # also if it is to be opened elsewhere: it may come back here
        if number != self._asked or session is not self.session:
            # It was opened elsewhere meanwhile, or has ended.
            if isinstance(answer, frames.ProducerOpened):
                session.close_handle(answer.handle)
            return
        if isinstance(answer, ReplyLost):
            return  # the next link opens it
        if isinstance(answer, frames.ProducerOpened):
            if self.is_part and asked != tuple(self.gatherings):  # others have joined meanwhile
                session.close_handle(answer.handle)
                self.link_up()
            else:
                self._opened(answer)
        elif isinstance(answer, HocketError):
            self._ended_by_broker(answer)
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to OpenProducer")

    def _opened(self, frame: frames.ProducerOpened) -> None:
        sequences = unpacked(frame.sequences)
        self._check_opened(frame.partitions, sequences)
        if frame.partitions < len(self.producer.gatherings):
            self.session.close_handle(frame.handle)
            self._ended_by_broker(
                UnknownPartition(
                    f"topic {self.topic!r} has {frame.partitions} partitions, and had "
                    f"{len(self.producer.gatherings)} before: it was made anew"
                )
            )
            return
        self.handle = frame.handle
        self.session.handles[frame.handle] = self
        self.session.served(self.route, self)
        for gathering in self.gatherings:  # each may have been sought by itself before it came here
            self.session.served(Route(self.topic, gathering.partition))
        self.producer.pusher_opened(self, frame.partitions)
        self._backoff.reset()
        is_new = (frame.producer_id, frame.epoch) != (self.producer_id, self.epoch)
        if is_new:
            self._give_up_exposed(UnknownProducer("the broker knows this producer no more"))
            self.producer_id, self.epoch = frame.producer_id, frame.epoch
            self.renewing = False
        for gathering, expected in zip(self.gatherings, sequences, strict=True):
            gathering.paused = False
            if is_new or gathering.unnumbered:
                gathering.renumber(expected)
            else:
                self._learn_fates(gathering, expected)
        for gathering in self.gatherings:
            self.pump(gathering)
        self._renew_if_drained()
        self.producer.changed.wake_all()

    def _check_opened(self, partitions: int, sequences: list[int]) -> None:
        known = len(self.gatherings)
        if self.is_part:
            is_right = len(sequences) == known
        else:
            is_right = 0 < partitions == len(sequences) >= known
        if not is_right:
            raise ProtocolError(
                f"{len(sequences)} sequences for {partitions} partitions, of which {known} were "
                f"{'asked for' if self.is_part else 'there before'}"
            )

    def _learn_fates(self, gathering: Gathering, expected: int) -> None:
        """Learn from the sequence that the broker expects next what it has stored."""
        if not gathering.agrees(expected):
            # The broker has lost what it had acknowledged (its topic is kept in memory only, say),
            # or what comes next in the queue was given up. The rest cannot follow under this id.
            self.renewing = True
        for batch in gathering.take_refused(expected):
            assert batch.refusal is not None
            self.producer.fail(batch, batch.refusal)
            self.renewing = True
        if not gathering.queue:
            self.producer.gathering_is_idle(gathering)

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
        elif isinstance(error, Fenced | UnknownProducer) and self.producer_id:
            self._give_up_exposed(error)
            self.renewing = True
            self.open_again()
        elif not isinstance(error, UnknownPartition) or not self.producer.begins_anew():
            self.producer.end(error)

    @property
    def is_asked_for(self) -> bool:
        return self.handle is not None or self._is_asking is self.session

    def open_again(self) -> None:
        has_ended = not self.session.has(self)
        if self.session.state == "ready" and not self.is_asked_for and not has_ended:
            self.link_up()

    # --- which partitions are its own ------------------------------------------------------------

    def take(self, gatherings: Iterable[Gathering]) -> None:
        """These are pushed by this one from now on, as they are numbered."""
        for gathering in gatherings:
            gathering.pusher = self
            gathering.sent = 0
            self.gatherings.append(gathering)
        self.gatherings.sort(key=lambda each: each.partition)

    def join(self, gatherings: list[Gathering]) -> None:
        """Take these, which were pushed under another id; nothing of theirs may be stored."""
        self.take(gatherings)
        for gathering in gatherings:
            gathering.unnumbered = True
            gathering.paused = False
        self.ask()  # if it is closed or being opened, that is yet to come

    def is_bound(self, gathering: Gathering) -> bool:
        """Something of the partition may be stored: it is pushed under this id and no other."""
        return any(batch.exposed for batch in gathering.queue)

    # --- pushing ---------------------------------------------------------------------------------

    def stamp_of_next(self, gathering: Gathering) -> Stamp:
        return Stamp(self.producer_id, self.epoch, gathering.next_sequence)

    @property
    def in_flight_max(self) -> int:
        return self.session.limits.in_flight_max

    def pump(self, gathering: Gathering) -> None:
        """Push what may be pushed now."""
        queue = gathering.queue
        while (
            self.handle is not None
            and not gathering.paused
            and gathering.sent < len(queue)
            and gathering.sent < self.in_flight_max
        ):
            batch = queue[gathering.sent]
            if self.renewing and not batch.exposed:
                return
            batch.restamp(Stamp(self.producer_id, self.epoch, batch.sequence))
            batch.exposed = True
            batch.pushes += 1
            gathering.sent += 1
            self._push(gathering, batch)

    def _push(self, gathering: Gathering, batch: Outgoing) -> None:
        assert self.handle is not None
        self.session.send(frames.Push(0, self.handle, gathering.partition), [batch.entry])

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
            self.producer.grew(self, frame.partitions)
        else:
            raise ProtocolError(f"{type(frame).__name__} came for a producer")

    def _gathering_in(self, partition: int) -> Gathering:
        known = self.producer.gatherings
        if not 0 <= partition < len(known) or known[partition].pusher is not self:
            raise ProtocolError(f"partition {partition} of topic {self.topic!r} is not known here")
        return known[partition]

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
            self.producer.gathering_is_idle(gathering)
        self.pump(gathering)
        self._renew_if_drained()

    def _delivered(self, gathering: Gathering, batch: Outgoing, offset: int) -> None:
        outcome: Outcome = Positions(
            self.topic, gathering.partition, offset, offset + batch.count, self.producer.delayed
        )
        if offset == FORGOTTEN_OFFSET:
            outcome = ReplyLost("the batch is stored, but the broker no longer knows where")
        self.producer.report(batch, outcome)

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
            self.session.after(self._backoff.next_us(), lambda: _resume(gathering))
        elif isinstance(error, ProducerConflict | Fenced):
            self._id_is_taken(gathering, at, error)
        else:
            if isinstance(error, StorageFull):
                self._refuse_all(error)
            elif not isinstance(error, UnknownProducer | NotHere):
                gathering.queue[at].refusal = error
            self.ask()

    def _id_is_taken(self, gathering: Gathering, at: int, error: HocketError) -> None:
        """Somebody else uses the id: what comes from this batch on needs a new one.

        The broker stores no batch behind one that it has refused. So if this one is not stored, no
        batch behind it is.
        """
        gathering.sent = at
        self.renewing = True
        behind = list(gathering.queue)[at:]
        if isinstance(error, ProducerConflict) or behind[0].pushes == 1:
            for batch in behind:
                batch.take_back()
        else:  # an earlier push may have stored it, and nobody can tell any more
            for batch in behind:
                if batch.exposed:
                    gathering.queue.remove(batch)
                    self.producer.fail(batch, error)
            if not gathering.queue:
                self.producer.gathering_is_idle(gathering)
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

    # --- giving up -------------------------------------------------------------------------------

    def _anything_exposed(self) -> bool:
        return any(batch.exposed for each in self.gatherings for batch in each.queue)

    def ask(self) -> None:
        """Open the producer anew: to learn what the broker has stored, or under a new id."""
        if self.handle is not None:
            self.session.close_handle(self.handle)
            self._close_up()
            self.link_up()

    def _renew_if_drained(self) -> None:
        if self.renewing and not self._anything_exposed():
            self.ask()

    def _give_up_exposed(self, error: HocketError) -> None:
        for gathering in self.gatherings:
            for batch in gathering.take_exposed():
                self.producer.fail(batch, error)
            if not gathering.queue:
                self.producer.gathering_is_idle(gathering)

    def gave_up(self, gathering: Gathering, batch: Outgoing, *, waits: bool) -> HocketError:
        """The batch could not be delivered in time: why. `waits`: nothing of it is on its way."""
        self.renewing = True
        if self.full_disk is not None:
            if waits:  # so that it was refused, or never left
                batch.refusal = self.full_disk
            return self.full_disk
        kind = OutcomeUnknown if batch.may_be_stored else Timeout
        return kind(
            f"{batch.count} record{'s' if batch.count > 1 else ''} for partition "
            f"{gathering.partition} of topic {self.topic!r} could not be delivered in time; "
            f"{self.trouble()}"
        )

    def trouble(self) -> str:
        """Why it takes so long until what it pushes is acknowledged, in words."""
        session, router = self.session, self.session.router
        if session.link is None:
            why = session.last_error or "it is being opened"
            return f"there is no connection to {session.target} ({why})"
        tried = router.tried(*self.route) if router is not None and self.handle is None else ""
        if tried:
            return f"no node answers for it ({tried})"
        return f"{session.target} has not acknowledged it"


def _resume(gathering: Gathering) -> None:
    gathering.paused = False
    gathering.pusher.pump(gathering)
