"""A subscription to a shared index without threads and sockets: leases in, verdicts back.

Rule 1: credit is exact, in bytes and in messages. The bytes of a batch go back when the last of its
messages that its delivery leased is handed out or dropped; a message when it is settled or dropped,
so that no consumer holds more than its window (see `window`) unsettled.
Rule 2: leases of messages that wait here are renewed (see `leases`); what was handed out is the
application's, and is never renewed by itself. If the application takes nothing for a whole lease,
what waits is released for others, and its credit stays here until the application comes back.
Rule 3: what is said about messages is sent together, at most every TIDY_US, and without waiting;
extensions at once. It is told until it is answered (see `settlements`).
Rule 4: what waits when a link breaks is dropped, since the broker releases it when this consumer
opens anew; what was handed out stays ours, by naming it in `held`.
Rule 5: where keys keep their order, nothing of a key is handed out behind a message of it that was
nacked or released until the broker has answered: what waits, or still comes, is released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from functools import partial

from hocket import frames
from hocket.client.connection.backoff import Backoff
from hocket.client.connection.session import Answer, Session
from hocket.client.consuming.attachment import RETRYABLE, TIDY_US, Attachment, SubscriptionOptions
from hocket.client.consuming.message import Message, MessageBatch
from hocket.client.sharing.leases import ALL, CHUNK, Leases
from hocket.client.sharing.message import Run
from hocket.client.sharing.progress import NOTES_MAX, SharedProgress
from hocket.client.sharing.ranges import ranges_of
from hocket.client.sharing.settlements import Settlements, Telling
from hocket.client.sharing.verdict import RELEASE, RENEWAL
from hocket.client.sharing.window import Window
from hocket.core.session.session import CONSUMER_BYTES
from hocket.errors import (
    CorruptData,
    HocketError,
    ProtocolError,
    ReplyLost,
    WrongKind,
    from_code,
)
from hocket.frames import Frame, packed, unpacked
from hocket.model import Start
from hocket.timers import Timer

log = logging.getLogger("hocket")

KEPT = RETRYABLE | {"storageFull"}  # a verdict so refused is told again


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
            chunk=max(1, min(CHUNK, options.prefetch // 4)),  # so that credit flows meanwhile
            give_back=self._give_back,
        )
        self._settlements = Settlements(topic)
        self._arouse = arouse
        self._consumer = session.random.randbytes(CONSUMER_BYTES)
        self._winding_up = False
        self._stopping = False  # it was asked to stop, and has not answered
        self._lost_us = 0  # when the last link was lost
        self._owed_bytes = 0  # handed out and not given back as credit
        self._window = Window(options.prefetch)
        self._idle = False  # the application has left what waited until it was released
        self._tidy_timer: Timer | None = None
        self._watch_timer: Timer | None = None
        self._looked_us = 0  # when leases that must have ended were last looked for
        self._commit_error: HocketError | None = None
        self._settle_backoff = Backoff(session.random)

    # --- opening and ending ----------------------------------------------------------------------

    def link_up(self) -> None:
        options = self.options
        self._owed_bytes = 0  # nothing waits here: all of the credit is new
        self._idle = False
        held = self._held()
        frame = frames.OpenSubscription(
            0,
            self.topic,
            options.index,
            options.mode,
            Start() if self._was_open else options.start,  # partitions that came meanwhile
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
        )
        self._ask(frame)

    def _held(self) -> dict[SharedProgress, set[int]]:
        """What was handed out and is not settled, as far as the broker is known to know.

        But not what our lease of had ended before the link was lost: that may be with somebody
        else, and after a restart of the broker the first who claims it has it.
        """
        self._settlements.put_together(self.inbound.deliveries)
        held = {progress: progress.held_still(self._lost_us) for progress in self._all_progress()}
        for progress, offset in self._settlements.held():
            held[progress].add(offset)
        return held

    def link_down(self) -> None:
        self._handle = None
        self._lost_us = self._now_us()
        here = {
            progress: self.inbound.waiting(progress).union(progress.held)
            for progress in self._all_progress()
        }
        self._settlements.put_together(self.inbound.deliveries)
        self._settlements.link_lost(lambda progress, offset: offset in here[progress])
        self.inbound.clear()

    def wind_up(self) -> None:
        """It is about to be closed: what waits here, or is on its way, is for others.

        Whoever releases gets no more (see core.sharing), so behind the answer nothing comes, and
        what was not handed out does not count as delivered.
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
            progress.renewed(progress.held_still(self._lost_us), now_us)  # as they were claimed
        self._flush()
        self._watch_soon()

    def _refused(self, error: HocketError) -> None:
        self.end(error)

    def _clear(self) -> None:
        self.inbound.clear()

    def _progress_in(self, partition: int) -> SharedProgress:
        """The topic may have grown."""
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
            self._ended_by_broker(from_code(frame.code, frame.message))
        elif not isinstance(frame, frames.PartitionsChanged):
            raise ProtocolError(f"{type(frame).__name__} came for a subscription to a shared index")

    def _leased(self, frame: frames.Lease, payload: memoryview) -> None:
        progress = self._progress_in(frame.partition)
        runs = _triples(frame.ranges)
        self._window.received(sum(end - start for start, end, _ in runs))
        again = {n for start, end, count in runs if count > 1 for n in range(start, end)}
        contested: set[int] = set()
        if again:  # it may be here already, by a lease that has ended, or be settled any moment
            contested = again & self._settlements.contested(progress)
            self.inbound.withdraw(progress, again)
            progress.delivered_again(sorted(again - contested))
        try:
            self.inbound.keep(
                progress, runs, payload, continued=frame.continued, now_us=self._now_us()
            )
        except CorruptData as error:
            raise ProtocolError(f"a delivery cannot be read: {error}") from error
        if contested or self._winding_up:
            self._release(progress, ALL if self._winding_up else contested)
        if progress.returned:
            for start, end, _ in runs:
                for offset in set(range(start, end)) - contested:
                    progress.returned.pop(offset, None)  # it comes again, so that was heard
            self._release_overtaking(progress)
        self._watch_soon()
        self.deliveries.wake_all()

    def _moved(self, frame: frames.Moved) -> None:
        if frame.lost:
            self.lost += frame.lost
            log.warning(
                "topic %r, partition %d: %d messages before offset %d were removed by retention "
                "before they were read", self.topic, frame.partition, frame.lost, frame.offset,
            )  # fmt: skip
        progress = self.inbound.by_partition.get(frame.partition)
        if progress is not None:
            self._settlements.forget(progress)
            self.inbound.replace(progress, self._new_progress(frame.partition))
            self.commits.wake_all()

    def next_message(self) -> Message | None:
        """None: there is none now. Raises what has ended the subscription."""
        message = next(self.inbound.ready, None)
        if message is None:
            self._asked_for_more()
            try:
                while message is None and self.inbound.refill(self._now_us()):
                    self._tell_renewals()
                    self.tidy_soon()
                    message = next(self.inbound.ready, None)  # None: others have drawn it all
            except CorruptData as error:
                self.end(error)
            if message is None:
                self.check_usable()
                self._ran_dry()
        return message

    def next_batch(self) -> MessageBatch | None:
        self._asked_for_more()
        try:
            batch = self.inbound.take_batch(self._now_us())
            self._tell_renewals()
        except CorruptData as error:
            self.end(error)
            batch = None
        if batch is None:
            self.check_usable()
            self._ran_dry()
        return batch

    def _now_us(self) -> int:
        return self.session.clock.ticks_us()

    # --- credit ----------------------------------------------------------------------------------

    def _give_back(self, size: int) -> None:
        self._owed_bytes += size
        if 2 * self._owed_bytes >= self.options.credit_bytes:
            self._send_credit()
        else:
            self.tidy_soon()

    def _unsettled(self) -> int:
        return sum(len(progress.held) + progress.waiting() for progress in self._all_progress())

    def _send_credit(self) -> None:
        if self._handle is None or self._idle or self._winding_up:
            return
        messages = self._window.owed(self._unsettled())
        if messages or self._owed_bytes:
            self._window.give(messages)
            size, self._owed_bytes = self._owed_bytes, 0
            self.session.send(frames.Credit(0, self._handle, size, messages))

    def _ran_dry(self) -> None:
        """The application waits; if the broker does too, for us, it must not for long."""
        if self._window.ran_dry():
            for progress in self._all_progress():
                progress.notes_max = self._notes_max()
            self._flush()
            self._send_credit()

    def _notes_max(self) -> int:
        """So many verdicts are told at once; soon enough for the window to move on."""
        return max(1, min(NOTES_MAX, self._window.size // 2))

    def _asked_for_more(self) -> None:
        if self._idle:
            self._idle = False
            self._send_credit()

    def tidy_soon(self) -> None:
        if self._tidy_timer is None and self.failure is None:
            self._tidy_timer = self.session.timers.after(TIDY_US, self._tidy)

    def _tidy(self) -> None:
        self._tidy_timer = None
        if self.failure is None:
            self.inbound.count_drawn(self._now_us())
            self._flush()
            self._send_credit()

    # --- leases ----------------------------------------------------------------------------------

    def _watch_soon(self) -> None:
        """While there are leases, look after them ten times in each."""
        if self._watch_timer is None and self._handle is not None and self._has_leases():
            self._watch_timer = self.session.timers.after(self.inbound.lease_us // 10, self._watch)

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
        self.inbound.look_for_old(now_us)
        self._tell_renewals()
        if now_us - self._looked_us >= 2 * lease_us:
            self._looked_us = now_us
            for progress in self._all_progress():
                progress.forget_lapsed(now_us)
            self.tidy_soon()
        self._watch_soon()

    def _tell_renewals(self) -> None:
        renewals, self.inbound.renewals = self.inbound.renewals, []
        for progress, offsets in renewals:
            self._settlements.add(RENEWAL, progress, offsets, quiet=True)
        if renewals:
            self._tell()

    def _release(self, progress: SharedProgress, doomed: Container[int] = ALL) -> None:
        """Messages that wait here are for others, as if they had not been sent."""
        withdrawn = self.inbound.withdraw(progress, doomed)
        for offset, hash_ in withdrawn.items():
            progress.give_back(offset, hash_)
        self._settlements.add(RELEASE, progress, withdrawn, quiet=True)
        self.tidy_soon()

    def _release_overtaking(self, progress: SharedProgress) -> None:
        doomed = self.inbound.behind(progress, progress.first_returned())
        if doomed:
            self._release(progress, doomed)

    # --- verdicts --------------------------------------------------------------------------------

    def arouse(self, progress: SharedProgress) -> None:
        """Something was said, and nobody is going to look, or not soon enough."""
        progress.awake = True
        if progress.hurries:
            self._flush()
            self._send_credit()
        else:
            self.tidy_soon()

    def _flush(self) -> None:
        self._gather()
        self._tell()

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
                self._release_overtaking(progress)

    def _report(self, progress: SharedProgress) -> None:
        offsets, progress.refused = progress.refused, []
        self._settlements.report(
            [(progress.partition, each) for each in ranges_of(offsets)],
            self._now_us(),
            log_it=not self.commits,
        )

    def _tell(self) -> None:
        if self._handle is None:
            return
        self._settlements.put_together(self.inbound.deliveries)
        for telling in self._settlements.to_send():
            telling.waits = False
            action, duration_us, reason = telling.verdict
            frame = frames.Settle(0, self._handle, action, telling.triples(), duration_us, reason)
            self.session.request(frame, partial(self._answered, telling))

    def _answered(self, telling: Telling, answer: Frame | HocketError) -> None:
        if not self._settlements.is_open(telling) or isinstance(answer, ReplyLost):
            return  # void, or to be told again on the next link
        if isinstance(answer, HocketError):
            self._not_settled(telling, answer)
        elif isinstance(answer, frames.Settled):
            self._settled(telling, _triples(answer.refused))
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to Settle")
        self.commits.wake_all()

    def _settled(self, telling: Telling, refused: list[Run]) -> None:
        self._settle_backoff.reset()
        self._settlements.answered(telling, refused, self._now_us(), log_it=not self.commits)
        telling.let_keys_go_on()
        if telling.quiet and telling.verdict == RENEWAL:
            by_partition = telling.by_partition()
            for partition, start, end in refused:  # somebody else has them, or will
                if partition in by_partition:
                    self.inbound.withdraw(
                        by_partition[partition], range(start, end), delivery=telling.delivery
                    )

    def _not_settled(self, telling: Telling, error: HocketError) -> None:
        if telling.waits or self.failure is not None:  # it will be told again, or never
            return
        if error.code in KEPT and not telling.quiet:
            telling.waits = True
            self.session.timers.after(self._settle_backoff.next_us(), self._tell)
        else:
            self._settlements.drop(telling)
            telling.let_keys_go_on()
        if error.code not in RETRYABLE and not telling.quiet:
            self._commit_error = error
            log.warning("settling messages of topic %r was refused: %s", self.topic, error)

    @property
    def refused(self) -> int:
        return self._settlements.refused

    def check_has_index(self) -> None:
        """A shared one always has."""

    def acked_so_far(self) -> int:
        """What a commit has to wait for; it is on its way."""
        self.check_usable()
        self._flush()
        self._settlements.put_together(self.inbound.deliveries)  # also if there is no link
        return self._settlements.mark()

    def are_committed(self, mark: int) -> bool:
        """Raises, once, what went wrong since the last commit."""
        if self._commit_error is not None:
            error, self._commit_error = self._commit_error, None
            raise error
        if self._stopping or not self._settlements.is_answered(mark):
            self.check_usable()
            return False
        lost = self._settlements.take_lost()
        if lost is not None:
            raise lost
        return True


def _triples(data: bytes) -> list[tuple[int, int, int]]:
    numbers = unpacked(data)
    return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
