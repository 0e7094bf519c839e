"""The calls of a client about topics and their indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from hocket.client.engines.aio import AioEngine
from hocket.client_core.calls import topics as topic_calls
from hocket.client_core.calls.topics import Duration, Size, StartLike
from hocket.client_core.timeout import DEFAULT_TIMEOUT
from hocket.model import IndexDescription, TopicDescription


class AsyncTopicCalls:
    """A part of the client: topics, and how far their indexes have come."""

    _engine: AioEngine

    # --- topics ----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        memory_retention: Duration | None = None,
        memory_bytes: Size | None = None,
        disk_retention: Duration | None = None,
        disk_bytes: Size | None = None,
        durability: str = "quorum",
        segment_bytes: Size | None = None,
        delayed: bool = False,
        exist_ok: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Make a topic. Raises TopicExists, unless `exist_ok`.

        Durations are "10m", "7d" or seconds, sizes "64MiB" or bytes; None stands for the default.
        `disk_retention="forever"` keeps everything. With `delayed=True` messages may be published
        with a delay.
        """
        config = topic_calls.new_config(
            partitions=partitions,
            replication=replication,
            memory_retention=memory_retention,
            memory_bytes=memory_bytes,
            disk_retention=disk_retention,
            disk_bytes=disk_bytes,
            durability=durability,
            segment_bytes=segment_bytes,
            delayed=delayed,
        )
        await self._engine.call(topic_calls.create_topic(name, config, exist_ok=exist_ok), timeout)

    async def alter_topic(
        self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT, **changes: Any
    ) -> None:
        """Change what `create_topic` set; what is not given stays. Partitions may only grow."""
        before = await self.describe(name, timeout=timeout)
        config = topic_calls.configured(before.config, **changes)
        await self._engine.call(topic_calls.alter_topic(name, config, before.config), timeout)

    async def delete_topic(
        self, name: str, *, missing_ok: bool = False, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Remove a topic, its messages and indexes. Raises UnknownTopic, unless `missing_ok`."""
        await self._engine.call(topic_calls.delete_topic(name, missing_ok=missing_ok), timeout)

    async def topics(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> list[str]:
        """The names of all topics, sorted."""
        return await self._engine.call_paged(topic_calls.topics(), timeout)

    async def describe(
        self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> TopicDescription:
        """How a topic is configured, and what each of its partitions holds."""
        return await self._engine.call_paged(topic_calls.describe(name), timeout)

    async def find_offsets(
        self, topic: str, start: StartLike, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> list[int]:
        """The offset of `start` ("earliest", "latest", an offset, a time) in each partition."""
        return await self._engine.call(topic_calls.find_offsets(topic, start), timeout)

    async def ping(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Return when the broker has answered."""
        await self._engine.call(topic_calls.ping(), timeout)

    async def delete_messages(
        self, topic: str, offsets: Sequence[int], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Delete the messages of a topic that lie before these offsets, one for each partition."""
        await self._engine.call(topic_calls.delete_messages(topic, offsets), timeout)

    # --- indexes ---------------------------------------------------------------------------------

    async def indexes(
        self, topic: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> list[IndexDescription]:
        """The indexes of a topic: how far each has come, and who is attached."""
        return await self._engine.call_paged(topic_calls.indexes(topic), timeout)

    async def lag(self, topic: str, index: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> int:
        """How many messages the index is behind, over all partitions."""
        return await self._engine.call_paged(topic_calls.lag(topic, index), timeout)

    @overload
    async def seek(
        self,
        topic: str,
        index: str,
        to: StartLike,
        *,
        partition: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int]: ...

    @overload
    async def seek(
        self,
        topic: str,
        index: str,
        to: Mapping[int, StartLike],
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> dict[int, int]: ...

    async def seek(
        self,
        topic: str,
        index: str,
        to: StartLike | Mapping[int, StartLike],
        *,
        partition: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int] | dict[int, int]:
        """Move an index, in one partition or in all; returns its new offsets.

        With `to={partition: start}` the index is moved in each of these partitions: they are asked
        for together, but if one is refused, its error is raised and the others have moved. A
        consumer that is attached goes on from there.
        """
        if not isinstance(to, Mapping):
            return await self._engine.call(topic_calls.seek(topic, index, to, partition), timeout)
        calls = topic_calls.seek_each(topic, index, to, partition)
        offsets = await self._engine.call_all(list(calls.values()), timeout)
        return dict(zip(calls, offsets, strict=True))

    async def skip(
        self,
        topic: str,
        index: str,
        *,
        partition: int,
        offset: int,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> int:
        """Move an own index past messages that cannot be read; returns where it goes on.

        `offset` names one of them, as `CorruptData` does. Acknowledge what came before them first:
        an index that stands at a message that can be read is not moved (OutOfRange). A shared index
        sets such messages aside by itself (WrongKind).
        """
        return await self._engine.call(topic_calls.skip(topic, index, partition, offset), timeout)

    async def delete_index(
        self, topic: str, index: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Remove an index; its consumer is told. Raises UnknownIndex."""
        await self._engine.call(topic_calls.delete_index(topic, index), timeout)
