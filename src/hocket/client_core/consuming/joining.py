"""Several readers as one: they take turns, are committed together, and end together.

A subscription to several topics joins a reader for each topic, one to a topic that is spread joins
a reader for each node.

Rule 1: only readers that have news are asked, so that a thousand quiet ones cost nothing.
Rule 2: whoever has handed a chunk, or a batch, out goes behind all others that have something.
Rule 3: a commit waits for every reader.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import length_hint
from typing import Any, Generic, TypeVar

from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.consuming.reader import TopicReader
from hocket.client_core.outbox import Outbox, WakeUps
from hocket.client_core.session.answers import again, closed
from hocket.client_core.session.session import Answer
from hocket.errors import HocketError, WrongKind
from hocket.frames import Frame

M = TypeVar("M", bound=Message[Any])
B = TypeVar("B", bound=MessageBatch[Any])
R = TypeVar("R", bound=TopicReader[Any, Any])
T = TypeVar("T")

CREDIT_BYTES_MIN = 64 << 10  # for each reader, however many there are

Acked = dict[Any, tuple[Any, Any]]  # key -> the reader, and what its commit waits for


def shared_out(options: SubscriptionOptions, count: int) -> SubscriptionOptions:
    """For one of `count` readers: its share of what all of them may hold here."""
    credit = options.credit_bytes
    return replace(
        options,
        credit_bytes=max(min(CREDIT_BYTES_MIN, credit), credit // count),
        prefetch=max(1, options.prefetch // count),
    )


class _News(WakeUps):
    """Tells a Joined which of its readers has something, or has ended."""

    __slots__ = ("_joined", "_reader")

    def __init__(self, outbox: Outbox, joined: Joined[Any, Any, Any], reader: Any) -> None:
        super().__init__(outbox)
        self._joined = joined
        self._reader = reader

    def wake_all(self) -> None:
        joined = self._joined
        joined.news[self._reader] = None
        joined.deliveries.wake_all()

    def note(self) -> None:
        self._joined.news[self._reader] = None
        self._joined.deliveries.note()


class _Chunk(Generic[M]):
    """What any thread may draw without a lock: the chunk of the reader whose turn it is."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        self.ready: Iterator[M] = iter(())


class Joined(ABC, Generic[M, B, R]):
    def __init__(self, outbox: Outbox, topic: str, options: SubscriptionOptions) -> None:
        self.topic = topic
        self.options = options
        self.failure: HocketError | None = None
        self.commits_only = False  # see consuming.attachment
        self.changed = WakeUps(outbox)
        self.deliveries = WakeUps(outbox)
        self.commits = WakeUps(outbox)
        self.inbound: _Chunk[M] = _Chunk()
        self._outbox = outbox
        self._readers: dict[Any, R] = {}
        self.news: dict[R, None] = {}  # those that may have a message, in turns
        self._left: R | None = None  # has handed out its last messages, some of which may be there
        self._lost = 0  # by readers that are no more
        self._acks_lost: HocketError | None = None  # why acks of such a reader came to nothing
        self._winding_up = False

    def _join(self, key: Any, reader: R) -> None:
        """Have the reader take part; whoever calls opens it."""
        reader.deliveries = _News(self._outbox, self, reader)
        reader.changed, reader.commits = self.changed, self.commits
        self._readers[key] = reader

    def _drop(self, key: Any) -> None:
        """The reader does not take part any more."""
        reader = self._readers.pop(key)
        self.news.pop(reader, None)
        self._left = None if self._left is reader else self._left
        self._lost += reader.lost

    @abstractmethod
    def _ended(self, reader: R, error: HocketError) -> None:
        """A reader has ended, and all that it had is handed out."""

    # --- beginning and end -----------------------------------------------------------------------

    @property
    def may_be_opened(self) -> bool:
        return any(reader.may_be_opened for reader in self._readers.values())

    @property
    def is_open(self) -> bool:
        self._leave_ended()
        return all(reader.is_open for reader in self._readers.values())

    def check_usable(self) -> None:
        self._leave_ended()
        if self.failure is not None:
            raise again(self.failure)

    def _leave_ended(self) -> None:
        for reader in list(self._readers.values()):
            if reader.failure is not None:
                self._ended(reader, reader.failure)

    def end(self, error: HocketError) -> None:
        if self.failure is None or self.commits_only:
            self._stop(error)
        for reader in list(self._readers.values()):
            reader.end(error)

    def wind_up(self) -> None:
        self._winding_up = True
        for reader in self._readers.values():
            reader.wind_up()

    def close(self, answer: Answer) -> None:
        """End all readers, at the broker too; `answer` is called when that is done."""
        error = closed("the subscription")
        self._stop(error)
        left = len(self._readers) + 1

        def one_less(said: Frame | HocketError) -> None:
            nonlocal left
            left -= 1
            if not left:
                answer(said)

        for reader in list(self._readers.values()):
            reader.close(one_less)
        one_less(error)

    def _stop(self, error: HocketError, *, commits_only: bool = False) -> None:
        self.failure = error
        self.commits_only = commits_only
        self.news.clear()
        for waiting in (self.changed, self.deliveries, self.commits):
            waiting.wake_all()

    # --- messages --------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether messages, or the end, may come behind those in `inbound.ready`."""
        return bool(self.news) or self.failure is not None

    @property
    def has_news(self) -> bool:
        """Whether `next_message` has anything to do: others may have left messages in `ready`."""
        return (
            bool(self.news)
            or length_hint(self.inbound.ready) > 0
            or self.failure is not None
            or self.options.mode != "own"
        )

    def next_message(self) -> M | None:
        """The next message, None if none is here. Raises what has ended the subscription."""
        message = next(self.inbound.ready, None)
        if message is None and len(self.news) == 1 and self.options.mode == "own":
            message = self._next_of_one()
        return message if message is not None else self._draw(self._next_of)

    def _next_of_one(self) -> M | None:
        """What the only reader that has news has: so it is nearly always."""
        (reader,) = self.news
        try:
            message = self._next_of(reader)
        except HocketError:  # it says so again, to whoever takes turns
            return None
        if message is not None and not reader.has_more:
            self.news.clear()
            self._left = reader
        return message

    def next_batch(self, *, merge: bool = False) -> B | None:
        if self._left is not None:  # what is left in `ready` goes first, as one
            self.news = {self._left: None, **self.news}
            self._left = None
        return self._draw(lambda reader: reader.next_batch(merge=merge))

    def _next_of(self, reader: R) -> M | None:
        message: M | None = reader.next_message()
        if message is not None:
            self.inbound.ready = reader.inbound.ready
        return message

    def _draw(self, draw: Callable[[R], T | None]) -> T | None:
        """What the next reader in turn has."""
        asked: set[R] = set()
        while self.news:
            reader = next(iter(self.news))
            del self.news[reader]
            found = self._drawn(reader, draw)
            if found is not None:
                return found
            asked.add(reader)
        if self.options.mode != "own":  # a full window waits for what was settled: send that now
            for reader in list(self._readers.values()):
                found = self._drawn(reader, draw) if reader not in asked else None
                if found is not None:
                    return found
        self.check_usable()
        return None

    def _drawn(self, reader: R, draw: Callable[[R], T | None]) -> T | None:
        try:
            found = draw(reader)
        except HocketError as error:
            if reader.failure is None:
                raise
            self._ended(reader, error)
            return None
        if found is not None:
            self.news[reader] = None  # behind the others
        return found

    # --- progress --------------------------------------------------------------------------------

    def check_has_index(self) -> None:
        if not self.options.index:
            raise WrongKind(
                "this subscription has no index at the broker, so there is nothing to acknowledge: "
                "subscribe with index='a name', or keep m.offset yourself"
            )

    def acked_so_far(self) -> Any:
        self._leave_ended()
        if not self.commits_only:
            self.check_usable()
        return self._all_acked()

    def _all_acked(self) -> Acked:
        return {key: (reader, reader.acked_so_far()) for key, reader in self._readers.items()}

    def are_committed(self, acked: Any) -> bool:
        """Whether these acks are durable. Those of readers that are gone are not waited for.

        Raises why a reader was left out, once, if acks of it are lost by that.
        """
        self._leave_ended()
        error, self._acks_lost = self._acks_lost, None
        if error is not None:
            raise again(error)
        return self._all_committed(acked)

    def _all_committed(self, acked: Acked) -> bool:
        return all(reader.are_committed(each) for reader, each in self._still_here(acked))

    def _still_here(self, acked: Acked) -> Iterator[tuple[R, Any]]:
        for key, (reader, each) in acked.items():
            here = self._readers.get(key)
            if here is not None and here is reader:
                yield here, each

    @property
    def lost(self) -> int:
        return self._lost + sum(reader.lost for reader in list(self._readers.values()))

    @property
    def refused(self) -> int:
        return sum(reader.refused for reader in list(self._readers.values()))

    def lag(self) -> int:
        return sum(reader.lag() for reader in self._readers.values())
