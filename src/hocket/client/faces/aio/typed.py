"""Producing values of a type, for asyncio: each is encoded, and then sent like any other."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hocket.client.engines.aio import AioEngine
from hocket.client.faces.aio.producer import AsyncProducer, P
from hocket.client_core.producing.encoding import Encoding, no_arrow
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.outgoing import Outcome
from hocket.model import Position
from hocket.values import Coder

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


class AsyncTypedProducer(AsyncProducer[P]):
    """An AsyncProducer that was opened with `value=`.

    `send`, `send_future` and `send_many` raise Unencodable for a value that is not of this type;
    then nothing was taken. All else is as it is with bytes.
    """

    def __init__(
        self,
        coder: Coder[P],
        forget: Callable[[AsyncProducer[Any]], None],
        engine: AioEngine,
        topic: str,
        options: ProducerOptions,
        on_delivery: Callable[[Outcome], None] | None,
        send_timeout: float | None,
    ) -> None:
        super().__init__(forget, engine, topic, options, on_delivery, send_timeout)
        self._encoding = Encoding(topic, coder)

    async def send(self, value: P, *options: Any, **more: Any) -> None:
        data: Any = self._encoding.encoded(value)
        await super().send(data, *options, **more)

    async def send_future(self, value: P, *options: Any, **more: Any) -> Future[Position]:
        data: Any = self._encoding.encoded(value)
        return await super().send_future(data, *options, **more)

    async def send_many(self, values: Sequence[P], *options: Any, **more: Any) -> None:
        data: Any = self._encoding.all_encoded(values)
        await super().send_many(data, *options, **more)

    async def send_arrow(
        self,
        record_batch: pyarrow.RecordBatch,  # noqa: ARG002
        partition: int | None = None,  # noqa: ARG002
    ) -> None:
        raise no_arrow()
