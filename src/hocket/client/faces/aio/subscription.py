"""Subscriptions for asyncio: messages one by one, or batch by batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from hocket.client.engines import timeouts
from hocket.client.engines.aio import AioEngine
from hocket.client.faces.misuse import AsyncIterated
from hocket.client.faces.reader import async_reader
from hocket.client.faces.topics_reader import Selection, TopicsReader
from hocket.client_core.calls.options import check_offset
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import AsyncMessage, AsyncMessageBatch, V
from hocket.client_core.consuming.reader import Reader, TopicReader
from hocket.client_core.outbox import Reply
from hocket.client_core.session.answers import again, closed
from hocket.client_core.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, WouldBlock
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing import Self


class AsyncSubscription(AsyncIterated, Generic[V]):
    """Messages of one topic, or of several; made by `client.subscribe`.

    Iterate it, or call `receive`, from any number of tasks: each message goes to one of them, and
    those of a partition in order. Partitions take turns. Messages of a shared index come as they
    are leased, those delivered again among them, and are settled one by one.

    Opened with `value=`, a message decodes its value when `message.value` is asked for, and raises
    Undecodable there if it cannot; the next message is not affected.
    """

    def __init__(
        self,
        forget: Callable[[AsyncSubscription[Any]], None],
        engine: AioEngine,
        topic: str | Selection,
        options: SubscriptionOptions,
    ) -> None:
        self._forget = forget  # tells the client that this subscription is closed
        self._engine = engine

        def reader_of(
            name: str, options: SubscriptionOptions
        ) -> TopicReader[AsyncMessage[V], AsyncMessageBatch[V]]:
            def arouse(progress: object) -> None:  # it does not know `self`: see `AsyncProducer`
                engine.do(partial(core.arouse, progress))

            core: TopicReader[AsyncMessage[V], AsyncMessageBatch[V]]
            core = async_reader(engine.session, name, options, arouse)
            return core

        self._core: Reader[AsyncMessage[V], AsyncMessageBatch[V]]
        if isinstance(topic, str):
            self._core = reader_of(topic, options)
        else:
            self._core = TopicsReader(engine.session, topic, options, reader_of)

    @property
    def topic(self) -> str:
        """The topic, or what was asked for, separated by commas, if that may be several."""
        return self._core.topic

    @property
    def topics(self) -> list[str]:
        """The topics that it reads now, sorted: those that were named, and those that match."""
        return self._engine.do(self._core.topics)

    @property
    def index(self) -> str | None:
        return self._core.options.index or None

    @property
    def index_is_new(self) -> bool:
        """There was no index of this name: this subscription has made it."""
        return bool(self.new_indexes)

    @property
    def new_indexes(self) -> list[str]:
        """The topics of which this subscription has made the index."""
        return self._engine.do(self._core.new_indexes)

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

    async def __aiter__(self) -> AsyncIterator[AsyncMessage[V]]:
        """Waits for each next message; ends when the subscription is closed."""
        core = self._core
        while True:
            # What is not drawn stays there for the next reader.
            for message in core.inbound.ready:  # asyncio
                yield message  # asyncio
            # blocking: yield from core.inbound.ready
            try:
                found = self._engine.do(core.next_message) if core.has_news else None  # asyncio
                # blocking: yield self.receive()
            except Closed:
                return
            if found is not None:  # asyncio
                yield found  # asyncio
            else:  # asyncio
                await self._engine.woken(core.deliveries)  # asyncio

    async def receive(self, timeout: float | None = None) -> AsyncMessage[V]:
        """The next message. Raises Timeout if none comes in time, Closed, and what ended it."""
        message = next(self._core.inbound.ready, None)
        if message is not None:
            return message
        timeout = check_timeout(timeout)
        return await self._engine.wait_for(
            self._core.next_message,
            self._core.deliveries,
            timeout,
            lambda: timeouts.no_message(self._core, timeout),
        )

    def receive_nowait(self) -> AsyncMessage[V]:
        """The next message if it is here already, else WouldBlock."""
        message = self._engine.do(self._core.next_message)
        if message is None:
            raise WouldBlock(f"no message of topic {self.topic!r} is here yet")
        return message

    async def batches(self) -> AsyncIterator[AsyncMessageBatch[V]]:
        """The messages as they are stored together; waits, and ends when it is closed."""
        while True:
            try:
                yield await self.receive_batch()
            except Closed:
                return

    async def receive_batch(
        self, timeout: float | None = None, *, merge: bool = False
    ) -> AsyncMessageBatch[V]:
        """The next messages that are stored together; otherwise like `receive`.

        With `merge`, small batches that are here already and follow each other come as one, which
        is much faster where records were published one by one. Those of a shared index stay apart.
        """
        timeout = check_timeout(timeout)
        return await self._engine.wait_for(
            lambda: self._core.next_batch(merge=merge),
            self._core.deliveries,
            timeout,
            lambda: timeouts.no_message(self._core, timeout),
        )

    # --- progress --------------------------------------------------------------------------------

    async def commit(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Return when every ack so far, and what else was said of messages, is durable.

        Raises LeaseLost for messages of a shared index that were refused since the last commit.
        """
        timeout = check_timeout(timeout)
        core = self._core
        core.check_has_index()
        acked = self._engine.do(core.acked_so_far)
        await self._engine.wait_for(
            lambda: core.are_committed(acked) or None,
            core.commits,
            timeout,
            lambda: timeouts.not_committed(core, acked, timeout),
        )

    async def seek(
        self,
        partition: int,
        offset: int,
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        topic: str | None = None,
    ) -> None:
        """Go on with this message of the partition; an index is moved there, durably.

        `topic` says of which topic, if there may be several.
        """
        timeout = check_timeout(timeout)
        offset = check_offset(offset)
        reply: Reply[Frame | HocketError] = Reply(self._engine.outbox)
        self._engine.do(lambda: self._core.of(topic).seek(partition, offset, reply.put))
        answer = await self._engine.wait_for_reply(
            reply, timeout, lambda: timeouts.not_sought(self._core.of(topic), partition, timeout)
        )
        if isinstance(answer, HocketError):
            raise again(answer)

    def position(self, partition: int, topic: str | None = None) -> int:
        """The offset of the next message of the partition that will be handed out.

        `topic` says of which topic, if there may be several.
        """
        return self._engine.do(lambda: self._core.of(topic).position(partition))

    @property
    def partitions(self) -> list[int]:
        """The numbers of the partitions that it reads, if it reads one topic."""
        return self._engine.do(lambda: self._core.of(None).partitions())

    @property
    def lag(self) -> int:
        """Messages not handed out yet, as far as the last deliveries tell."""
        return self._engine.do(self._core.lag)

    @property
    def lost(self) -> int:
        """Messages that retention removed before they were read."""
        return self._core.lost

    @property
    def refused(self) -> int:
        """Messages of a shared index whose lease had ended when they were settled here."""
        return self._core.refused

    # --- beginning and end -----------------------------------------------------------------------

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Commit the acks, and let go. Tasks that wait for messages are told Closed.

        After CorruptData too, what was acknowledged is committed. What was not handed out of a
        shared index is for its other consumers, at once.
        """
        deadline = Deadline(check_timeout(timeout))
        core = self._core
        # A forked child has nothing to close: it is the parent's.
        if self._engine.refuses or (core.failure is not None and not core.commits_only):
            self._forget(self)
            return
        reply: Reply[Frame | HocketError] = Reply(self._engine.outbox)
        try:
            self._engine.do(core.wind_up)
            if core.options.index:
                await self.commit(deadline.remaining())
        finally:
            self._engine.do(partial(core.close, reply.put))
            self._forget(self)
        left = deadline.remaining()
        await self._engine.wait_for_reply(reply, left, lambda: timeouts.not_closed(left))

    async def _open(self, timeout: float | None) -> None:
        core = self._core

        def opened() -> bool | None:
            if core.is_open:  # it may have come upon damage since: `receive` says so
                return True
            core.check_usable()
            return None

        try:
            self._engine.do(core.open)
            await self._engine.wait_for(
                opened,
                core.changed,
                timeout,
                lambda: timeouts.not_subscribed(core, core.may_be_opened, timeout),
            )
        except BaseException:
            self._engine.do(partial(core.end, closed("the subscription")))
            raise
