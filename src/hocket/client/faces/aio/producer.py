"""Producing for asyncio: streams of messages, and one-off publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hocket.client.connection.session import again, closed
from hocket.client.connection.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.client.engines import timeouts as late
from hocket.client.engines.aio import AioEngine
from hocket.client.producing.arrow_rows import arrow_portions
from hocket.client.producing.bulk import Portion, list_portions
from hocket.client.producing.core import ProducerCore
from hocket.client.producing.delivery import ProducerOptions
from hocket.client.producing.outgoing import Outcome, Outgoing, Positions
from hocket.client.producing.publishing import Publications
from hocket.client.producing.records import RECORD_BYTES, checked
from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError
from hocket.model import Position, check_name

if TYPE_CHECKING:
    from typing import Self

    import pyarrow  # type: ignore[import-untyped]
    from typing_extensions import Buffer

    from hocket.client.faces.aio.client import AsyncClient
    from hocket.client.producing.records import Headers

T = TypeVar("T")


class AsyncProducer:
    """`Producer` for asyncio, with the same names; made by `client.producer`."""

    def __init__(
        self,
        client: AsyncClient,
        engine: AioEngine,
        topic: str,
        options: ProducerOptions,
        on_delivery: Callable[[Outcome], None] | None,
        send_timeout: float | None,
    ) -> None:
        self._client = client
        self._engine = engine
        self._on_delivery = on_delivery
        self._send_timeout = send_timeout
        self._core = ProducerCore(engine.session, topic, options, self._settle)

    @property
    def topic(self) -> str:
        return self._core.topic

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self.topic!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            await self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    # --- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        value: Buffer,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Take a message to be delivered soon; waits only while the window is full."""
        plain = key is None and headers is None and timestamp is None and partition is None
        if plain and type(value) is bytes:
            gathering = self._core.sticky
            room = gathering.room - len(value) - RECORD_BYTES
            if room >= 0:
                gathering.room = room
                gathering.items.append(value)
                if not gathering.awake:
                    self._core.wake_for(gathering, value)
                return
        await self._send(value, key, headers, timestamp, partition, None)

    async def send_future(
        self,
        value: Buffer,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[Position]:
        """`send`, with a future of the message's position."""
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        await self._send(value, key, headers, timestamp, partition, future)
        return future

    async def send_many(
        self,
        values: Sequence[Buffer],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Many messages at once; if one is wrong, it is named and none is taken."""
        await self._send_portions(list_portions(self._core, values, keys, headers))

    async def send_arrow(
        self, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None:
        """The rows of an Arrow batch: `value`, and if there are any `key`, `timestamp`, `headers`.

        Keys spread them over the partitions, and rows without one stay together; `partition` puts
        all of them there. They are checked first: if one is wrong, it is named and none is taken.
        """
        await self._send_portions(arrow_portions(self._core, record_batch, partition))

    async def _send_portions(self, portions: Sequence[Portion]) -> None:
        deadline = Deadline(self._send_timeout)
        taken = 0
        for portion in portions:
            start = 0
            while start < portion.count:
                offer = partial(portion.offer, self._core, start)
                start = await self._when_taken(offer, deadline.remaining(), taken + start)
            taken += portion.count

    async def _send(
        self,
        value: Buffer,
        key: Buffer | None,
        headers: Headers | None,
        timestamp: int | None,
        partition: int | None,
        future: asyncio.Future[Position] | None,
    ) -> None:
        record, size = checked(value, key, headers, timestamp, future)
        core = self._core
        core.check_usable()
        gathering = core.gathering_of(record[1], partition)
        await self._when_taken(
            lambda: core.offer(gathering, record, size) or None, self._send_timeout
        )

    async def _when_taken(
        self, offer: Callable[[], T | None], timeout: float | None, taken: int = 0
    ) -> T:
        return await self._engine.wait_for(
            offer,
            self._core.settled,
            timeout,
            lambda: late.window_full(self._core, self._send_timeout, taken),
        )

    # --- delivering ------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all that was sent so far is delivered; raises the first error there was."""
        await self._deliver(timeout)
        if self._core.failure is not None:
            raise again(self._core.failure)

    async def _deliver(self, timeout: float | None) -> None:
        core = self._core
        serial = core.cut_all()
        await self._engine.wait_for(
            lambda: core.is_settled(serial) or None,
            core.settled,
            check_timeout(timeout),
            lambda: late.undelivered(core, timeout),
        )
        error, core.first_error = core.first_error, None
        if error is not None:
            raise again(error)

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Deliver what was sent, and let go; raises an error that nobody was told of yet."""
        core = self._core
        if isinstance(core.failure, Closed):
            return
        core.stop_taking()
        try:
            await self._deliver(timeout)
        finally:
            core.end(closed("the producer"))
            self._client._forget(self)

    async def _open(self, timeout: float | None) -> Self:
        try:
            self._core.open()
            await wait_until_open(self._engine, self._core, "producer", timeout)
        except BaseException:
            self._core.end(closed("the producer"))
            raise
        return self

    def _settle(self, batch: Outgoing, outcome: Outcome) -> None:
        for number, future in batch.waiters:
            if future.done():
                continue
            if isinstance(outcome, Positions):
                future.set_result(outcome.position(number))
            else:
                future.set_exception(outcome)
        if self._on_delivery is not None:
            self._engine.defer(partial(self._on_delivery, outcome))


class AsyncPublisher:
    """The one-off publishes of a client."""

    def __init__(self, engine: AioEngine) -> None:
        self._engine = engine
        self._publications = Publications(engine.session)

    async def publish(
        self,
        topic: str,
        value: Buffer,
        key: Buffer | None,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        timeout: float | None,
    ) -> Position:
        deadline = Deadline(timeout)
        publication = self._publications.new(timeout)
        record, size = checked(value, key, headers, timestamp, publication)
        core = self._publications.core(check_name(topic))
        await wait_until_open(self._engine, core, "topic", deadline.remaining())
        core.offer(core.gathering_of(record[1], partition), record, size)
        try:
            outcome = await self._engine.wait_for_reply(
                publication,
                deadline.remaining(),
                lambda: late.unpublished(core, core.withdraw(record), timeout),
            )
        except BaseException:
            core.withdraw(record)
            raise
        if isinstance(outcome, HocketError):
            raise outcome
        return outcome


async def wait_until_open(
    engine: AioEngine, core: ProducerCore, what: str, timeout: float | None
) -> None:
    def opened() -> bool | None:
        core.check_usable()
        return core.is_open or None

    await engine.wait_for(
        opened, core.changed, timeout, lambda: late.not_opened(engine.session, what, timeout)
    )
