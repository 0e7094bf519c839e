"""What every kind of subscription is to those who hold it, and to those who join several.

A subscription to several topics (`client.faces.topics_reader`) is one reader for each topic, a
subscription to a topic (`parts`) is one reader for each node that leads some of its partitions, and
that one (`core`, `sharing.core`) has a handle at its node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.outbox import WakeUps
from hocket.client_core.session.session import Answer, Session
from hocket.errors import HocketError

M_co = TypeVar("M_co", bound=Message[Any], covariant=True)
B_co = TypeVar("B_co", bound=MessageBatch[Any], covariant=True)


class Inbox(Protocol[M_co]):
    @property
    def ready(self) -> Iterator[M_co]:
        """Messages that any thread may draw, without a lock."""


class Reader(Protocol[M_co, B_co]):
    """A core that hands out messages of the type `M_co` and batches of the type `B_co`."""

    topic: str
    options: SubscriptionOptions
    failure: HocketError | None
    commits_only: bool
    changed: WakeUps
    deliveries: WakeUps
    commits: WakeUps

    @property
    def session(self) -> Session:
        """Where it is opened; of several, one at which it is not open."""

    @property
    def inbound(self) -> Inbox[M_co]: ...
    @property
    def has_news(self) -> bool:
        """False: there is nothing to do before somebody wakes those who wait for `deliveries`."""

    @property
    def is_open(self) -> bool: ...
    @property
    def may_be_opened(self) -> bool: ...
    @property
    def lost(self) -> int: ...
    @property
    def refused(self) -> int: ...

    def open(self) -> None: ...
    def topics(self) -> list[str]: ...
    def new_indexes(self) -> list[str]:
        """The topics of which this subscription has made the index."""

    def of(self, topic: str | None) -> TopicReader[M_co, B_co]:
        """The reader of this topic; None: of the only one."""

    def check_usable(self) -> None: ...
    def next_message(self) -> M_co | None: ...
    def next_batch(self, *, merge: bool = False) -> B_co | None: ...
    def check_has_index(self) -> None: ...
    def acked_so_far(self) -> Any: ...
    def are_committed(self, acked: Any, /) -> bool: ...
    def unconfirmed(self, acked: Any, /) -> str:
        """Where acks are not durable, in words, if that is some of several places."""

    def away(self) -> str:
        """Where it is not open, in words, if that is some of several places."""

    def lag(self) -> int: ...
    def wind_up(self) -> None: ...
    def close(self, answer: Answer) -> None: ...
    def end(self, error: HocketError) -> None: ...


class TopicReader(Reader[M_co, B_co], Protocol[M_co, B_co]):
    """A reader of one topic."""

    @property
    def has_more(self) -> bool:
        """There is more to do when `inbound.ready` was drawn empty: there may be messages."""

    def arouse(self, progress: Any) -> None: ...
    def leaves_acks(self) -> bool:
        """Of one that has ended: whether acks, or other verdicts, were not durable by then."""

    def seek(self, partition: int, offset: int, answer: Answer) -> None: ...
    def position(self, partition: int) -> int: ...
    def partitions(self) -> list[int]: ...
    def place_of(self, partition: int) -> str:
        """Which node has the partition, in words, if there are several."""
