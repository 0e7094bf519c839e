"""A subscription without threads and sockets: deliveries in, messages out, credits and acks back.

Rule 1: a subscription hands out every message of a partition once and in order, whatever happens to
its links: it opens itself anew behind the last message that it holds.
Rule 2: credit is exact. The bytes of a batch go back when its last message is handed out (that of
the last, if small ones were opened together), or when the batch is dropped unread; a subscription
that opens anew asks for its credit less what it holds.
Rule 3: acks are cumulative. They are sent together, TIDY_US after the first, or at once for a
commit; nobody waits for that. Acks that were not confirmed when a link broke are sent again.
Rule 4: what cannot be read ends the subscription behind the last message before it. With an index
it stays open at the broker for commits: acks are sent, and closing commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from hocket import frames
from hocket.client_core.consuming.attachment import RETRYABLE, Attachment, SubscriptionOptions
from hocket.client_core.consuming.feed import Feed
from hocket.client_core.consuming.inbound import Inbound
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.consuming.progress import Progress
from hocket.client_core.session.answers import again, closed, points_elsewhere
from hocket.client_core.session.session import Answer, Session
from hocket.errors import (
    BusyResource,
    CorruptData,
    HocketError,
    NotHere,
    OutcomeUnknown,
    ProtocolError,
    ReplyLost,
    UnknownHandle,
    WrongKind,
    from_code,
    unreadable,
)
from hocket.frames import Frame, packed, unpacked
from hocket.model import Start

LITTLE_BYTES = 16 << 10  # handed out, and given back when the next come, or by the timer


@dataclass(slots=True)
class Seek:
    """A seek that is under way, with what is needed to undo it."""

    partition: int
    former: int  # the position before the seek
    answer: Answer
    frame: frames.SeekIndex | None = None  # by which the broker is asked; None: by opening anew
    asked: Session | None = None  # by which session; None: that node is not there any more


class SubscriptionCore(Attachment):
    def __init__(
        self,
        session: Session,
        topic: str,
        options: SubscriptionOptions,
        *,
        message: type[Message],
        batch: type[MessageBatch],
        arouse: Callable[[Progress], None],
    ) -> None:
        super().__init__(session, topic, options)
        self.inbound = Inbound(
            topic,
            message=message,
            batch=batch,
            new_progress=self._new_progress,
            give_back=self._give_back,
            delivered=session.delivered,
        )
        self._arouse = arouse
        self._seek: Seek | None = None
        self._feed: Feed | None = None  # the bytes come from there, not from the leader
        self._unfed = ""  # the node that did not feed it; the leader is told, once
        self._is_direct = False  # the leader is asked to deliver, for the moment
        self._commit_error: HocketError | None = None

    def _new_progress(self, partition: int, offset: int, end: int) -> Progress:
        progress = Progress(partition, offset, end, self._arouse)
        progress.index = self.options.index
        if not self.options.index:
            progress.note = _no_index
        return progress

    # --- opening and ending ----------------------------------------------------------------------

    def link_up(self) -> None:
        options = self.options
        start, positions = options.start, options.positions
        if self._was_open:
            start = Start()  # for partitions that came meanwhile: nothing of them was missed
            positions = tuple(
                (progress.partition, progress.expected) for progress in self._all_progress()
            )
        self.inbound.settle_ready()
        credit = 0 if self.commits_only else options.credit_bytes - self.inbound.held_bytes
        frame = frames.OpenSubscription(
            0,
            self.topic,
            options.index,
            options.mode,
            start,
            packed(number for pair in positions for number in pair),
            packed(options.partitions),
            options.hold_retention,
            max(0, credit),
            must_exist=not options.create,
            resumes=self._was_open,
            part=self.is_part,
            fed=self.session.router is not None and not self.commits_only,
            direct=self._is_direct,
            unfed=self._unfed,
        )
        self._owed_bytes = min(0, credit)  # a batch may be larger than all of the credit
        self._ask(frame)

    def link_down(self) -> None:
        self._handle = None
        self._leave_feed()
        for progress in self._all_progress():
            progress.requested = progress.committed

    def narrow(self, options: SubscriptionOptions) -> None:
        self.options = options

    @property
    def has_messages(self) -> bool:
        return bool(self.inbound)

    @property
    def has_more(self) -> bool:
        """Also if much is to be given back then, for which the broker may wait."""
        inbound = self.inbound
        return bool(inbound) or inbound.owed_bytes > min(
            LITTLE_BYTES, self.options.credit_bytes // 16
        )

    def owns(self, progress: Progress) -> bool:
        return self.inbound.by_partition.get(progress.partition) is progress

    def join(self, other: SubscriptionCore) -> None:
        """Parts of an own index need not know each other: each has an epoch for itself."""

    def hand_over(self, numbers: Iterable[int], to: SubscriptionCore) -> None:
        seek = self._seek
        for number in numbers:
            progress = self.inbound.take_out(number)
            if progress is None:
                continue
            to.inbound.put_in(progress)
            to._was_open = True
            if seek is not None and seek.partition == number:
                self._seek = None
                to._take_seek(seek)
            to.tidy_soon()  # acks may wait for the timer of this one

    def wind_up(self) -> None:
        """The subscription is about to be closed. Nothing to do: what waits was never acked."""

    @property
    def refused(self) -> int:
        """Always 0: acks of an own index are refused as a whole, and `commit` raises that."""
        return 0

    def partitions(self) -> list[int]:
        return sorted(self.inbound.by_partition)

    def position(self, partition: int) -> int:
        return self.inbound.position(partition)

    def lag(self) -> int:
        return self.inbound.lag()

    def _all_progress(self) -> list[Progress]:
        return list(self.inbound.by_partition.values())

    def _clear(self) -> None:
        self.inbound.clear()

    def _let_go(self) -> None:
        self._leave_feed()
        super()._let_go()
        for progress in self._all_progress():
            progress.awake = False  # from now on `arouse` is asked about each ack, and raises
        if self._seek is not None:
            seek, self._seek = self._seek, None
            seek.answer(self.failure or closed("the subscription"))

    def _take_up(self, frame: frames.SubscriptionOpened) -> None:
        for partition, offset in _pairs(frame.positions):
            progress = self.inbound.by_partition.get(partition)
            if progress is None:
                self.inbound.add_partition(partition, offset, offset)
            elif offset < progress.expected:
                # The topic is kept in memory, and its broker has lost what was behind this in a
                # crash. Other records will get these offsets, so what is left of the lost ones is
                # not handed out any more.
                self.session.report(
                    "warning", "topic %r, partition %d: a crash has lost what was read from offset "
                    "%d on", self.topic, partition, offset,
                )  # fmt: skip
                self.inbound.replace(progress, offset)
            elif offset != progress.expected:
                raise ProtocolError(
                    f"partition {partition} was opened at {offset}, not {progress.expected}"
                )
            else:
                progress.sought = False
        self._unfed, self._is_direct = "", False
        if frame.feeder:
            self._begin_feed(frame)
        seek = self._seek
        if seek is not None and not self.options.index:
            self._seek = None
            seek.answer(frame)
        elif seek is not None and seek.asked is not self.session:
            self._ask_to_seek(seek)
        self.tidy_soon()

    def _refused(self, error: HocketError) -> None:
        if self._seek is not None and not self.options.index:
            self._undo_seek(error)
        elif isinstance(error, CorruptData) and self.inbound:
            self.failure = error  # what came before the damage is good, and is handed out first
            self._let_go()
            self._tell_failure()
        else:
            self.end(error)

    def _stopped(self, frame: frames.HandleEnded) -> None:
        """The broker cannot read on: what came before is handed out, and can be acknowledged."""
        if self.failure is None:
            self.failure = CorruptData(
                frame.message, topic=self.topic, partition=frame.partition, start=frame.start,
                end=frame.end,
            )  # fmt: skip
            self.commits_only = True
            self._tell_failure()
            self.deliveries.wake_all()

    def _cannot_read(self, error: CorruptData) -> None:
        """What is to be handed out next cannot be read, and what lies behind it must wait."""
        assert error.partition is not None
        assert error.start is not None
        assert error.end is not None
        index = self.options.index
        self.failure = unreadable(
            str(error), topic=self.topic, index=index, partition=error.partition,
            start=error.start, end=error.end,
        )  # fmt: skip
        self._leave_feed()
        if index:
            self.commits_only = True
            self.deliveries.wake_all()
        else:
            self._let_go()
        self._clear()
        self._tell_failure()

    # --- a feed: the leader has named another node for the bytes -------------------------------

    def _begin_feed(self, frame: frames.SubscriptionOpened) -> None:
        (node,) = frame.feeder
        numbers = [partition for partition, _ in _pairs(frame.positions)]
        groups = dict(zip(numbers, unpacked(frame.groups), strict=True))
        router = self.session.router
        assert router is not None, "the leader was told otherwise"
        session = router.session_at(node)
        if session is None:  # nobody can be reached at its address
            self.feed_is_over(node.node, lost=False)
            return
        self._feed = Feed(self, node, groups, self.options.index, session)
        self._feed.begin()

    def _leave_feed(self) -> None:
        if self._feed is not None:
            feed, self._feed = self._feed, None
            feed.leave()

    def feed_places(self) -> tuple[list[tuple[int, int]], int]:
        self.inbound.settle_ready()
        credit = self.options.credit_bytes - self.inbound.held_bytes
        self._owed_bytes = min(0, credit)
        return [(each.partition, each.expected) for each in self._all_progress()], credit

    def feed_is_open(self) -> None:
        self._send_credit()  # of what was handed out meanwhile

    def feed_delivered(self, frame: frames.Deliver, payload: memoryview) -> None:
        self._delivered(frame, payload)

    def feed_is_over(self, node: str, *, lost: bool) -> None:
        self._feed = None
        self._is_direct = True
        self._unfed = "" if lost else node
        if self._handle is not None and self.session.state == "ready":
            self.session.close_handle(self._handle)
        self.link_down()
        self.open_later()

    # --- seeking ---------------------------------------------------------------------------------

    def seek(self, partition: int, offset: int, answer: Answer) -> None:
        """Go on at `offset`. What this client holds of the partition is dropped at once."""
        self.check_usable()
        progress = self.inbound.progress_in(partition)
        if self._seek is not None:
            raise BusyResource("another seek of this subscription is under way; wait for it first")
        self._seek = Seek(partition, self.inbound.position(partition), answer)
        new = self.inbound.replace(progress, offset)
        if self.options.index:
            # The broker moves the index, durably, and says Moved; what comes until then is stale.
            new.sought = True
            start = Start("offset", offset)
            self._seek.frame = frames.SeekIndex(0, self.topic, self.options.index, start, partition)
            self._ask_to_seek(self._seek)
        else:
            self._reopen()

    def _ask_to_seek(self, seek: Seek) -> None:
        assert seek.frame is not None
        seek.asked = self.session
        answered = partial(self._seek_answered, seek, self.session)
        self.session.request(replace(seek.frame), answered, repeatable=True)

    def _take_seek(self, seek: Seek) -> None:
        """The partition has come here; where this is opened next, the seek is asked for."""
        if self._seek is None:
            seek.asked = None
            self._seek = seek
        else:
            seek.answer(OutcomeUnknown("its partition went to another node; it may yet happen"))

    def _seek_answered(self, seek: Seek, asked: Session, answer: Frame | HocketError) -> None:
        if self._seek is not seek or seek.asked is not asked:
            return  # it is asked for elsewhere; or all has ended, and the seeker was told
        if points_elsewhere(answer):
            seek.asked = None  # it is asked for again where this is opened next
        elif isinstance(answer, HocketError):
            self._undo_seek(answer)
        else:
            self._seek = None
            seek.answer(answer)

    def _undo_seek(self, error: HocketError) -> None:
        assert self._seek is not None
        seek, self._seek = self._seek, None
        self.inbound.replace(self.inbound.by_partition[seek.partition], seek.former)
        self._reopen()
        seek.answer(error)

    def _reopen(self) -> None:
        if self._handle is not None:
            self.session.close_handle(self._handle)
        self.link_down()
        self._abandon()
        self.open_again()

    # --- deliveries ------------------------------------------------------------------------------

    def received(self, frame: Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.Deliver):
            self._delivered(frame, payload)
        elif isinstance(frame, frames.Moved):
            self._moved(frame)
        elif isinstance(frame, frames.HandleEnded) and frame.commits:
            self._stopped(frame)
        elif isinstance(frame, frames.HandleEnded):
            self._handle_ended(from_code(frame.code, frame.message))
        elif isinstance(frame, frames.PartitionsChanged):
            self._topic_grows(frame)
        else:
            raise ProtocolError(f"{type(frame).__name__} came for a subscription")

    def _delivered(self, frame: frames.Deliver, payload: memoryview) -> None:
        if self.failure is not None:  # it only commits, and hands nothing more out
            return
        progress = self.inbound.by_partition.get(frame.partition)
        if progress is None:  # the topic has grown
            progress = self.inbound.add_partition(frame.partition, frame.offset, frame.end)
        if progress.sought:
            self._give_back(len(payload))
            return
        if frame.offset > progress.expected:
            raise ProtocolError(
                f"partition {frame.partition} went on at {frame.offset}, not {progress.expected}"
            )
        progress.end = max(progress.end, frame.end)
        try:
            self.inbound.keep(progress, payload)
        except CorruptData as error:
            raise ProtocolError(f"a delivery cannot be read: {error}") from error
        self.deliveries.wake_all()

    def _moved(self, frame: frames.Moved) -> None:
        progress = self.inbound.by_partition.get(frame.partition)
        if progress is None:  # the topic has grown
            progress = self.inbound.add_partition(frame.partition, frame.offset, frame.offset)
        self._count_lost(frame)
        if frame.lost and not progress.sought and frame.offset >= progress.expected:
            progress.skip_to(frame.offset)  # what was delivered before the gap is still good
        else:
            self.inbound.replace(progress, frame.offset)
        if self._feed is not None:
            self._feed.anew()

    def next_message(self) -> Message | None:
        """The next message, None if none is here. Raises what has ended the subscription."""
        message = next(self.inbound.ready, None)
        if message is None:
            try:
                while message is None and self.inbound.refill():
                    self.tidy_soon()
                    message = next(self.inbound.ready, None)  # None: others have drawn it all
            except CorruptData as error:
                self._cannot_read(error)
            if message is None:
                self.check_usable()
        return message

    def next_batch(self, *, merge: bool = False) -> MessageBatch | None:
        try:
            batch = self.inbound.take_merged() if merge else self.inbound.take_batch()
        except CorruptData as error:
            self._cannot_read(error)
            batch = None
        if batch is None:
            self.check_usable()
        return batch

    # --- credit and acks -------------------------------------------------------------------------

    def _send_credit(self) -> None:
        if self._owed_bytes <= 0 or self._handle is None or self.commits_only:
            return
        if self._feed is None:
            self.session.send(frames.Credit(0, self._handle, self._owed_bytes))
        elif self._feed.is_open:
            self._feed.give(self._owed_bytes)
        else:
            return
        self._owed_bytes = 0

    def _tidy(self) -> None:
        self._owed_bytes += self.inbound.take_drawn()
        if self.inbound.owed_bytes:  # what is handed out is in use: look when it is drawn empty
            self.deliveries.note()
        self._send_credit()
        self._send_acks()

    def arouse(self, progress: Progress) -> None:
        """Messages were acked, and nobody is going to send that: see to it.

        Raises what has ended the subscription: then nobody ever will.
        """
        self._check_in_use()
        if self.owns(progress):  # else it was replaced
            progress.awake = True
            self.tidy_soon()

    def _send_acks(self) -> None:
        moves = []
        for progress in self._all_progress():
            progress.gather_acks()
            if progress.acked > progress.requested and self._handle is not None:
                progress.requested = progress.acked
                moves.append((progress, progress.acked))
        if moves:
            assert self._handle is not None
            pairs = packed(n for progress, offset in moves for n in (progress.partition, offset))
            self.session.request(
                frames.Commit(0, self._handle, pairs), partial(self._committed, moves, self._handle)
            )

    def _committed(
        self, moves: list[tuple[Progress, int]], handle: int, answer: Frame | HocketError
    ) -> None:
        if isinstance(answer, UnknownHandle) and handle != self._handle:
            # The broker had ended the handle when the commit came: the next one sends it again.
            answer = NotHere(str(answer))
        if isinstance(answer, HocketError):
            for progress, _ in moves:
                progress.requested = progress.committed
            if answer.code in RETRYABLE:
                self.tidy_soon()
            elif not isinstance(answer, ReplyLost | NotHere) and self._is_in_use:
                self._commit_error = answer
                self.session.report(
                    "warning", "acks of topic %r were refused: %s", self.topic, answer
                )
        else:
            for progress, offset in moves:
                progress.committed = max(progress.committed, offset)
        self.commits.wake_all()

    def deliver(self) -> bool:
        """Acks that were refused for good are not waited for: that was reported."""
        self._send_acks()
        return self._commit_error is not None or not self._uncommitted()

    def _uncommitted(self) -> int:
        return sum(max(0, each.acked - each.committed) for each in self._all_progress())

    def leaves_acks(self) -> bool:
        for progress in self._all_progress():
            progress.gather_acks()
        return self._uncommitted() > 0

    def remains(self) -> str:
        for progress in self._all_progress():
            progress.gather_acks()
        return self._unsent(self._uncommitted())

    def forked(self, error: HocketError) -> None:
        self.failure, self.commits_only, self._handle = error, False, None
        self.inbound.ready = iter(())
        for progress in self._all_progress():
            progress.awake = False
        if self.whole is not None:
            self.whole.forked(error)

    def check_has_index(self) -> None:
        if not self.options.index:
            _no_index(0)

    def acked_so_far(self) -> list[tuple[Progress, int]]:
        """Send the acks; what a commit then has to wait for."""
        self._check_in_use()
        self._commit_error = None
        self._send_acks()
        return [(progress, progress.acked) for progress in self._all_progress()]

    def _check_in_use(self) -> None:
        if not self.commits_only:
            self.check_usable()

    def are_committed(self, acked: list[tuple[Progress, int]]) -> bool:
        """Whether these acks are durable. Those from before a seek are not waited for."""
        by_partition = self.inbound.by_partition
        if all(p.committed >= offset for p, offset in acked if by_partition.get(p.partition) is p):
            return True
        self._check_in_use()
        if self._commit_error is not None:
            raise again(self._commit_error)
        return False


def _pairs(positions: bytes) -> Iterator[tuple[int, int]]:
    numbers = unpacked(positions)
    return zip(numbers[::2], numbers[1::2], strict=True)


def _no_index(_offset: int) -> NoReturn:
    raise WrongKind(
        "this subscription has no index at the broker, so there is nothing to acknowledge: "
        "subscribe with index='a name', or keep m.offset yourself"
    )
