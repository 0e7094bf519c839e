"""A subscription to several topics: a reader for each of them, which take turns.

Rule 1: a topic that was named is wanted. If its reader ends, so does the subscription, with the
same error.
Rule 2: a topic that a pattern matches comes and goes. It is read from its first message on if it is
made while the subscription runs, and left out when it is deleted, may not be read, or has no index
and none is to be made.

How readers take turns, and are committed together, says `client_core.consuming.joining`.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from hocket.client_core.calls import topics as topic_calls
from hocket.client_core.calls.dead_letters import SUFFIX
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.joining import Acked, B, Joined, M, shared_out
from hocket.client_core.consuming.reader import TopicReader
from hocket.client_core.session.session import Route, Session
from hocket.errors import (
    HocketError,
    NotAllowed,
    OutOfRange,
    UnknownIndex,
    UnknownTopic,
    WrongKind,
    WrongType,
)
from hocket.frames import Frame
from hocket.model import Start, check_name, check_pattern, matches
from hocket.timers import Timer

LOOK_US = 1_000_000  # how often the topics are listed, for those that a pattern matches
REFUSED_LOOKS = 60  # a topic that may not be read is asked for again after so many listings
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


class TopicsReader(Joined[M, B, TopicReader[M, B]]):
    def __init__(
        self,
        session: Session,
        selection: Selection,
        options: SubscriptionOptions,
        make: Callable[[str, SubscriptionOptions], TopicReader[M, B]],
    ) -> None:
        super().__init__(session.outbox, str(selection), options)
        self.session = session
        self._selection = selection
        self._make = make
        self._refused: dict[str, int] = {}  # topics that may not be read, and when to ask again
        self._looks = 0  # how often the topics were listed
        self._timer: Timer | None = None

    # --- opening and ending ----------------------------------------------------------------------

    def open(self) -> None:
        self.session.add(self)
        for name in self._selection.names:
            self._read(name, self.options.start, len(self._selection.names))
        if self._selection.patterns:
            self._look()

    @property
    def is_open(self) -> bool:
        is_open = super().is_open
        return is_open and (self._looks > 0 or not self._selection.patterns)

    def topics(self) -> list[str]:
        """The names of the topics that are read now, sorted."""
        self._leave_ended()
        return sorted(reader.topic for reader in self._readers.values())

    def new_indexes(self) -> list[str]:
        return [name for name in self.topics() if self._readers[name].new_indexes()]

    def _stop(self, error: HocketError, *, commits_only: bool = False) -> None:
        if not commits_only:
            self.session.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._stop(error, commits_only=commits_only)

    # --- what the session tells (see session.Owner): the readers are told themselves --------------

    @property
    def route(self) -> Route:
        return Route(self.topic)

    def located(self, error: HocketError | None) -> None:  # noqa: ARG002
        raise AssertionError("the readers ask for themselves")

    @property
    def is_asked_for(self) -> bool:
        return True  # the readers open themselves

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

    def forked(self, error: HocketError) -> None:
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
        reader = self._make(name, shared_out(replace(self.options, start=start), count))
        self._join(name, reader)
        reader.open()

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
        self._drop(name)
        if not isinstance(error, UnknownTopic):
            self._refused[name] = self._looks + REFUSED_LOOKS
            if reader.leaves_acks():
                self._acks_lost = error
        self.session.report("info", "topic %r is left out: %s", name, error)

    # --- for people ------------------------------------------------------------------------------

    def unconfirmed(self, acked: Acked) -> str:
        said = [reader.unconfirmed(each) for reader, each in self._still_here(acked)]
        return "; ".join(filter(None, said))

    def away(self) -> str:
        return "; ".join(filter(None, (reader.away() for reader in self._readers.values())))

    # --- one of them -----------------------------------------------------------------------------

    def of(self, topic: str | None) -> TopicReader[M, B]:
        self.check_usable()
        if topic is None:
            raise WrongKind(
                f"this subscription reads several topics ({self.topic}): say which, with topic=..."
            )
        if topic not in self._readers:
            raise UnknownTopic(f"this subscription ({self.topic}) does not read topic {topic!r}")
        return self._readers[topic]
