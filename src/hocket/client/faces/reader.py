"""What the cores of every kind of subscription are to the faces.

There is one core for a topic with an own index, one for a topic with a shared index, and one for
several topics (`faces.topics_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import (
    AsyncMessage,
    AsyncMessageBatch,
    Message,
    MessageBatch,
)
from hocket.client_core.outbox import WakeUps
from hocket.client_core.session.session import Answer, Session
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import (
    AsyncSharedBatch,
    AsyncSharedMessage,
    SharedBatch,
    SharedMessage,
)
from hocket.errors import HocketError

M = TypeVar("M", bound=Message[Any], covariant=True)
B = TypeVar("B", bound=MessageBatch[Any], covariant=True)


class Inbox(Protocol[M]):
    @property
    def ready(self) -> Iterator[M]:
        """Messages that any thread may draw, without a lock."""


class Reader(Protocol[M, B]):
    """A core that hands out messages of the type `M` and batches of the type `B`."""

    session: Session
    topic: str
    options: SubscriptionOptions
    failure: HocketError | None
    commits_only: bool
    changed: WakeUps
    deliveries: WakeUps
    commits: WakeUps

    @property
    def inbound(self) -> Inbox[M]: ...
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

    def of(self, topic: str | None) -> TopicReader[M, B]:
        """The reader of this topic; None: of the only one."""

    def check_usable(self) -> None: ...
    def next_message(self) -> M | None: ...
    def next_batch(self) -> B | None: ...
    def check_has_index(self) -> None: ...
    def acked_so_far(self) -> Any: ...
    def are_committed(self, acked: Any, /) -> bool: ...
    def lag(self) -> int: ...
    def wind_up(self) -> None: ...
    def close(self, answer: Answer) -> None: ...
    def end(self, error: HocketError) -> None: ...


class TopicReader(Reader[M, B], Protocol[M, B]):
    """A reader of one topic."""

    def arouse(self, progress: Any) -> None: ...
    def leaves_acks(self) -> bool:
        """Of one that has ended: whether acks, or other verdicts, were not durable by then."""

    def seek(self, partition: int, offset: int, answer: Answer) -> None: ...
    def position(self, partition: int) -> int: ...
    def partitions(self) -> list[int]: ...


def reader(
    session: Session, topic: str, options: SubscriptionOptions, arouse: Callable[[Any], None]
) -> TopicReader[Message[Any], MessageBatch[Any]]:
    """For the blocking face."""
    kinds: tuple[Any, Any] = Message, MessageBatch
    if options.mode != "own":
        kinds = SharedMessage, SharedBatch
    return _reader(session, topic, options, kinds, arouse)


def async_reader(
    session: Session, topic: str, options: SubscriptionOptions, arouse: Callable[[Any], None]
) -> TopicReader[AsyncMessage[Any], AsyncMessageBatch[Any]]:
    """For the asyncio face."""
    kinds: tuple[Any, Any] = AsyncMessage, AsyncMessageBatch
    if options.mode != "own":
        kinds = AsyncSharedMessage, AsyncSharedBatch
    made = _reader(session, topic, options, kinds, arouse)
    # A core makes what it was told to make, but its type does not say so.
    return cast(TopicReader[AsyncMessage[Any], AsyncMessageBatch[Any]], made)


def _reader(
    session: Session,
    topic: str,
    options: SubscriptionOptions,
    kinds: tuple[Any, Any],
    arouse: Callable[[Any], None],
) -> TopicReader[Message[Any], MessageBatch[Any]]:
    message, batch = kinds
    if options.decoding is not None:
        message, batch = options.decoding.messages(message), options.decoding.batches(batch)
    core = SubscriptionCore if options.mode == "own" else SharedCore
    return core(session, topic, options, message=message, batch=batch, arouse=arouse)
