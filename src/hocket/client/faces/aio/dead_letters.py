"""Reading and replaying dead letters, for asyncio; see `calls.dead_letters` for what they are."""

from __future__ import annotations

from typing import Protocol

from hocket.client.calls.dead_letters import (
    SUFFIX,
    DeadLetter,
    Quota,
    are_unread,
    of_message,
    replay_index,
    replayed_so_far,
    topic_of,
)
from hocket.client.calls.topics import StartLike
from hocket.client.consuming.message import AsyncMessage
from hocket.client.faces.aio.producer import AsyncProducer
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.opening import Opening
from hocket.errors import UnknownTopic
from hocket.model import IndexDescription, TopicDescription


class Client(Protocol):
    """What is needed of a client here."""

    async def find_offsets(
        self, topic: str, start: StartLike, *, timeout: float | None
    ) -> list[int]: ...
    async def describe(self, name: str, *, timeout: float | None) -> TopicDescription: ...
    async def indexes(self, topic: str, *, timeout: float | None) -> list[IndexDescription]: ...
    def subscribe(
        self, topic: str, *, index: str | None = None, timeout: float | None
    ) -> Opening[AsyncSubscription]: ...
    def producer(self, topic: str, *, timeout: float | None) -> Opening[AsyncProducer]: ...


async def find(
    client: Client, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> list[DeadLetter]:
    """The dead letters of a topic, oldest first, replayed ones among them; at most `limit`."""
    dead = topic_of(topic)
    try:
        ends = await client.find_offsets(dead, "latest", timeout=timeout)
    except UnknownTopic:
        await client.describe(topic, timeout=timeout)  # raises if the topic itself is unknown
        return []
    replayed_to = replayed_so_far(await client.indexes(dead, timeout=timeout))
    found: list[DeadLetter] = []
    async with client.subscribe(dead, timeout=timeout) as subscription:
        while (limit is None or len(found) < limit) and are_unread(subscription.position, ends):
            letter = of_message(await subscription.receive(timeout), replayed_to)
            if letter is not None and index in (None, letter.index):
                found.append(letter)
    return found


async def replay(
    client: Client, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> int:
    """Publish pending dead letters again, at most `limit`; returns how many."""
    found = await find(client, topic, index, None, timeout)
    names = list(dict.fromkeys(letter.index for letter in found if letter.is_pending))
    if not names:
        return 0
    dead, quota = topic_of(topic), Quota(limit)
    ends = await client.find_offsets(dead, "latest", timeout=timeout)
    async with client.producer(topic.removesuffix(SUFFIX), timeout=timeout) as producer:
        for name in names:
            async with client.subscribe(
                dead, index=replay_index(name), timeout=timeout
            ) as subscription:
                newest: dict[int, AsyncMessage] = {}  # by partition
                while quota.is_left and are_unread(subscription.position, ends):
                    message = await subscription.receive(timeout)
                    newest[message.partition] = message
                    letter = of_message(message, {})
                    if letter is not None and letter.index == name and letter.is_pending:
                        quota.count()
                        await producer.send(letter.value, letter.key, letter.headers_for_replay())
                await producer.flush(timeout)
                for message in newest.values():  # only now: what is acknowledged is stored
                    await message.ack()
    return quota.counted
