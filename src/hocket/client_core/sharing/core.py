"""A subscription to a shared index without threads and sockets: leases in, verdicts back.

Rule 1: credit is exact, in bytes and in messages. The bytes of a batch go back when the last of the
messages that its delivery leased is handed out or dropped. Credit for a message goes back when the
message is settled or dropped, so that no consumer holds more than its window (see `window`).
Rule 2: the leases of messages that wait here are renewed (see `leases`). A message that was handed
out is the application's, and only the application extends its lease. If the application takes
nothing for a whole lease, what waits is released for other consumers, and its credit is kept back
until the application asks for more. What could not be renewed is released, too.
Rule 3: what is said about messages is sent together, TIDY_US after the first; extensions, and what
a full window waits for, are sent at once. It is told until it is answered (see `settlements`).
Rule 4: what waits here when a link breaks is dropped, since the broker releases it when this
consumer opens anew. What was handed out stays this consumer's: OpenSubscription names it in `held`.
Rule 5: a commit returns when all that was said before it is durable; otherwise it raises. What was
refused is raised by every commit that is under way when it is found out, or by the next one.
Rule 6: where keys keep their order, nothing of a key is handed out behind a nacked or released
message of that key until the broker has answered: what waits, or still comes, is released. So is
what waits when an older message of its key comes again, whose lease had ended.
Rule 7: with its credit, the broker is told how far messages were handed out, so that the death of
this process does not count as a delivery of those that only waited. A message that comes `alone` is
settled at once, since nothing more comes before.
Rule 8: a message that cannot be read is rejected here and never handed out; those beside it are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from hocket import frames
from hocket.client_core.consuming.attachment import Attachment, SubscriptionOptions
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.session.answers import again
from hocket.client_core.session.session import Answer, Session
from hocket.client_core.sharing.leases import ALL, CHUNK, Leases, Unreadable
from hocket.client_core.sharing.progress import NOTES_MAX, SharedProgress
from hocket.client_core.sharing.ranges import ranges_of, triples
from hocket.client_core.sharing.settlements import Settlements
from hocket.client_core.sharing.teller import Teller
from hocket.client_core.sharing.verdict import RELEASE, Verdict, rejection
from hocket.client_core.sharing.window import Window
from hocket.core.session.session import CONSUMER_BYTES
from hocket.errors import CorruptData, HocketError, ProtocolError, WrongKind, from_code
from hocket.frames import Frame, packed, unpacked
from hocket.model import SECOND_US, Start
from hocket.timers import Timer

T = TypeVar("T")

AGAIN_US = SECOND_US  # a batch that did not come whole is delivered again after so long


class Mark(NamedTuple):
    """Where a commit began."""

    told: int  # the last telling that it waits for
    raised: int  # how many errors commits had raised before


class SharedCore(Attachment):
    def __init__(
        self,
        session: Session,
        topic: str,
        options: SubscriptionOptions,
        *,
        message: type[Message],
        batch: type[MessageBatch],
        arouse: Callable[[SharedProgress], None],
    ) -> None:
        super().__init__(session, topic, options)
        self.inbound = Leases(
            topic,
            message=message,
            batch=batch,
            chunk=_chunk(options),
            give_back=self._give_back,
        )
        self._settlements = Settlements(topic, session.outbox)
        self._teller = Teller(self, self.inbound, self._settlements, self._release_behind)
        self._arouse = arouse
        self._consumer = session.outbox.random.randbytes(CONSUMER_BYTES)
        self._winding_up = False
        self._stopping = False  # the broker was asked to send no more, and has not answered
        self._lost_us = 0  # when the last link was lost
        self._window = Window(options.prefetch)
        self._idle = False  # the application took nothing for a lease, so what waited was released
        self._watch_timer: Timer | None = None
        self._looked_us = 0  # when `_watch` last looked for leases that must have ended
        self._first_delivery = 0  # how many deliveries had come when the link came up
        self._told: dict[int, tuple[int, int]] = {}  # what was last told of each partition, by link
        self._alone = False  # the last delivery came alone
        self._raised = 0  # how many errors commits have raised
        self._raised_last: HocketError | None = None
        self._untold = 0  # what was said, and not told when the subscription ended

    # --- opening and ending ----------------------------------------------------------------------

    def link_up(self) -> None:
        options = self.options
        self._owed_bytes = 0  # nothing waits here: all of the credit is new
        self._idle = False
        self._first_delivery = self.inbound.deliveries
        self._told = {}
        held = self._held()
        self._reopen()
        frame = frames.OpenSubscription(
            0,
            self.topic,
            options.index,
            options.mode,
            (self.begins or Start()) if self._was_open else options.start,  # for what is new
            partitions=packed(options.partitions),
            hold_retention=options.hold_retention,
            credit_bytes=options.credit_bytes,
            consumer=self._consumer,
            prefetch=self._window.open(sum(map(len, held.values()))),
            lease_us=options.lease_us,
            max_deliveries=options.max_deliveries,
            failover=options.failover,
            held=packed(
                number
                for progress, offsets in held.items()
                for start, end in ranges_of(offsets)
                for number in (progress.partition, start, end)
            ),
            must_exist=not options.create,
            resumes=self._was_open,
            tells=True,
            part=self.is_part,
        )
        self._ask(frame)

    def narrow(self, options: SubscriptionOptions) -> None:
        self.options = options
        self._window.narrow(options.prefetch)
        self.inbound.chunk = _chunk(options)

    @property
    def has_messages(self) -> bool:
        return bool(self.inbound)

    def owns(self, progress: SharedProgress) -> bool:
        return self.inbound.by_partition.get(progress.partition) is progress

    def join(self, other: SharedCore) -> None:
        """All parts are one consumer, so that one can claim what another had."""
        self._consumer = other._consumer

    def hand_over(self, numbers: Iterable[int], to: SharedCore) -> None:
        for number in numbers:
            progress = self.inbound.by_partition.pop(number, None)
            if progress is None:
                continue
            to.inbound.by_partition[number] = progress
            to.inbound.lease_us = to.inbound.lease_us or self.inbound.lease_us
            to._was_open = True
            to._lost_us = max(to._lost_us, self._lost_us)
            progress.notes_max = to._notes_max()
            self._settlements.hand_over(progress, to._settlements)
            to.tidy_soon()  # what was said may wait for the timer of this one

    def _leave_handle(self, handle: int) -> None:
        """Without closing it, which would end the leases of what is handed out.

        The node ends it when this consumer opens anew, and claims those.
        """
        self.session.handles.pop(handle, None)

    def _held(self) -> dict[SharedProgress, set[int]]:
        """The messages to claim from the broker: handed out, and not known there as settled.

        A message whose lease had ended before the link was lost is not claimed: somebody else may
        have it, and after a restart the broker gives a message to the first who claims it.
        """
        self._teller.put_together()
        held = {progress: progress.held_still(self._lost_us) for progress in self._all_progress()}
        for progress, offset in self._settlements.held():
            held[progress].add(offset)
        return held

    def _reopen(self) -> None:
        settled: dict[SharedProgress, list[int]] = {}
        for progress, offset in self._settlements.held():
            settled.setdefault(progress, []).append(offset)
        for progress in self._all_progress():
            progress.reopened(settled.get(progress, ()))

    def link_down(self) -> None:
        self._handle = None
        self._lost_us = self._now_us()
        here = {
            progress: self.inbound.waiting(progress).union(progress.held)
            for progress in self._all_progress()
        }
        self._teller.put_together()
        self._settlements.link_lost(lambda progress, offset: offset in here[progress])
        self.inbound.clear()

    def wind_up(self) -> None:
        """The subscription is about to be closed: release what waits here or is on its way.

        A consumer that releases is sent nothing more (see `core.sharing`), so nothing comes behind
        the answer, and what was not handed out does not count as delivered.
        """
        self._winding_up = True
        for progress in self._all_progress():
            self._release(progress)
        self._flush()
        if self._handle is not None:
            self._stopping = True
            self.session.request(frames.Settle(0, self._handle, "release", b""), self._stopped)

    def _stopped(self, _answer: Frame | HocketError) -> None:
        self._stopping = False
        if self.failure is None:
            self._flush()
        self.commits.wake_all()

    def _all_progress(self) -> list[SharedProgress]:
        return list(self.inbound.by_partition.values())

    def _take_up(self, frame: frames.SubscriptionOpened) -> None:
        if not frame.lease_us:
            raise ProtocolError("a shared index was opened without a lease")
        self.inbound.lease_us = frame.lease_us
        for partition in unpacked(frame.positions)[::2]:
            self._progress_in(partition).lease_us = frame.lease_us
        self._looked_us = now_us = self._now_us()
        for progress in self._all_progress():
            # OpenSubscription has claimed these, which renews their leases.
            progress.renewed(progress.held_still(self._lost_us), now_us)
        self._flush()
        self._watch_soon()

    def _refused(self, error: HocketError) -> None:
        self.end(error)

    def _clear(self) -> None:
        self.inbound.clear()

    def _let_go(self) -> None:
        super()._let_go()
        for progress in self._all_progress():
            progress.awake = False  # from now on `arouse` is asked about each call, and raises
            self._untold += len(progress.notes)
            progress.notes.clear()

    def _progress_in(self, partition: int) -> SharedProgress:
        """What is known of the partition; one that the topic has gained begins here."""
        progress = self.inbound.by_partition.get(partition)
        if progress is None:
            progress = self.inbound.by_partition[partition] = self._new_progress(partition)
        return progress

    def _new_progress(self, partition: int) -> SharedProgress:
        progress = SharedProgress(
            partition, keyed=self.options.mode == "key_shared", arouse=self._arouse
        )
        progress.lease_us = self.inbound.lease_us
        progress.notes_max = self._notes_max()
        return progress

    # --- what only an own index has --------------------------------------------------------------

    def seek(self, partition: int, offset: int, answer: Answer) -> None:  # noqa: ARG002
        raise self._wrong_kind("is put elsewhere for all its consumers: client.seek(topic, index)")

    def position(self, partition: int) -> int:  # noqa: ARG002
        raise self._wrong_kind("has no one position: client.indexes(topic) tells what is done")

    def lag(self) -> int:
        raise self._wrong_kind("has many consumers: client.lag(topic, index) tells how far it is")

    def _wrong_kind(self, why: str) -> WrongKind:
        return WrongKind(
            f"index {self.options.index!r} of topic {self.topic!r} is shared; it {why}"
        )

    def partitions(self) -> list[int]:
        return sorted(self.inbound.by_partition)

    # --- deliveries ------------------------------------------------------------------------------

    def received(self, frame: Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.Lease):
            self._leased(frame, payload)
        elif isinstance(frame, frames.Moved):
            self._moved(frame)
        elif isinstance(frame, frames.HandleEnded):
            self._handle_ended(from_code(frame.code, frame.message))
        elif isinstance(frame, frames.PartitionsChanged):
            self._topic_grows(frame)
        else:
            raise ProtocolError(f"{type(frame).__name__} came for a subscription to a shared index")

    def _leased(self, frame: frames.Lease, payload: memoryview) -> None:
        progress = self._progress_in(frame.partition)
        runs = triples(frame.ranges)
        self._window.received(sum(end - start for start, end, _ in runs))
        if frame.alone != self._alone:
            self._alone = frame.alone
            self._set_notes_max()
        now_us = self._now_us()
        repeated = progress.repeated(runs, partial(self.inbound.waiting, progress))
        contested: set[int] = set()
        kept: dict[int, int] = {}
        if repeated:  # it may be here already, by a lease that has ended, or be settled any moment
            contested = repeated & self._settlements.contested(progress)
            self.inbound.withdraw(progress, repeated)
            kept = progress.handed_out(runs, repeated - contested)
            progress.delivered_again(sorted(repeated - contested - kept.keys()))
        try:
            self.inbound.keep(progress, runs, payload, continued=frame.continued, now_us=now_us)
        except CorruptData as error:
            raise ProtocolError(f"a delivery cannot be read: {error}") from error
        if kept:
            self.inbound.withdraw(progress, kept)
            progress.hold_on(kept, now_us)
        doomed = contested | self.inbound.overtaking(progress, repeated - contested - kept.keys())
        if doomed or self._winding_up:
            self._release(progress, ALL if self._winding_up else doomed)
        if progress.returned:
            self._settlements.came_again(
                progress, {each for run in runs for each in range(*run[:2])} - contested
            )
            self._release_behind(progress, progress.first_returned())
        self._watch_soon()
        self.deliveries.wake_all()

    def _moved(self, frame: frames.Moved) -> None:
        self._count_lost(frame)
        progress = self.inbound.by_partition.get(frame.partition)
        if progress is not None:
            self._settlements.forget(progress)
            self.inbound.replace(progress, self._new_progress(frame.partition))
            self.commits.wake_all()

    def next_message(self) -> Message | None:
        """The next message, None if none is here. Raises what has ended the subscription."""
        message = next(self.inbound.ready, None)
        if message is None:
            self._asked_for_more()
            while message is None and self._readable(self.inbound.refill):
                self._teller.tell_renewals()
                self.tidy_soon()
                message = next(self.inbound.ready, None)  # None: others have drawn it all
            if message is None:
                self.check_usable()
                self._ran_dry()
        return message

    def next_batch(self, *, merge: bool = False) -> MessageBatch | None:  # noqa: ARG002 - leased apart
        self._asked_for_more()
        batch = self._readable(self.inbound.take_batch)
        self._teller.tell_renewals()
        if batch is None:
            self.check_usable()
            self._ran_dry()
        return batch

    def _readable(self, take: Callable[[int], T]) -> T:
        """What `take` gives, as soon as all that cannot be read is out of its way."""
        while True:
            try:
                return take(self._now_us())
            except CorruptData as error:
                self._set_aside(self.inbound.unreadable(), error)

    def _set_aside(self, found: Unreadable, error: CorruptData) -> None:
        """These messages cannot be handed out: the broker is to put them with the dead letters.

        A batch that did not come whole, or is of a kind that only others know, is nacked instead:
        the next delivery, or another consumer, may do better.
        """
        progress, offsets, is_whole = found
        assert offsets, "reading failed, so something cannot be read"
        withdrawn = self.inbound.withdraw(progress, set(offsets))
        verdict = Verdict("nack", AGAIN_US)
        if is_whole:
            verdict = rejection(f"cannot be read: {error}")
        else:
            for offset, hash_ in withdrawn.items():
                progress.give_back(offset, hash_)
        self._settlements.add(verdict, progress, withdrawn, quiet=True)
        self.session.report(
            "warning",
            "topic %r, partition %d: %d messages from offset %d on cannot be read, and are %s: %s",
            self.topic, progress.partition, len(offsets), offsets[0],
            "set aside as dead letters" if is_whole else "given back to be delivered again", error,
        )  # fmt: skip
        self.tidy_soon()

    def _now_us(self) -> int:
        return self.session.outbox.now_us

    # --- credit ----------------------------------------------------------------------------------

    def _unsettled(self) -> int:
        return sum(len(progress.held) + progress.waiting() for progress in self._all_progress())

    def _send_credit(self) -> None:
        if self._handle is None or self._idle or self._winding_up:
            return
        messages = self._window.owed(self._unsettled())
        handed = self._handed()
        if messages or self._owed_bytes or handed:
            self._window.give(messages)
            size, self._owed_bytes = self._owed_bytes, 0
            self.session.send(frames.Credit(0, self._handle, size, messages, packed(handed)))

    def _handed(self) -> list[int]:
        """How far messages were handed out, in partitions where that was not told before."""
        handed: list[int] = []
        changed = False
        for progress in self.inbound.in_turn():
            number, offset = self.inbound.first_waiting(progress)
            at = number - self._first_delivery, offset
            is_new = self._told.get(progress.partition, (1, 0)) != at
            changed |= is_new
            if is_new or not handed:  # the first one says whose turn it is
                self._told[progress.partition] = at
                handed += (progress.partition, *at)
        return handed if changed else []

    def _ran_dry(self) -> None:
        """The application waits for a message; if the broker waits for our credit, send it now."""
        if self._window.ran_dry():
            self._set_notes_max()
            self._flush()
            self._send_credit()

    def _notes_max(self) -> int:
        """How many verdicts may gather: few enough for the window to move on in time."""
        return 1 if self._alone else max(1, min(NOTES_MAX, self._window.size // 2))

    def _set_notes_max(self) -> None:
        for progress in self._all_progress():
            progress.notes_max = self._notes_max()

    def _release_stale(self) -> None:
        """Its broker was silent for so long that another consumer may have it soon."""
        if found := self.inbound.stale(self._now_us()):
            for progress, offsets in found:
                self._release(progress, offsets)
            self._flush()  # before the credit: who releases gets nothing before new credit

    def _asked_for_more(self) -> None:
        if self.inbound.is_next_stale(self._now_us()):
            self._release_stale()
        if self._idle:
            self._idle = False
            self._send_credit()

    def _tidy(self) -> None:
        self.inbound.count_drawn(self._now_us())
        self._flush()
        self._send_credit()

    # --- leases ----------------------------------------------------------------------------------

    def _watch_soon(self) -> None:
        """While this consumer has leases, look after them ten times in the length of one."""
        if self._watch_timer is None and self._handle is not None and self._has_leases():
            self._watch_timer = self.session.after(self.inbound.lease_us // 10, self._watch)

    def _has_leases(self) -> bool:
        return bool(self.inbound) or any(progress.held for progress in self._all_progress())

    def _watch(self) -> None:
        self._watch_timer = None
        if self.failure is not None or self._handle is None:
            return
        now_us, lease_us = self._now_us(), self.inbound.lease_us
        if self.inbound.untouched_us(now_us) >= lease_us:
            self._idle = True
            for progress in self._all_progress():
                self._release(progress)
            self._flush()
        self._release_stale()
        self.inbound.look_for_old(now_us)
        self._teller.tell_renewals()
        if now_us - self._looked_us >= 2 * lease_us:
            self._looked_us = now_us
            for progress in self._all_progress():
                progress.forget_lapsed(now_us)
            self.tidy_soon()
        self._send_credit()  # what was handed out since is told even if nothing was said of it
        self._watch_soon()

    def _release(self, progress: SharedProgress, doomed: Container[int] = ALL) -> None:
        """Give messages that wait here to other consumers, as if they had not been sent here."""
        withdrawn = self.inbound.withdraw(progress, doomed)
        for offset, hash_ in withdrawn.items():
            progress.give_back(offset, hash_)
        self._settlements.add(RELEASE, progress, withdrawn, quiet=True)
        self.tidy_soon()

    def _release_behind(self, progress: SharedProgress, firsts: dict[int, int]) -> None:
        """Nothing is handed out behind these offsets, which stand by the hashes of their keys."""
        doomed = self.inbound.behind(progress, firsts)
        if doomed:
            self._release(progress, doomed)

    # --- verdicts --------------------------------------------------------------------------------

    def arouse(self, progress: SharedProgress) -> None:
        """Something was said, and nobody is going to tell it, or not soon enough.

        Raises what has ended the subscription: then nobody ever will.
        """
        self.check_usable()
        if not self.owns(progress):
            return  # it was replaced
        progress.awake = True
        if progress.hurries:
            self._flush()
            self._send_credit()
        else:
            self.tidy_soon()

    def _flush(self) -> None:
        self._gather()
        self._teller.tell()

    def _gather(self) -> None:
        now_us = self._now_us()
        for progress in self._all_progress():
            for verdict, offsets, hashes in progress.gather(now_us):
                self._settlements.add(verdict, progress, offsets)
                for offset, hash_ in zip(offsets, hashes, strict=False):
                    progress.give_back(offset, hash_)
            if progress.refused:
                self._report(progress)
            if progress.returned:
                self._release_behind(progress, progress.first_returned())

    def _report(self, progress: SharedProgress) -> None:
        offsets, progress.refused = progress.refused, []
        found = [(progress.partition, each) for each in ranges_of(offsets)]
        self._settlements.add_refused(found, self._now_us(), awaited=bool(self.commits))

    @property
    def refused(self) -> int:
        return self._settlements.refused

    def deliver(self) -> bool:
        return self._settlements.is_answered(self.acked_so_far().told)

    def leaves_acks(self) -> bool:
        told = any(True for _ in self._settlements.held())
        return told or self._untold > 0 or self._teller.take_error() is not None

    def remains(self) -> str:
        self._gather()
        self._teller.put_together()
        return self._unsent(sum(1 for _ in self._settlements.held()))

    def forked(self, error: HocketError) -> None:
        self.failure, self._handle = error, None
        self.inbound.ready = iter(())
        for progress in self._all_progress():
            progress.awake = False
        if self.whole is not None:
            self.whole.forked(error)

    def check_has_index(self) -> None:
        """A shared subscription always has an index."""

    def acked_so_far(self) -> Mark:
        """Tell what was said; what a commit then has to wait for."""
        self.check_usable()
        self._flush()
        self._teller.put_together()  # also if there is no link
        return Mark(self._settlements.mark(), self._raised)

    def are_committed(self, mark: Mark) -> bool:
        """Whether all of it was answered. Raises what went wrong since the last commit.

        What another commit has raised since this one began is raised here too: what was refused may
        have been said by either.
        """
        error = self._teller.take_error()
        if error is None:
            if self._stopping or not self._settlements.is_answered(mark.told):
                self.check_usable()
                return False
            error = self._settlements.take_lost()
        if error is not None:
            self._raised += 1
            self._raised_last = error
            raise error
        if self._raised_last is not None and self._raised != mark.raised:
            raise again(self._raised_last)
        return True


def _chunk(options: SubscriptionOptions) -> int:
    return max(1, min(CHUNK, options.prefetch // 4))  # small: credit flows meanwhile
