"""Subscriptions for asyncio: messages one by one, or batch by batch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from hocket.client.calls.options import check_offset
from hocket.client.connection.session import again, closed
from hocket.client.connection.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.client.connection.wakeups import Reply
from hocket.client.consuming.attachment import SubscriptionOptions
from hocket.client.consuming.message import AsyncMessage, AsyncMessageBatch
from hocket.client.engines import timeouts as late
from hocket.client.engines.aio import AioEngine
from hocket.client.faces.reader import Reader, async_reader
from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, WouldBlock
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing import Self

    from hocket.client.faces.aio.client import AsyncClient


class AsyncSubscription:
    """`Subscription` for asyncio, with the same names; made by `client.subscribe`."""

    def __init__(
        self, client: AsyncClient, engine: AioEngine, topic: str, options: SubscriptionOptions
    ) -> None:
        self._client = client
        self._engine = engine
        self._core: Reader = async_reader(
            engine.session, topic, options, lambda progress: self._core.arouse(progress)
        )

    @property
    def topic(self) -> str:
        return self._core.topic

    @property
    def index(self) -> str | None:
        return self._core.options.index or None

    def __repr__(self) -> str:
        return f"<AsyncSubscription to {self.topic!r}, index {self.index!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            await self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    # --- messages --------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        """Waits for each next message; ends when the subscription is closed."""
        core = self._core
        while True:
            for (
                message
            ) in core.inbound.ready:  # what is not drawn stays there for the next who asks
                yield cast(AsyncMessage, message)
            try:
                yield await self.receive()
            except Closed:
                return

    async def receive(self, timeout: float | None = None) -> AsyncMessage:
        """The next message. Raises Timeout if there is none in time, Closed, and what ended it."""
        timeout = check_timeout(timeout)
        return await self._engine.wait_for(
            self._next, self._core.deliveries, timeout, lambda: late.no_message(self.topic, timeout)
        )

    def receive_nowait(self) -> AsyncMessage:
        """The next message if it is here already, else WouldBlock."""
        message = self._next()
        if message is None:
            raise WouldBlock(f"no message of topic {self.topic!r} is here yet")
        return message

    async def batches(self) -> AsyncIterator[AsyncMessageBatch]:
        """The messages as they are stored together; waits, and ends when it is closed."""
        while True:
            try:
                yield await self.receive_batch()
            except Closed:
                return

    async def receive_batch(self, timeout: float | None = None) -> AsyncMessageBatch:
        timeout = check_timeout(timeout)
        batch = await self._engine.wait_for(
            self._core.next_batch,
            self._core.deliveries,
            timeout,
            lambda: late.no_message(self.topic, timeout),
        )
        return cast(AsyncMessageBatch, batch)

    def _next(self) -> AsyncMessage | None:
        return cast("AsyncMessage | None", self._core.next_message())

    # --- places ----------------------------------------------------------------------------------

    async def commit(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Return when every ack so far, and what else was said of messages, is durable.

        Raises LeaseLost for messages of a shared index that were refused since the last commit.
        """
        timeout = check_timeout(timeout)
        core = self._core
        core.check_has_index()
        acked = core.acked_so_far()
        await self._engine.wait_for(
            lambda: core.are_committed(acked) or None,
            core.commits,
            timeout,
            lambda: late.not_committed(self.topic, timeout),
        )

    async def seek(
        self, partition: int, offset: int, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Go on with this message of the partition; an index is moved there, durably."""
        timeout = check_timeout(timeout)
        reply: Reply[Frame | HocketError] = Reply()
        self._core.seek(partition, check_offset(offset), reply.put)
        answer = await self._engine.wait_for_reply(reply, timeout, lambda: late.not_sought(timeout))
        if isinstance(answer, HocketError):
            raise again(answer)

    def position(self, partition: int) -> int:
        """The offset of the next message of the partition that will be handed out."""
        return self._core.position(partition)

    @property
    def partitions(self) -> list[int]:
        return self._core.partitions()

    @property
    def lag(self) -> int:
        """Messages not handed out yet, as far as the last deliveries tell."""
        return self._core.lag()

    @property
    def lost(self) -> int:
        """Messages that retention removed before they were read."""
        return self._core.lost

    @property
    def refused(self) -> int:
        """Messages of a shared index whose lease had ended when they were settled here."""
        return self._core.refused

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Commit the acks, and let go. Those who wait for messages are told Closed.

        What was not handed out of a shared index is for its other consumers, at once.
        """
        deadline = Deadline(check_timeout(timeout))
        core = self._core
        if core.failure is not None:
            self._client._forget(self)
            return
        try:
            core.wind_up()
            if core.options.index:
                await self.commit(deadline.remaining())
        finally:
            reply: Reply[Frame | HocketError] = Reply()
            core.close(reply.put)
            self._client._forget(self)
        left = deadline.remaining()
        await self._engine.wait_for_reply(reply, left, lambda: late.not_closed(left))

    async def _open(self, timeout: float | None) -> Self:
        core, session = self._core, self._engine.session

        def opened() -> bool | None:
            core.check_usable()
            return core.is_open or None

        try:
            core.open()
            await self._engine.wait_for(
                opened,
                core.changed,
                timeout,
                lambda: late.not_opened(session, "subscription", timeout),
            )
        except BaseException:
            core.end(closed("the subscription"))
            raise
        return self
