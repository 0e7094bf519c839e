"""What the cores of both kinds of subscription (own index, shared index) are to the faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

from hocket.client.connection.session import Answer, Session
from hocket.client.connection.wakeups import WakeUps
from hocket.client.consuming.attachment import SubscriptionOptions
from hocket.client.consuming.core import SubscriptionCore
from hocket.client.consuming.message import AsyncMessage, AsyncMessageBatch, Message, MessageBatch
from hocket.client.sharing.core import SharedCore
from hocket.client.sharing.message import (
    AsyncSharedBatch,
    AsyncSharedMessage,
    SharedBatch,
    SharedMessage,
)
from hocket.errors import HocketError

M = TypeVar("M", bound=Message, covariant=True)
B = TypeVar("B", bound=MessageBatch, covariant=True)


class Inbox(Protocol[M]):
    @property
    def ready(self) -> Iterator[M]:
        """Messages that any thread may draw, without a lock."""


class Reader(Protocol[M, B]):
    """A core that hands out messages of the type `M` and batches of the type `B`."""

    topic: str
    options: SubscriptionOptions
    failure: HocketError | None
    lost: int
    index_is_new: bool
    changed: WakeUps
    deliveries: WakeUps
    commits: WakeUps

    @property
    def inbound(self) -> Inbox[M]: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def refused(self) -> int: ...

    def open(self) -> None: ...
    def check_usable(self) -> None: ...
    def next_message(self) -> M | None: ...
    def next_batch(self) -> B | None: ...
    def arouse(self, progress: Any) -> None: ...
    def check_has_index(self) -> None: ...
    def acked_so_far(self) -> Any: ...
    def are_committed(self, acked: Any, /) -> bool: ...
    def seek(self, partition: int, offset: int, answer: Answer) -> None: ...
    def position(self, partition: int) -> int: ...
    def partitions(self) -> list[int]: ...
    def lag(self) -> int: ...
    def wind_up(self) -> None: ...
    def close(self, answer: Answer) -> None: ...
    def end(self, error: HocketError) -> None: ...


def reader(
    session: Session, topic: str, options: SubscriptionOptions, arouse: Callable[[Any], None]
) -> Reader[Message, MessageBatch]:
    """For the blocking face."""
    if options.mode == "own":
        return SubscriptionCore(
            session, topic, options, message=Message, batch=MessageBatch, arouse=arouse
        )
    return SharedCore(
        session, topic, options, message=SharedMessage, batch=SharedBatch, arouse=arouse
    )


def async_reader(
    session: Session, topic: str, options: SubscriptionOptions, arouse: Callable[[Any], None]
) -> Reader[AsyncMessage, AsyncMessageBatch]:
    """For the asyncio face."""
    made: Reader[Message, MessageBatch]
    if options.mode == "own":
        made = SubscriptionCore(
            session, topic, options, message=AsyncMessage, batch=AsyncMessageBatch, arouse=arouse
        )
    else:
        made = SharedCore(
            session, topic, options, message=AsyncSharedMessage, batch=AsyncSharedBatch,
            arouse=arouse,
        )  # fmt: skip
    # A core makes what it was told to make, but its type does not say so.
    return cast(Reader[AsyncMessage, AsyncMessageBatch], made)
