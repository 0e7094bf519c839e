"""Reading, replaying and purging dead letters, for asyncio; see `calls.dead_letters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hocket.client.faces.aio.producer import AsyncProducer
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.opening import Opening
from hocket.client_core.calls.dead_letters import (
    LETTERS_MAX,
    SUFFIX,
    DeadLetter,
    Purging,
    Quota,
    are_unread,
    of_message,
    positions_of,
    purge_index,
    replay_index,
    topic_of,
)
from hocket.client_core.calls.topics import StartLike
from hocket.client_core.consuming.message import AsyncMessage
from hocket.errors import OutOfRange, UnknownTopic, WrongKind
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
    async def seek(
        self, topic: str, index: str, to: StartLike, *, partition: int, timeout: float | None
    ) -> list[int]: ...
    async def revive(
        self,
        topic: str,
        index: str,
        letters: Sequence[tuple[int, int]],
        *,
        partition: int,
        dead_partition: int,
        timeout: float | None,
    ) -> list[int]: ...
    async def delete_messages(
        self, topic: str, offsets: Sequence[int], *, timeout: float | None
    ) -> None: ...
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
    positions = positions_of(await client.indexes(dead, timeout=timeout))
    found: list[DeadLetter] = []
    async with client.subscribe(dead, timeout=timeout) as subscription:
        while (limit is None or len(found) < limit) and are_unread(subscription.position, ends):
            letter = of_message(await subscription.receive(timeout), positions)
            if letter is not None and not letter.purged and index in (None, letter.index):
                found.append(letter)
    return found


async def replay(
    client: Client,
    topic: str,
    index: str | None,
    limit: int | None,
    to_index: bool,
    timeout: float | None,
) -> int:
    """Deliver pending dead letters again, at most `limit`; returns how many."""
    found = await find(client, topic, index, None, timeout)
    names = list(dict.fromkeys(letter.index for letter in found if letter.is_pending))
    if not names:
        return 0
    dead, quota = topic_of(topic), Quota(limit)
    ends = await client.find_offsets(dead, "latest", timeout=timeout)
    purged = positions_of(await client.indexes(dead, timeout=timeout), "purged.")
    if to_index:
        count = 0
        for name in names:
            async with client.subscribe(
                dead, index=replay_index(name), timeout=timeout
            ) as subscription:
                giving = GivingBack(client, topic.removesuffix(SUFFIX), name, quota, timeout)
                await giving.go_on(subscription, ends, purged)
                count += giving.count
        return count
    async with client.producer(topic.removesuffix(SUFFIX), timeout=timeout) as producer:
        for name in names:
            async with client.subscribe(
                dead, index=replay_index(name), timeout=timeout
            ) as subscription:
                newest: dict[int, AsyncMessage] = {}  # by partition
                while quota.is_left and are_unread(subscription.position, ends):
                    message = await subscription.receive(timeout)
                    newest[message.partition] = message
                    letter = of_message(message, purged)
                    if letter is not None and letter.index == name and letter.is_pending:
                        quota.count()
                        await producer.send(letter.value, letter.key, letter.headers_for_replay())
                await producer.flush(timeout)
                for message in newest.values():  # only now: what is acknowledged is stored
                    await message.ack()
    return quota.counted


class GivingBack:
    """Gives dead letters back to the index that gave them up, in their order.

    Each request names letters that lie one behind the other and come from one partition. What was
    asked for is acknowledged when it is durable; asked for again, after a crash say, it changes
    nothing. If a message cannot be delivered again, those before it are.
    """

    def __init__(
        self, client: Client, topic: str, index: str, quota: Quota, timeout: float | None
    ) -> None:
        self.count = 0  # how many messages are delivered again by this
        self._client = client
        self._topic = topic
        self._index = index
        self._quota = quota
        self._timeout = timeout
        self._gathered: list[tuple[int, AsyncMessage]] = []  # offset of the message, its letter
        self._from: tuple[int, int] | None = None  # the partitions that these come from

    async def go_on(
        self,
        subscription: AsyncSubscription,
        ends: list[int],
        purged: dict[tuple[str, int], int],
    ) -> None:
        newest: dict[int, AsyncMessage] = {}  # by partition
        while self._quota.is_left and are_unread(subscription.position, ends):
            message = await subscription.receive(self._timeout)
            newest[message.partition] = message
            letter = of_message(message, purged)
            if letter is None or letter.index != self._index or not letter.is_pending:
                continue
            if letter.source.topic != self._topic:
                await self._give_back()
                raise WrongKind(
                    f"the dead letter at offset {message.offset} is of topic "
                    f"{letter.source.topic!r}, not {self._topic!r}: it can be published again only"
                )
            come_from = letter.source.partition, message.partition
            if come_from != self._from or len(self._gathered) >= LETTERS_MAX:
                await self._give_back()
                self._from = come_from
            self._gathered.append((letter.source.offset, message))
            self._quota.count()
        await self._give_back()
        for message in newest.values():
            await message.ack()

    async def _give_back(self) -> None:
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        try:
            await self._revive(gathered)
        except OutOfRange:
            if len(gathered) == 1:
                raise
            for each in gathered:  # up to the one that cannot be delivered again
                await self._revive([each])

    async def _revive(self, gathered: list[tuple[int, AsyncMessage]]) -> None:
        assert self._from is not None
        partition, dead_partition = self._from
        letters = [(offset, message.offset) for offset, message in gathered]
        revived = await self._client.revive(
            self._topic,
            self._index,
            letters,
            partition=partition,
            dead_partition=dead_partition,
            timeout=self._timeout,
        )
        self.count += len(revived)
        await gathered[-1][1].ack()


async def purge(
    client: Client,
    topic: str,
    index: str | None,
    before: StartLike | None,
    timeout: float | None,
) -> int:
    """Delete dead letters for good: those of an index, or that died before a time, or all."""
    dead = topic_of(topic)
    try:
        ends = await client.find_offsets(
            dead, "latest" if before is None else before, timeout=timeout
        )
    except UnknownTopic:
        await client.describe(topic, timeout=timeout)  # raises if the topic itself is unknown
        return 0
    indexes = await client.indexes(dead, timeout=timeout)
    positions, purging = positions_of(indexes), Purging(index, ends)
    last = await client.find_offsets(dead, "latest", timeout=timeout)
    async with client.subscribe(dead, timeout=timeout) as subscription:
        while are_unread(subscription.position, last):
            message = await subscription.receive(timeout)
            purging.look_at(message, of_message(message, positions))
    if index is not None and purging.count:
        mark = purge_index(index)
        async with client.subscribe(dead, index=mark, timeout=timeout):
            pass  # now there is an index of this name
        for partition, end in enumerate(ends):
            if end > positions.get((mark, partition), 0):
                await client.seek(dead, mark, end, partition=partition, timeout=timeout)
    await client.delete_messages(dead, purging.starts, timeout=timeout)
    return purging.count
