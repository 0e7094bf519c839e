"""Subscriptions for threads: messages one by one, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hocket.client.calls.options import check_offset
from hocket.client.connection.session import again, closed
from hocket.client.connection.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.client.connection.wakeups import Reply
from hocket.client.consuming.attachment import SubscriptionOptions
from hocket.client.consuming.message import Message, MessageBatch
from hocket.client.engines import timeouts as late
from hocket.client.engines.threads import Engine
from hocket.client.faces.reader import reader
from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, WouldBlock
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing import Self

    from hocket.client.faces.blocking.client import Client


class Subscription:
    """Messages of one topic; made by `client.subscribe`.

    Iterate it, or call `receive`, from any number of threads: each message goes to one of them, and
    those of a partition in order. Partitions take turns. Messages of a shared index come as they
    are leased, those delivered again among them, and are settled one by one.
    """

    def __init__(
        self, client: Client, engine: Engine, topic: str, options: SubscriptionOptions
    ) -> None:
        self._client = client
        self._engine = engine

        def arouse(progress: object) -> None:  # knows no `self`: a dropped one can be collected
            with engine, engine.lock:
                core.arouse(progress)

        core = reader(engine.session, topic, options, arouse)
        self._core = core

    @property
    def topic(self) -> str:
        return self._core.topic

    @property
    def index(self) -> str | None:
        return self._core.options.index or None

    def __repr__(self) -> str:
        return f"<Subscription to {self.topic!r}, index {self.index!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    # --- messages --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        """Waits for each next message; ends when the subscription is closed."""
        core = self._core
        while True:
            yield from core.inbound.ready  # what is not drawn stays there for the next who asks
            try:
                yield self.receive()
            except Closed:
                return

    def receive(self, timeout: float | None = None) -> Message:
        """The next message. Raises Timeout if there is none in time, Closed, and what ended it."""
        message = next(self._core.inbound.ready, None)
        if message is not None:
            return message
        timeout = check_timeout(timeout)
        return self._engine.wait_for(
            self._core.next_message,
            self._core.deliveries,
            timeout,
            lambda: late.no_message(self.topic, timeout),
        )

    def receive_nowait(self) -> Message:
        """The next message if it is here already, else WouldBlock."""
        with self._engine, self._engine.lock:
            message = self._core.next_message()
        if message is None:
            raise WouldBlock(f"no message of topic {self.topic!r} is here yet")
        return message

    def batches(self) -> Iterator[MessageBatch]:
        """The messages as they are stored together; waits, and ends when it is closed."""
        while True:
            try:
                yield self.receive_batch()
            except Closed:
                return

    def receive_batch(self, timeout: float | None = None) -> MessageBatch:
        timeout = check_timeout(timeout)
        return self._engine.wait_for(
            self._core.next_batch,
            self._core.deliveries,
            timeout,
            lambda: late.no_message(self.topic, timeout),
        )

    # --- places ----------------------------------------------------------------------------------

    def commit(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Return when every ack so far, and what else was said of messages, is durable.

        Raises LeaseLost for messages of a shared index that were refused since the last commit.
        """
        timeout = check_timeout(timeout)
        core = self._core
        core.check_has_index()
        with self._engine, self._engine.lock:
            acked = core.acked_so_far()
        self._engine.wait_for(
            lambda: core.are_committed(acked) or None,
            core.commits,
            timeout,
            lambda: late.not_committed(self.topic, timeout),
        )

    def seek(self, partition: int, offset: int, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Go on with this message of the partition; an index is moved there, durably."""
        timeout = check_timeout(timeout)
        reply: Reply[Frame | HocketError] = Reply()
        with self._engine, self._engine.lock:
            self._core.seek(partition, check_offset(offset), reply.put)
        answer = self._engine.wait_for_reply(reply, timeout, lambda: late.not_sought(timeout))
        if isinstance(answer, HocketError):
            raise again(answer)

    def position(self, partition: int) -> int:
        """The offset of the next message of the partition that will be handed out."""
        with self._engine, self._engine.lock:
            return self._core.position(partition)

    @property
    def partitions(self) -> list[int]:
        with self._engine, self._engine.lock:
            return self._core.partitions()

    @property
    def lag(self) -> int:
        """Messages not handed out yet, as far as the last deliveries tell."""
        with self._engine, self._engine.lock:
            return self._core.lag()

    @property
    def lost(self) -> int:
        """Messages that retention removed before they were read."""
        return self._core.lost

    @property
    def refused(self) -> int:
        """Messages of a shared index whose lease had ended when they were settled here."""
        return self._core.refused

    def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Commit the acks, and let go. Those who wait for messages are told Closed.

        What was not handed out of a shared index is for its other consumers, at once.
        """
        timeout = check_timeout(timeout)
        core = self._core
        if core.failure is not None:
            self._client._forget(self)
            return
        deadline = Deadline(timeout)
        try:
            with self._engine, self._engine.lock:
                core.wind_up()
            if core.options.index:
                self.commit(deadline.remaining())
        finally:
            self._let_go(deadline)

    def _let_go(self, deadline: Deadline) -> None:
        left = deadline.remaining()
        reply: Reply[Frame | HocketError] = Reply()
        with self._engine, self._engine.lock:
            self._core.close(reply.put)
        self._client._forget(self)
        self._engine.wait_for_reply(reply, left, lambda: late.not_closed(left))

    def _open(self, timeout: float | None) -> None:
        core = self._core
        with self._engine, self._engine.lock:
            core.open()

        def opened() -> bool | None:
            core.check_usable()
            return core.is_open or None

        try:
            self._engine.wait_for(
                opened,
                core.changed,
                timeout,
                lambda: late.not_opened(self._engine.session, "subscription", timeout),
            )
        except BaseException:
            with self._engine, self._engine.lock:
                core.end(closed("the subscription"))
            raise
