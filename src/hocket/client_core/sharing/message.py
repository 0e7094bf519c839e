"""What a subscription to a shared index hands out: messages that are settled one by one.

The progress in such a message is a `SharedProgress`. It is given the message itself, since an
offset alone does not say which of its deliveries is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import Any

from xxhash import xxh3_64_intdigest

from hocket.client_core.consuming.message import (
    AsyncMessage,
    AsyncMessageBatch,
    Message,
    MessageBatch,
    V,
    messages_of,
)
from hocket.client_core.sharing.progress import SharedProgress
from hocket.client_core.sharing.ranges import Run
from hocket.client_core.sharing.verdict import (
    ACK,
    Duration,
    Note,
    Verdict,
    extension,
    refusal,
    rejection,
)
from hocket.errors import CorruptData
from hocket.wire.batch import Batch

SPARSE = 16  # where fewer than one record in 16 is wanted, the records between are not read


class SharedMessage(Message[V]):
    """A message of a shared index: it is yours until its lease ends.

    `ack`, `nack`, `extend` and `reject` concern this message alone. None of them waits: they are
    sent together, a little later. `commit` of the subscription waits until they are durable, and so
    does closing it. Of several calls the first one counts; only `extend` may come before another.
    """

    __slots__ = ()

    def ack(self) -> Any:
        """The message is done with, and is not delivered again."""
        self[8].ack(self)

    def nack(self, delay: Duration = 0) -> Any:
        """Have it delivered again, to any consumer, after `delay` (seconds, or "5s")."""
        self[8].say(_note(self, refusal(delay)))

    def extend(self, seconds: Duration | None = None) -> Any:
        """Have the lease end `seconds` from now (or "5s"); None: after the usual lease."""
        self[8].say(_note(self, extension(seconds)))

    def reject(self, reason: str = "") -> Any:
        """Move it to the dead letters, with this reason (of which 500 characters are kept)."""
        self[8].say(_note(self, rejection(reason)))


class AsyncSharedMessage(AsyncMessage[V]):
    """A message of an asyncio subscription to a shared index: `await message.ack()`."""

    __slots__ = ()

    async def ack(self) -> None:
        self[8].ack(self)

    async def nack(self, delay: Duration = 0) -> None:
        self[8].say(_note(self, refusal(delay)))

    async def extend(self, seconds: Duration | None = None) -> None:
        self[8].say(_note(self, extension(seconds)))

    async def reject(self, reason: str = "") -> None:
        self[8].say(_note(self, rejection(reason)))


def _note(message: Message[Any], verdict: Verdict) -> Note:
    _, key, _, _, _, offset, _, count, _ = message
    return Note(verdict, offset, offset + 1, count, (hash_of(key),))


def hash_of(key: bytes | None) -> int:
    """The key's hash as a batch holds it; 0 stands for no key."""
    return 0 if key is None else xxh3_64_intdigest(key)


class SharedBatch(MessageBatch[V]):
    """Messages of a shared index that stand side by side; each call settles all of them."""

    __slots__ = ()

    def ack(self) -> Any:
        _say(self, ACK)

    def nack(self, delay: Duration = 0) -> Any:
        _say(self, refusal(delay))

    def extend(self, seconds: Duration | None = None) -> Any:
        _say(self, extension(seconds))

    def reject(self, reason: str = "") -> Any:
        _say(self, rejection(reason))


class AsyncSharedBatch(AsyncMessageBatch[V]):
    __slots__ = ()

    async def ack(self) -> None:
        _say(self, ACK)

    async def nack(self, delay: Duration = 0) -> None:
        _say(self, refusal(delay))

    async def extend(self, seconds: Duration | None = None) -> None:
        _say(self, extension(seconds))

    async def reject(self, reason: str = "") -> None:
        _say(self, rejection(reason))


def _say(batch: MessageBatch[Any], verdict: Verdict) -> None:
    progress: SharedProgress = batch._progress  # type: ignore[assignment]
    hashes = (0,) * batch.count
    if verdict.action == "nack" and progress.keyed:
        hashes = tuple(map(hash_of, batch.keys()))
    progress.say(Note(verdict, batch.offset, batch.end, batch.delivery_count, hashes))


def leased_messages(
    kind: type[Message], batch: Batch, runs: Sequence[Run], topic: str, progress: SharedProgress
) -> list[Message]:
    """The messages of these runs of a batch, in order, made by C loops wherever that is cheaper."""
    base = batch.base_offset
    first, last = runs[0][0], runs[-1][1]
    if len(runs) > 1 and last - first <= SPARSE * sum(end - start for start, end, _ in runs):
        with suppress(CorruptData):  # it may be one of those between, which are not wanted
            return _scattered(kind, batch, runs, topic, progress)
    messages: list[Message] = []
    for start, end, deliveries in runs:
        messages += messages_of(
            kind, batch, start - base, end - base, topic, progress, repeat(deliveries)
        )
    return messages


def _scattered(
    kind: type[Message], batch: Batch, runs: Sequence[Run], topic: str, progress: SharedProgress
) -> list[Message]:
    """Read all records from the first to the last wanted, and pick those wanted."""
    first, last = runs[0][0], runs[-1][1]
    start, end = first - batch.base_offset, last - batch.base_offset
    offsets = [offset for low, high, _ in runs for offset in range(low, high)]
    pick = itemgetter(*[offset - first for offset in offsets])  # at least two
    columns = batch.columns()
    fields = zip(
        pick(batch.values(start, end)),
        repeat(None) if columns.keys is None else pick(batch.keys(start, end)),
        repeat({}) if columns.headers is None else pick(batch.headers(start, end)),
        repeat(topic),
        repeat(progress.partition),
        offsets,
        pick(batch.timestamps(start, end)),
        [deliveries for low, high, deliveries in runs for _ in range(low, high)],
        repeat(progress),
    )
    return list(map(tuple.__new__, repeat(kind), fields))
