"""A subscription to several topics: a reader for each of them, which take turns.

Rule 1: a topic that was named is wanted. If its reader ends, so does the subscription, with the
same error.
Rule 2: a topic that a pattern matches comes and goes. It is read from its first message on if it is
made while the subscription runs, and left out when it is deleted, may not be read, or has no index
and none is to be made.
Rule 3: only readers that have news are asked, so that a thousand quiet topics cost nothing.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from hocket.client.faces.reader import TopicReader
from hocket.client_core.calls import topics as topic_calls
from hocket.client_core.calls.dead_letters import SUFFIX
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.outbox import Outbox, WakeUps
from hocket.client_core.session.session import Answer, Session, again, closed
from hocket.errors import (
    HocketError,
    NotAllowed,
    OutOfRange,
    UnknownIndex,
    UnknownTopic,
    WrongKind,
    WrongProcess,
    WrongType,
)
from hocket.frames import Frame
from hocket.model import Start, check_name, check_pattern, matches
from hocket.timers import Timer

M = TypeVar("M", bound=Message[Any])
B = TypeVar("B", bound=MessageBatch[Any])
T = TypeVar("T")

LOOK_US = 1_000_000  # how often the topics are listed, for those that a pattern matches
REFUSED_LOOKS = 60  # a topic that may not be read is asked for again after so many listings
CREDIT_BYTES_MIN = 64 << 10  # for each topic, however many there are
INTERNAL = "_"  # the first character of the names of internal topics


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics that a subscription reads: some by name, some by a pattern."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join((*self.names, *self.patterns))

    def matches(self, topic: str) -> bool:
        """Whether a pattern takes the topic. Dead letters and internal topics must be meant."""
        return any(
            matches(pattern, topic)
            and (pattern.endswith(SUFFIX) or not topic.endswith(SUFFIX))
            and (pattern.startswith(INTERNAL) or not topic.startswith(INTERNAL))
            for pattern in self.patterns
        )


def selected_topics(topic: object, options: SubscriptionOptions) -> str | Selection:
    """The topic, or the selection, that a user means by a name, a pattern, or a list of them."""
    if isinstance(topic, str) and "*" not in topic:
        return check_name(topic)
    if isinstance(topic, str):
        wanted = [topic]
    elif isinstance(topic, Iterable) and not isinstance(topic, bytes | bytearray | memoryview):
        wanted = list(topic)
    else:
        raise WrongType(f"topic must be a name or a list of names, not {topic!r:.80}")
    if not wanted:
        raise OutOfRange("the list of topics is empty: name at least one")
    if options.partitions or options.positions:
        raise OutOfRange(
            "partitions and positions are of one topic: leave them out, or subscribe to each topic "
            "by itself"
        )
    return Selection(
        names=_each_once(check_name(each) for each in wanted if "*" not in str(each)),
        patterns=_each_once(check_pattern(each) for each in wanted if "*" in str(each)),
    )


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


class _News(WakeUps):
    """Tells a TopicsReader which of its readers has something, or has ended."""

    __slots__ = ("_tell",)

    def __init__(self, outbox: Outbox, tell: Callable[[], None]) -> None:
        super().__init__(outbox)
        self._tell = tell

    def wake_all(self) -> None:
        self._tell()


class _Chunk(Generic[M]):
    """What any thread may draw without a lock: the chunk of the reader whose turn it is."""

    __slots__ = ("ready",)

    def __init__(self) -> None:
        self.ready: Iterator[M] = iter(())


class TopicsReader(Generic[M, B]):
    def __init__(
        self,
        session: Session,
        selection: Selection,
        options: SubscriptionOptions,
        make: Callable[[str, SubscriptionOptions], TopicReader[M, B]],
    ) -> None:
        self.topic = str(selection)
        self.options = options
        self.failure: HocketError | None = None
        self.commits_only = False  # see consuming.attachment
        self.changed = WakeUps(session.outbox)
        self.deliveries = WakeUps(session.outbox)
        self.commits = WakeUps(session.outbox)
        self.inbound: _Chunk[M] = _Chunk()
        self.session = session
        self._selection = selection
        self._make = make
        self._readers: dict[str, TopicReader[M, B]] = {}  # by topic
        self._news: dict[TopicReader[M, B], None] = {}  # those that may have a message, in turns
        self._refused: dict[str, int] = {}  # topics that may not be read, and when to ask again
        self._looks = 0  # how often the topics were listed
        self._timer: Timer | None = None
        self._lost = 0  # by readers that are no more
        self._acks_lost: HocketError | None = None  # why acks of such a reader came to nothing
        self._winding_up = False

    # --- opening and ending ----------------------------------------------------------------------

    def open(self) -> None:
        self.session.add(self)
        for name in self._selection.names:
            self._read(name, self.options.start, len(self._selection.names))
        if self._selection.patterns:
            self._look()

    @property
    def may_be_opened(self) -> bool:
        return any(reader.may_be_opened for reader in self._readers.values())

    @property
    def is_open(self) -> bool:
        self._leave_ended()
        has_looked = self._looks > 0 or not self._selection.patterns
        return has_looked and all(reader.is_open for reader in self._readers.values())

    def topics(self) -> list[str]:
        """The names of the topics that are read now, sorted."""
        self._leave_ended()
        return sorted(self._readers)

    def new_indexes(self) -> list[str]:
        return [name for name in self.topics() if self._readers[name].new_indexes()]

    def check_usable(self) -> None:
        self._leave_ended()
        if self.failure is not None:
            raise again(self.failure)

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

        def one_less(_answer: Frame | HocketError) -> None:
            nonlocal left
            left -= 1
            if not left:
                answer(error)

        for reader in list(self._readers.values()):
            reader.close(one_less)
        one_less(error)

    def _stop(self, error: HocketError, *, commits_only: bool = False) -> None:
        self.failure = error
        self.commits_only = commits_only
        if not commits_only:
            self.session.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._news.clear()
        for waiting in (self.changed, self.deliveries, self.commits):
            waiting.wake_all()

    # --- what the session tells (see session.Owner): the readers are told themselves --------------

    def open_again(self) -> None:
        """The readers open themselves."""

    def link_up(self) -> None:
        """The readers open themselves."""

    def link_down(self) -> None:
        """The readers begin anew by themselves."""

    def received(self, frame: Frame, payload: memoryview) -> None:  # noqa: ARG002
        raise AssertionError("every handle belongs to a reader")

    def deliver(self) -> bool:
        return True  # the readers answer for themselves

    def remains(self) -> str:
        return ""  # the readers answer for themselves

    def forked(self, error: WrongProcess) -> None:
        self.failure, self.commits_only = error, False
        self.inbound.ready = iter(())

    # --- which topics ----------------------------------------------------------------------------

    def _look(self) -> None:
        self._timer = None
        self._ask("", [])

    def _ask(self, after: str, parts: list[Any]) -> None:
        """Ask for the part of the listing behind this place; `parts` are those before it."""
        if self.failure is not None:
            return
        call = topic_calls.topics()
        part = call.part(after)

        def answered(answer: Frame | HocketError) -> None:
            found = part.outcome(answer)
            if isinstance(found, HocketError):
                self._listed(found)
            elif found.next:
                self._ask(found.next, [*parts, found])
            else:
                self._listed(call.result([*parts, found]))

        self.session.request(part.frame, answered, repeatable=True)

    def _listed(self, found: list[str] | HocketError) -> None:
        if self.failure is not None or self._winding_up:
            return
        if isinstance(found, HocketError):
            if not self._looks:
                self.end(found)
                return
            found = []  # the next listing may do better
        start = Start() if self._looks else self.options.start
        self._looks += 1
        self._leave_ended()
        wanted = [
            name
            for name in found
            if name not in self._readers
            and self._refused.get(name, 0) < self._looks
            and self._selection.matches(name)
        ]
        for name in wanted:
            self._refused.pop(name, None)
            self._read(name, start, len(self._readers) + len(wanted))
        self._timer = self.session.after(LOOK_US, self._look)
        self.changed.wake_all()

    def _read(self, name: str, start: Start, count: int) -> None:
        """Begin to read a topic, with its share of what all of `count` topics may hold here."""
        options = self.options
        reader = self._make(
            name,
            replace(
                options,
                start=start,
                credit_bytes=max(
                    min(CREDIT_BYTES_MIN, options.credit_bytes), options.credit_bytes // count
                ),
                prefetch=max(1, options.prefetch // count),
            ),
        )

        def tell() -> None:
            self._news[reader] = None
            self.deliveries.wake_all()

        reader.deliveries = _News(self.session.outbox, tell)
        reader.changed, reader.commits = self.changed, self.commits
        self._readers[name] = reader
        reader.open()

    def _leave_ended(self) -> None:
        for reader in list(self._readers.values()):
            if reader.failure is not None:
                self._ended(reader, reader.failure)

    def _ended(self, reader: TopicReader[M, B], error: HocketError) -> None:
        """A topic of a pattern is left out; a topic that was named ends the subscription.

        After damage every topic that ends is left out: acks of the others can still be committed.
        """
        name = reader.topic
        if self._readers.get(name) is not reader:
            return
        if self.commits_only:
            if not reader.commits_only:
                self._leave_out(reader, error)
            return
        if self.failure is not None:
            return
        if name in self._selection.names or not isinstance(
            error, UnknownTopic | NotAllowed | UnknownIndex
        ):
            if reader.commits_only:  # so can the others, until all of it is closed
                self._stop(error, commits_only=True)
            else:
                self.end(error)
            return
        self._leave_out(reader, error)

    def _leave_out(self, reader: TopicReader[M, B], error: HocketError) -> None:
        name = reader.topic
        del self._readers[name]
        self._news.pop(reader, None)
        self._lost += reader.lost
        if not isinstance(error, UnknownTopic):
            self._refused[name] = self._looks + REFUSED_LOOKS
            if reader.leaves_acks():
                self._acks_lost = error
        self.session.report("info", "topic %r is left out: %s", name, error)

    # --- messages --------------------------------------------------------------------------------

    def next_message(self) -> M | None:
        """The next message, None if none is here. Raises what has ended the subscription."""
        message = next(self.inbound.ready, None)
        return message if message is not None else self._draw(self._next_of)

    def next_batch(self) -> B | None:
        return self._draw(lambda reader: reader.next_batch())

    def _next_of(self, reader: TopicReader[M, B]) -> M | None:
        message = reader.next_message()
        if message is not None:
            self.inbound.ready = reader.inbound.ready
        return message

    def _draw(self, draw: Callable[[TopicReader[M, B]], T | None]) -> T | None:
        """What the next reader in turn has."""
        while self._news:
            reader = next(iter(self._news))
            del self._news[reader]
            found = self._drawn(reader, draw)
            if found is not None:
                return found
        if self.options.mode != "own":  # a full window waits for what was settled: send that now
            for reader in list(self._readers.values()):
                found = self._drawn(reader, draw)
                if found is not None:
                    return found
        self.check_usable()
        return None

    def _drawn(
        self, reader: TopicReader[M, B], draw: Callable[[TopicReader[M, B]], T | None]
    ) -> T | None:
        try:
            found = draw(reader)
        except HocketError as error:
            if reader.failure is None:
                raise
            self._ended(reader, error)
            return None
        if found is not None:
            self._news[reader] = None  # behind the others
        return found

    # --- progress --------------------------------------------------------------------------------

    def check_has_index(self) -> None:
        if not self.options.index:
            raise WrongKind(
                "this subscription has no index at the broker, so there is nothing to acknowledge: "
                "subscribe with index='a name', or keep m.offset yourself"
            )

    def acked_so_far(self) -> dict[str, tuple[TopicReader[M, B], Any]]:
        self._leave_ended()
        if not self.commits_only:
            self.check_usable()
        return {name: (reader, reader.acked_so_far()) for name, reader in self._readers.items()}

    def are_committed(self, acked: dict[str, tuple[TopicReader[M, B], Any]]) -> bool:
        """Whether these acks are durable. Those of topics that are gone are not waited for.

        Raises why a topic was left out, once, if it still exists and acks of it are lost by that.
        """
        self._leave_ended()
        error, self._acks_lost = self._acks_lost, None
        if error is not None:
            raise again(error)
        return all(
            reader.are_committed(each)
            for name, (reader, each) in acked.items()
            if self._readers.get(name) is reader
        )

    @property
    def lost(self) -> int:
        return self._lost + sum(reader.lost for reader in list(self._readers.values()))

    @property
    def refused(self) -> int:
        return sum(reader.refused for reader in list(self._readers.values()))

    def lag(self) -> int:
        return sum(reader.lag() for reader in self._readers.values())

    def of(self, topic: str | None) -> TopicReader[M, B]:
        self.check_usable()
        if topic is None:
            raise WrongKind(
                f"this subscription reads several topics ({self.topic}): say which, with topic=..."
            )
        if topic not in self._readers:
            raise UnknownTopic(f"this subscription ({self.topic}) does not read topic {topic!r}")
        return self._readers[topic]
