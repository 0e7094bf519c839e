"""Dead letters as users see them: what was delivered in vain, from where, why, and once more.

A dead letter is pending until it is replayed. How far that has come is an own index of the
dead-letter topic for each index that has given messages up: `replay.<index>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from hocket.client.consuming.message import AsyncMessage, Message
from hocket.errors import UnknownTopic
from hocket.model import NAME_BYTES_MAX, IndexDescription, Position, check_name

if TYPE_CHECKING:
    from hocket.client.faces.aio.client import AsyncClient
    from hocket.client.faces.blocking.client import Client

SUFFIX = ".dlq"
PREFIX = "hocket-dlq-"  # of the headers that the broker adds
REPLAYED = "hocket-replayed"  # the header of a message that was published again: where it had been


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that an index has given up, where it was, and why it was given up."""

    source: Position
    index: str  # that gave it up
    deliveries: int
    reason: str
    value: bytes = field(repr=False)
    key: bytes | None
    headers: dict[str, bytes | None]
    timestamp: int  # of the message; microseconds
    died: int  # likewise
    position: Position  # among the dead letters
    replayed: bool = False

    def headers_for_replay(self) -> dict[str, bytes | None]:
        place = f"{self.position.topic}/{self.position.partition}/{self.position.offset}"
        return self.headers | {REPLAYED: place.encode()}


def topic_of(topic: str) -> str:
    """The topic of a topic's dead letters; which is the same if it is one already."""
    check_name(topic)
    return topic if topic.endswith(SUFFIX) else topic + SUFFIX


def replay_index(index: str) -> str:
    name = f"replay.{index}"
    if len(name) <= NAME_BYTES_MAX:
        return name
    return f"replay.{blake2b(index.encode(), digest_size=16).hexdigest()}"


def of_message(message: Message, replayed_to: Mapping[tuple[str, int], int]) -> DeadLetter | None:
    """None: somebody has put something else into the topic."""
    about = {
        name.removeprefix(PREFIX): (data or b"").decode(errors="replace")
        for name, data in message.headers.items()
        if name.startswith(PREFIX)
    }
    try:
        source = Position(about["topic"], int(about["partition"]), int(about["offset"]))
        index, reason = check_name(about["index"]), about["reason"]
        deliveries, timestamp = int(about["deliveries"]), int(about["timestamp"])
    except (KeyError, ValueError):  # BadName among them
        return None
    headers = {name: data for name, data in message.headers.items() if not name.startswith(PREFIX)}
    return DeadLetter(
        source=source,
        index=index,
        deliveries=deliveries,
        reason=reason,
        value=message.value,
        key=message.key,
        headers=headers,
        timestamp=timestamp,
        died=message.timestamp,
        position=Position(message.topic, message.partition, message.offset),
        replayed=message.offset < replayed_to.get((replay_index(index), message.partition), 0),
    )


def replayed_so_far(indexes: Iterable[IndexDescription]) -> dict[tuple[str, int], int]:
    """Index and partition of the dead letters -> the first offset that is still pending."""
    return {(each.name, one.partition): one.position for each in indexes for one in each.partitions}


# --- for threads ---------------------------------------------------------------------------------


def find(
    client: Client, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> list[DeadLetter]:
    dead = topic_of(topic)
    try:
        ends = client.find_offsets(dead, "latest", timeout=timeout)
    except UnknownTopic:
        client.describe(topic, timeout=timeout)  # raises if the topic itself is unknown
        return []
    replayed_to = replayed_so_far(client.indexes(dead, timeout=timeout))
    found: list[DeadLetter] = []
    with client.subscribe(dead, timeout=timeout) as subscription:
        while (limit is None or len(found) < limit) and _more(subscription.position, ends):
            letter = of_message(subscription.receive(timeout), replayed_to)
            if letter is not None and index in (None, letter.index):
                found.append(letter)
    return found


def replay(
    client: Client, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> int:
    found = find(client, topic, index, None, timeout)
    names = list(dict.fromkeys(letter.index for letter in found if not letter.replayed))
    if not names:
        return 0
    left = _Left(limit)
    ends = client.find_offsets(topic_of(topic), "latest", timeout=timeout)
    with client.producer(topic.removesuffix(SUFFIX), timeout=timeout) as producer:
        for name in names:
            with client.subscribe(
                topic_of(topic), index=replay_index(name), timeout=timeout
            ) as subscription:
                newest: dict[int, Message] = {}  # by partition
                while left.any and _more(subscription.position, ends):
                    message = subscription.receive(timeout)
                    newest[message.partition] = message
                    letter = of_message(message, {})
                    if letter is not None and letter.index == name:
                        left.count()
                        producer.send(letter.value, letter.key, letter.headers_for_replay())
                producer.flush(timeout)
                for message in newest.values():  # only now: what is acknowledged is stored
                    message.ack()
    return left.counted


# --- for asyncio ---------------------------------------------------------------------------------


async def find_async(
    client: AsyncClient, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> list[DeadLetter]:
    dead = topic_of(topic)
    try:
        ends = await client.find_offsets(dead, "latest", timeout=timeout)
    except UnknownTopic:
        await client.describe(topic, timeout=timeout)
        return []
    replayed_to = replayed_so_far(await client.indexes(dead, timeout=timeout))
    found: list[DeadLetter] = []
    async with client.subscribe(dead, timeout=timeout) as subscription:
        while (limit is None or len(found) < limit) and _more(subscription.position, ends):
            letter = of_message(await subscription.receive(timeout), replayed_to)
            if letter is not None and index in (None, letter.index):
                found.append(letter)
    return found


async def replay_async(
    client: AsyncClient, topic: str, index: str | None, limit: int | None, timeout: float | None
) -> int:
    found = await find_async(client, topic, index, None, timeout)
    names = list(dict.fromkeys(letter.index for letter in found if not letter.replayed))
    if not names:
        return 0
    left = _Left(limit)
    ends = await client.find_offsets(topic_of(topic), "latest", timeout=timeout)
    async with client.producer(topic.removesuffix(SUFFIX), timeout=timeout) as producer:
        for name in names:
            async with client.subscribe(
                topic_of(topic), index=replay_index(name), timeout=timeout
            ) as subscription:
                newest: dict[int, AsyncMessage] = {}
                while left.any and _more(subscription.position, ends):
                    message = await subscription.receive(timeout)
                    newest[message.partition] = message
                    letter = of_message(message, {})
                    if letter is not None and letter.index == name:
                        left.count()
                        await producer.send(letter.value, letter.key, letter.headers_for_replay())
                await producer.flush(timeout)
                for message in newest.values():
                    await message.ack()
    return left.counted


class _Left:
    """How many more may be replayed."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.counted = 0

    @property
    def any(self) -> bool:
        return self._limit is None or self.counted < self._limit

    def count(self) -> None:
        self.counted += 1


def _more(position: Callable[[int], int], ends: Sequence[int]) -> bool:
    return any(position(partition) < end for partition, end in enumerate(ends))
