"""What both kinds of subscription are to the faces over them: own indexes, and shared ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

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


class Inbox(Protocol):
    @property
    def ready(self) -> Iterator[Message]:
        """Messages that anybody may draw, without a lock."""


class Reader(Protocol):
    topic: str
    options: SubscriptionOptions
    failure: HocketError | None
    lost: int
    changed: WakeUps
    deliveries: WakeUps
    commits: WakeUps

    @property
    def inbound(self) -> Inbox: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def refused(self) -> int: ...

    def open(self) -> None: ...
    def check_usable(self) -> None: ...
    def next_message(self) -> Message | None: ...
    def next_batch(self) -> MessageBatch | None: ...
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
) -> Reader:
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
) -> Reader:
    """For the asyncio face."""
    if options.mode == "own":
        return SubscriptionCore(
            session, topic, options, message=AsyncMessage, batch=AsyncMessageBatch, arouse=arouse
        )
    return SharedCore(
        session, topic, options, message=AsyncSharedMessage, batch=AsyncSharedBatch, arouse=arouse
    )
