"""Producing with OpenTelemetry, for asyncio: each call has a span, and messages carry its context.

Loaded by clients with `tracing=True` alone.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hocket.client.faces.aio.producer import AsyncProducer, AsyncPublisher, P
from hocket.client.faces.aio.transaction import AsyncStagingProducer
from hocket.client.faces.aio.typed import AsyncTypedProducer
from hocket.client_core.producing.arrow_rows import with_headers
from hocket.model import Position
from hocket.tracing import Sending, counted

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


class AsyncTracedProducer(AsyncProducer[P]):
    """A producer whose calls have spans.

    The span of `send` ends when the message is taken, that of `send_future` with its future.
    """

    async def send(
        self, value: P, key: Any = None, headers: Any = None, *options: Any, **more: Any
    ) -> None:
        with Sending("send", self.topic) as sending:
            await super().send(value, key, sending.headers(headers), *options, **more)

    async def send_future(
        self, value: P, key: Any = None, headers: Any = None, *options: Any, **more: Any
    ) -> Future[Position]:
        with Sending("send", self.topic) as sending:
            carried = sending.headers(headers)
            future = await super().send_future(value, key, carried, *options, **more)
            sending.until(future)
            return future

    async def send_many(
        self, values: Sequence[P], keys: Any = None, headers: Any = None, **more: Any
    ) -> None:
        values, count = counted(values)
        with Sending("send", self.topic, count) as sending:
            carried = sending.many_headers(headers, count)
            await super().send_many(values, keys, carried, **more)

    async def send_arrow(
        self, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None:
        rows = getattr(record_batch, "num_rows", None)
        with Sending("send", self.topic, rows, partition) as sending:
            carrying = with_headers(record_batch, sending.headers(None))
            await super().send_arrow(carrying, partition)


class AsyncTracedTypedProducer(AsyncTracedProducer[P], AsyncTypedProducer[P]):
    """Values are encoded within the span."""


class AsyncTracedStagingProducer(AsyncTracedProducer, AsyncStagingProducer):
    """Of a transaction."""


class AsyncTracedPublisher(AsyncPublisher):
    async def publish(
        self, topic: str, value: Any, key: Any, headers: Any, *options: Any, **more: Any
    ) -> Position:
        with Sending("publish", topic) as sending:
            carried = sending.headers(headers)
            position = await super().publish(topic, value, key, carried, *options, **more)
            sending.stored(position)
            return position
