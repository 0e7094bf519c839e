"""What every subscription has, whatever its index: it is opened on each link, and ended once.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.

Only the answer to the last OpenSubscription counts; whatever else was opened is closed again.

A subscription may be for some of the partitions of its topic, which one node has. Then it is a part
of a whole (`parts`), which knows the others, and is asked whenever this one hears something that
may concern them: partitions that went elsewhere, new ones, an index that only others have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from hocket import frames
from hocket.client_core.consuming.typed import Decoding
from hocket.client_core.outbox import WakeUps
from hocket.client_core.session.answers import again, closed
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.session import Answer, Route, Session
from hocket.errors import (
    HocketError,
    NotHere,
    ProtocolError,
    ReplyLost,
    UnknownTopic,
)
from hocket.frames import Frame
from hocket.model import CREDIT_BYTES_DEFAULT, PREFETCH_DEFAULT, Failover, Mode, Start
from hocket.timers import Timer

if TYPE_CHECKING:
    from typing import Self

TIDY_US = 50_000  # credit and acks that are not urgent are sent together, so long after the first
RETRYABLE = frozenset({"busy", "shuttingDown", "rootAway"})


@dataclass(slots=True)
class SubscriptionOptions:
    index: str = ""
    mode: Mode = "own"
    start: Start = Start()  # noqa: RUF009 - it cannot be changed
    partitions: tuple[int, ...] = ()
    positions: tuple[tuple[int, int], ...] = ()
    hold_retention: bool = False
    credit_bytes: int = CREDIT_BYTES_DEFAULT
    credit_each_node: bool = False  # so much of each of a few nodes, rather than of all together
    # What follows is for shared indexes.
    prefetch: int = PREFETCH_DEFAULT
    prefetch_each_node: bool = False  # so many of each node, rather than of all together
    lease_us: int = 0  # 0: as the index has it
    max_deliveries: int = 0  # 0: as the index has it
    failover: Failover = "safe"
    create: bool = True  # of any index: make it if it is not there
    decoding: Decoding | None = None  # of values that are not bytes


class Whole(Protocol):
    """What a part of a subscription tells the whole."""

    def located(self, part: Any, error: HocketError | None) -> None:
        """Who leads its partitions is known, or why that will not be."""

    def opened(self, part: Any) -> None: ...

    def sees_to(self, part: Any, error: HocketError) -> bool:
        """Whether the whole does something about this refusal; else the part ends."""

    def grows(self, count: int) -> None:
        """A node says that the topic has `count` partitions, and does not add the new ones."""

    def failed(self, part: Any) -> None:
        """It has a `failure` now, but may have messages to hand out before that."""

    def forked(self, error: HocketError) -> None: ...


class Attachment(ABC):
    """A subscription's tie to the session: opened on each link, closed once, with credit."""

    def __init__(self, session: Session, topic: str, options: SubscriptionOptions) -> None:
        self.session = session
        self.topic = topic
        self.options = options
        self.whole: Whole | None = None  # None: it is by itself, and its topic on one node
        self.node = ""  # that was last said to lead its partitions, if they are on several
        self.is_part = False  # its partitions are some of all, and all are wanted
        # It was open, and has got partitions that were not: where those begin. None: it has none.
        self.begins: Start | None = None
        self.failure: HocketError | None = None
        # It has failed, but stays open at the broker until it is closed, so that what was handed
        # out can still be acknowledged.
        self.commits_only = False
        self.lost = 0  # records that retention removed before they were read
        self._index_is_new = False  # this subscription has made its index
        outbox = session.outbox
        self.changed = WakeUps(outbox)  # called when the subscription is opened or ended
        self.deliveries = WakeUps(outbox)  # when a message can be handed out, or never will be
        self.commits = WakeUps(outbox)  # when acks became durable, or were refused
        self._handle: int | None = None
        self._was_open = False
        self._is_asking = False  # the broker was asked to open it, and has not answered
        self._asked = session  # where
        # Where it was asked to be opened, and the answer is of no use any more, but has not come.
        self._abandoned: dict[Session, None] = {}
        self._answer_is_lost = False  # one to that was lost, so that it may have been opened
        self._opens = 0  # how often OpenSubscription was sent
        self._backoff = Backoff(outbox.random)
        self._owed_bytes = 0  # handed out or dropped, and not given back as credit yet
        self._tidy_timer: Timer | None = None

    @property
    def route(self) -> Route:
        numbers = self.options.partitions
        return Route(self.topic, numbers[0]) if numbers else Route(self.topic)

    def located(self, error: HocketError | None) -> None:
        assert self.whole is not None, "who opens a subscription for all partitions, parts it"
        self.whole.located(self, error)

    def open(self) -> None:
        self.session = self.session.place_of(self.route)
        self.session.add(self)

    def topics(self) -> list[str]:
        return [self.topic]

    def new_indexes(self) -> list[str]:
        return [self.topic] if self._index_is_new else []

    def of(self, topic: str | None) -> Self:
        """This subscription itself, unless another topic is meant."""
        if topic not in (None, self.topic):
            raise UnknownTopic(f"this subscription reads topic {self.topic!r}, not {topic!r}")
        return self

    @property
    def handle(self) -> int | None:
        """What the broker calls this subscription on the current link; None: it is not open."""
        return self._handle

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @property
    def is_asking(self) -> bool:
        """Somebody was asked to open it, and has not answered."""
        return self._is_asking

    @property
    def is_asked_for(self) -> bool:
        return self._handle is not None or (self._is_asking and self._asked is self.session)

    @property
    def was_open(self) -> bool:
        return self._was_open

    @property
    def may_be_opened(self) -> bool:
        """It is not known to be open; but somebody was asked for that, and did not say no."""
        return self._is_asking or self._answer_is_lost

    def unconfirmed(self, acked: Any) -> str:  # noqa: ARG002
        return ""  # there is one place

    def away(self) -> str:
        return ""

    def place_of(self, partition: int) -> str:  # noqa: ARG002
        return ""

    def check_usable(self) -> None:
        if self.failure is not None:
            raise again(self.failure)

    # --- what differs ----------------------------------------------------------------------------

    @abstractmethod
    def partitions(self) -> list[int]: ...

    @abstractmethod
    def narrow(self, options: SubscriptionOptions) -> None:
        """Be for these partitions from the next opening on, with this share of what all hold."""

    @property
    @abstractmethod
    def has_messages(self) -> bool:
        """Whether messages wait to be handed out."""

    @property
    def has_more(self) -> bool:
        """Whether there is something to do when what is `ready` was drawn."""
        return True

    @property
    def has_news(self) -> bool:
        return True

    @abstractmethod
    def owns(self, progress: Any) -> bool:
        """Whether it is the progress in one of these partitions, and was not replaced."""

    @abstractmethod
    def hand_over(self, numbers: Iterable[int], to: Any) -> None:
        """Another part goes on with these partitions, from where this one was. Neither is open.

        What waits here and was not handed out is dropped, and delivered there.
        """

    @abstractmethod
    def join(self, other: Any) -> None:
        """Be a part of the same subscription as this other one."""

    @abstractmethod
    def link_up(self) -> None: ...

    @abstractmethod
    def link_down(self) -> None: ...

    @abstractmethod
    def received(self, frame: Frame, payload: memoryview) -> None: ...

    @abstractmethod
    def _take_up(self, frame: frames.SubscriptionOpened) -> None:
        """The broker has opened the subscription; go on from there."""

    @abstractmethod
    def _refused(self, error: HocketError) -> None:
        """The broker will not open the subscription, or has ended it for good."""

    @abstractmethod
    def _clear(self) -> None:
        """Drop what was not handed out."""

    @abstractmethod
    def _send_credit(self) -> None:
        """Give back the credit that is owed, if the subscription is open."""

    @abstractmethod
    def _tidy(self) -> None:
        """Send what has waited for company."""

    # --- opening ---------------------------------------------------------------------------------

    def _ask(self, frame: frames.OpenSubscription) -> None:
        if self.session in self._abandoned:
            return  # it is asked for when that is answered
        self._opens += 1
        self._is_asking = True
        self._asked = self.session
        answered = partial(self._open_answered, self._opens, self.session)
        self.session.request(frame, answered)

    def _open_answered(self, number: int, asked: Session, answer: Frame | HocketError) -> None:
        self._is_asking = self._is_asking and number != self._opens
        if number != self._opens and asked in self._abandoned:
            del self._abandoned[asked]
            if isinstance(answer, frames.SubscriptionOpened):
                asked.close_handle(answer.handle)
            self.open_again()
            return
        if isinstance(answer, ReplyLost):
            self._answer_is_lost = True
            return  # the next link opens it
        if isinstance(answer, frames.SubscriptionOpened):
            if self._is_in_use and number == self._opens:
                self._opened(answer)
            else:
                asked.close_handle(answer.handle)
        elif isinstance(answer, HocketError):
            if number == self._opens:
                self._ended_by_broker(answer)
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to OpenSubscription")

    @property
    def _is_in_use(self) -> bool:
        """Whether acks are still sent."""
        return self.failure is None or self.commits_only

    def _opened(self, frame: frames.SubscriptionOpened) -> None:
        self._handle = frame.handle
        self.session.handles[frame.handle] = self
        self._backoff.reset()
        self.session.served(self.route, self)
        for number in self.options.partitions:  # each may have been sought by itself before
            self.session.served(Route(self.topic, number))
        self._index_is_new |= frame.index_is_new
        self._was_open = True
        self.begins = None
        self._take_up(frame)
        if self.whole is not None:
            self.whole.opened(self)
        self.changed.wake_all()

    def shut(self) -> None:
        """Be not open any more, and not asked for: it is going to be opened otherwise."""
        if self._handle is not None:
            self._leave_handle(self._handle)
            self.link_down()
        self._abandon()

    def _abandon(self) -> None:
        """Whatever is answered to what was asked would be of the old place.

        Until that has come nothing is asked in the same session: its node may do the older thing
        later, and an index that is opened twice is taken from whoever opened it first.
        """
        if not self._is_asking:
            return
        self._is_asking = False
        self._opens += 1
        if self.options.index and self.options.mode == "own":
            self._abandoned[self._asked] = None

    def _leave_handle(self, handle: int) -> None:
        self.session.close_handle(handle)

    def open_again(self) -> None:
        is_open = self._handle is not None or self._is_asking
        if self.session.state == "ready" and not is_open and self.failure is None:
            self.link_up()

    # --- credit and loss -------------------------------------------------------------------------

    def _give_back(self, size: int) -> None:
        """`size` bytes were handed out or dropped; half of the credit goes back at once."""
        self._owed_bytes += size
        if 2 * self._owed_bytes >= self.options.credit_bytes:
            self._send_credit()
        else:
            self.tidy_soon()

    def tidy_soon(self) -> None:
        if self._tidy_timer is None and self._is_in_use:
            self._tidy_timer = self.session.after(TIDY_US, self._tidy_now)

    def _tidy_now(self) -> None:
        self._tidy_timer = None
        if self._is_in_use:
            self._tidy()

    def _topic_grows(self, frame: frames.PartitionsChanged) -> None:
        if self.whole is not None and frame.part:
            self.whole.grows(frame.partitions)

    def _count_lost(self, frame: frames.Moved) -> None:
        if frame.lost:
            self.lost += frame.lost
            self.session.report(
                "warning",
                "topic %r, partition %d: %d messages before offset %d were removed by retention "
                "before they were read", self.topic, frame.partition, frame.lost, frame.offset,
            )  # fmt: skip

    # --- ending ----------------------------------------------------------------------------------

    def _handle_ended(self, error: HocketError) -> None:
        if isinstance(error, NotHere) and not self.commits_only:
            # The partitions went to another node. Whoever is asked now says to which.
            self.link_down()
            self.open_later()
        else:
            self._ended_by_broker(error)

    def _ended_by_broker(self, error: HocketError) -> None:
        if self.commits_only:  # it was fenced, say: what is not committed by now never will be
            self.commits_only = False
            self.failure = error
            self._handle = None
            self._let_go()
            self._tell_failure()
        if self.failure is not None:
            return
        self.link_down()
        if not self.session.redirect(self, error):
            self.refused_for_now_or_good(error)

    def refused_for_now_or_good(self, error: HocketError) -> None:
        if error.code in RETRYABLE:
            self.open_later()
        elif self.whole is None or not self.whole.sees_to(self, error):
            self._refused(error)

    def open_later(self) -> None:
        self.session.after(self._backoff.next_us(), self.open_again)

    def _tell_failure(self) -> None:
        if self.whole is not None:
            self.whole.failed(self)

    @abstractmethod
    def deliver(self) -> bool: ...

    @abstractmethod
    def remains(self) -> str: ...

    @abstractmethod
    def forked(self, error: HocketError) -> None: ...

    def _unsent(self, count: int) -> str:
        what = f"{count} acknowledgement{'s' if count > 1 else ''}"
        of = f"topic {self.topic!r}, index {self.options.index!r}"
        return f"{what} of {of} (the messages come again)" if count else ""

    def end(self, error: HocketError) -> None:
        if self._is_in_use:
            self.failure = error
            self.commits_only = False
            self._let_go()
        self._clear()
        self._tell_failure()

    def dissolve(self) -> None:
        """Others go on with all its partitions. Nobody is told, since nothing has ended."""
        self.shut()
        self.failure = closed("the subscription")
        self.session.remove(self)

    def close(self, answer: Answer) -> None:
        """End the subscription, at the broker too; `answer` is called when that is done."""
        handle, self._handle = self._handle, None
        self.end(closed("the subscription"))
        if handle is not None:
            self.session.close_handle(handle, answer)
        else:
            answer(closed("the subscription"))

    def _let_go(self) -> None:
        if self._handle is not None and self._handle in self.session.handles:
            self.session.close_handle(self._handle)
        self._handle = None
        self.session.remove(self)
        for waiters in (self.changed, self.deliveries, self.commits):
            waiters.wake_all()
