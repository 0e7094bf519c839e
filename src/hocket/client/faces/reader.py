"""Makes the core of a subscription to one topic, of either kind, for either face.

That of a subscription to several topics is `faces.topics_reader`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import (
    AsyncMessage,
    AsyncMessageBatch,
    Message,
    MessageBatch,
)
from hocket.client_core.consuming.parts import Part, Parted
from hocket.client_core.consuming.reader import TopicReader
from hocket.client_core.session.session import Session
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import (
    AsyncSharedBatch,
    AsyncSharedMessage,
    SharedBatch,
    SharedMessage,
)


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

    def part(options: SubscriptionOptions) -> Part[Message[Any], MessageBatch[Any]]:
        return core(session, topic, options, message=message, batch=batch, arouse=arouse)

    return Parted(session, topic, options, part)
