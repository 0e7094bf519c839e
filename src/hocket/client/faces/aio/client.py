"""The asyncio client, which `hocket.aio.connect` and `hocket.aio.embedded` make."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from hocket import frames
from hocket.client.calls import topics as topic_calls
from hocket.client.calls.dead_letters import DeadLetter
from hocket.client.calls.options import (
    check_callback,
    check_number,
    producer_options,
    subscription_options,
)
from hocket.client.calls.topics import Duration, Size, StartLike
from hocket.client.connection.link import Connector
from hocket.client.connection.session import closed
from hocket.client.connection.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.client.engines.aio import AioEngine
from hocket.client.engines.leaving import EXIT_SECONDS
from hocket.client.faces.aio import dead_letters
from hocket.client.faces.aio.access import AsyncAccessCalls
from hocket.client.faces.aio.cluster import AsyncClusterCalls
from hocket.client.faces.aio.producer import AsyncProducer, AsyncPublisher
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.aio.transaction import AsyncTransaction, decide, drop
from hocket.client.faces.opening import Opening
from hocket.client.faces.topics_reader import selected_topics
from hocket.client.producing.outgoing import Outcome
from hocket.client.producing.staging import check_participants
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.model import (
    PREFETCH_DEFAULT,
    IndexDescription,
    Participant,
    Position,
    TopicDescription,
    check_name,
)

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

    from hocket.client.producing.records import Headers


async def nothing_else() -> None:
    """Nothing else ends with a client."""


class AsyncClient(AsyncAccessCalls, AsyncClusterCalls):
    """A connection to a broker, for any number of tasks of the loop that it was opened on.

    It comes back by itself when it is lost: what was being produced is sent again and stored once,
    and subscriptions go on where they were. Made by `hocket.aio.connect` and `hocket.aio.embedded`.
    Every call that waits takes a `timeout` in seconds.
    """

    def __init__(
        self,
        connector: Connector,
        *,
        token: str | None = None,
        name: str = "",
        # blocking: timeout: float | None = 10,
        closing: Callable[[], Awaitable[None]] = nothing_else,
        exit_timeout: float | None = EXIT_SECONDS,
    ) -> None:
        self._engine = AioEngine(connector, name=name, token=token or "", exit_seconds=exit_timeout)
        self._closing = closing  # called when all the rest has ended
        self._closed = True  # until it is open
        self._producers: dict[AsyncProducer, None] = {}
        self._transactions: dict[AsyncTransaction, None] = {}
        self._subscriptions: dict[AsyncSubscription, None] = {}
        self._publisher = AsyncPublisher(self._engine)
        # blocking: self._open(timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            await self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._engine.is_inherited:
            self._engine.abandon(self._closing)
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._engine.session.state
        return f"<AsyncClient of {self._engine.session.target}, {state}>"

    @property
    def cluster(self) -> str:
        """The id of the cluster that this client belongs to, for ever the same.

        Empty if the broker is older than that. A client that meets another cluster, where its
        broker was or at another address of its URL, is at its end: AnotherCluster.
        """
        return self._engine.session.cluster

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Deliver what was sent, commit what was acknowledged, and let go.

        Raises the first thing that went wrong, after everything is closed. In a forked child it
        does nothing: the connection, and what was sent, are the parent's.
        """
        if self._closed or self._engine.is_inherited:
            return
        deadline = Deadline(check_timeout(timeout))
        self._closed = True
        errors: list[HocketError] = []
        try:
            opened: list[AsyncProducer | AsyncSubscription | AsyncTransaction] = [
                *self._producers,
                *self._subscriptions,
                *self._transactions,
            ]
            for each in opened:
                try:
                    await each.close(deadline.remaining())
                except HocketError as error:
                    errors.append(error)
        finally:
            await self._stop()
        if errors:
            raise errors[0]

    async def _open(self, timeout: float | None) -> None:
        try:
            await self._engine.start(timeout)
        except BaseException:
            await self._stop()
            raise
        self._closed = False

    async def _stop(self) -> None:
        self._engine.stop(closed("the client"))
        await self._closing()

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
        exist_ok: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Make a topic. Raises TopicExists, unless `exist_ok`.

        Durations are "10m", "7d" or seconds, sizes "64MiB" or bytes; None stands for the default.
        `disk_retention="forever"` keeps everything.
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

    # --- dead letters ----------------------------------------------------------------------------

    async def dead_letters(
        self,
        topic: str,
        *,
        index: str | None = None,
        limit: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[DeadLetter]:
        """The messages that shared indexes of the topic (or this one) gave up, oldest first."""
        return await dead_letters.find(self, topic, index, limit, check_timeout(timeout))

    async def replay_dead_letters(
        self,
        topic: str,
        *,
        index: str | None = None,
        limit: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> int:
        """Publish dead letters that were not replayed yet to the topic again; returns how many.

        They are new messages, for every index of the topic, with the header `hocket-replayed`.
        """
        return await dead_letters.replay(self, topic, index, limit, check_timeout(timeout))

    # --- messages --------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Position:
        """Store one message; returns where it stands once it is as durable as its topic demands.

        Publishes of many tasks share frames. A publish is tried again while `timeout` lasts, and
        stored once. For a stream of messages a `producer` is the better choice.
        """
        return await self._publisher.publish(
            topic, value, key, headers, partition, timestamp, check_timeout(timeout)
        )

    def producer(
        self,
        topic: str,
        *,
        linger: float = 0.002,
        batch_bytes: int | str = 1 << 20,
        window_bytes: int | str = 16 << 20,
        codec: str = "none",
        on_delivery: Callable[[Outcome], None] | None = None,
        send_timeout: float | None = None,
        delivery_timeout: float | None = 120,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Opening[AsyncProducer]:
        """A stream of messages to a topic.

        A message waits at most `linger` seconds for others to share its batch; with 0 it leaves at
        once, and what is sent while it is on its way gathers. `send` waits only while
        `window_bytes` are not acknowledged, at most `send_timeout`. What cannot be delivered within
        `delivery_timeout` has failed.

        `on_delivery` is called for each batch with its `Positions`, or with the error. It is called
        on the loop: it may use the client, and must not take long.
        """
        options = producer_options(
            linger=linger,
            batch_bytes=batch_bytes,
            window_bytes=window_bytes,
            codec=codec,
            delivery_timeout=delivery_timeout,
        )
        check_callback(on_delivery, "on_delivery")
        seconds = check_timeout(send_timeout, "send_timeout")
        opening_timeout = check_timeout(timeout)
        check_name(topic)

        async def open_producer() -> AsyncProducer:
            producer = AsyncProducer(
                self._forget, self._engine, topic, options, on_delivery, seconds
            )
            await producer._open(opening_timeout)
            self._producers[producer] = None
            return producer

        return Opening(open_producer)

    def transaction(
        self,
        id: str,  # noqa: A002 - the word its users see
        *,
        number: int = 0,
        linger: float = 0.002,
        batch_bytes: int | str = 1 << 20,
        window_bytes: int | str = 16 << 20,
        codec: str = "none",
        send_timeout: float | None = None,
        delivery_timeout: float | None = 120,
    ) -> AsyncTransaction:
        """Messages to any number of topics, published all together or not at all.

        The end of the block commits, an exception in it aborts. `id` names a stream of
        transactions, and `number` one of them: numbers only grow. The same number again, with as
        many records for each topic, is done already and not published twice; so whoever does not
        know whether a transaction was committed does it again. The options are those of
        `producer`.
        """
        options = producer_options(
            linger=linger,
            batch_bytes=batch_bytes,
            window_bytes=window_bytes,
            codec=codec,
            delivery_timeout=delivery_timeout,
        )
        transaction = AsyncTransaction(
            self._forget,
            self._engine,
            check_name(id, "a transaction's id"),
            check_number(number),
            options,
            check_timeout(send_timeout, "send_timeout"),
        )
        self._transactions[transaction] = None
        return transaction

    async def commit_prepared(
        self,
        id: str,  # noqa: A002 - the word its users see
        number: int,
        participants: Iterable[Participant],
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Publish what was prepared: all of it, or nothing. See `AsyncTransaction.prepare`.

        The answer is that of `AsyncTransaction.commit`: as many records for each topic as were
        committed before are done already, others are a TransactionConflict. Raises
        TransactionAborted if something of it was dropped; then stage it again.
        """
        named = check_participants(participants)
        commit = frames.CommitTransaction(
            0, check_name(id, "a transaction's id"), check_number(number), named
        )
        await decide(self._engine, commit, check_timeout(timeout), "commit")

    async def drop_prepared(
        self,
        id: str,  # noqa: A002 - the word its users see
        number: int,
        participants: Iterable[Participant],
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Drop what was prepared, and nothing else; the number can be staged again.

        Raises TransactionConflict if the number is committed already.
        """
        name = check_name(id, "a transaction's id"), check_number(number)
        producers = [each.producer_id for each in check_participants(participants)]
        await drop(self._engine, name, producers, check_timeout(timeout))

    def subscribe(
        self,
        topic: str | Iterable[str],
        *,
        index: str | None = None,
        mode: str = "own",
        start: StartLike = "earliest",
        partitions: Iterable[int] | None = None,
        positions: Mapping[int, int] | None = None,
        hold_retention: bool = False,
        credit_bytes: int | str = 8 << 20,
        lease: Duration | None = None,
        max_deliveries: int | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        failover: str = "safe",
        create: bool = True,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Opening[AsyncSubscription]:
        """Read a topic from where `index` is, which the broker remembers.

        `topic` may be a list of names, and a name may have `*` for any run of characters: topics
        that match are read as well, also those that are made later, from their first message on.
        Each topic has an index of this name.

        `start` counts only where the index is new; with `create=False` an index that is not there
        is an UnknownIndex. Without an index the subscription begins at
        `start`, or at `positions` (partition -> offset), and you remember how far it has come. The
        broker sends at most `credit_bytes` ahead of what was handed out.

        With `mode="shared"` every message goes to one of the index's consumers, and belongs to that
        consumer for `lease` (seconds, or "30s"). A message that is not settled by then is delivered
        again, `max_deliveries` times at most, and then goes to the dead letters. None leaves either
        as the index has it: 30 s and 5, unless somebody set it. `mode="key_shared"` also keeps the
        order of each key. The subscription holds at most `prefetch` messages that are not settled.
        After a restart of the broker, messages that a consumer may still have are withheld until
        their leases end, unless `failover="fast"`.
        """
        options = subscription_options(
            index=index,
            mode=mode,
            start=start,
            partitions=partitions,
            positions=positions,
            hold_retention=hold_retention,
            credit_bytes=credit_bytes,
            lease=lease,
            max_deliveries=max_deliveries,
            prefetch=prefetch,
            failover=failover,
            create=create,
        )
        opening_timeout = check_timeout(timeout)
        selected = selected_topics(topic, options)

        async def open_subscription() -> AsyncSubscription:
            subscription = AsyncSubscription(self._forget, self._engine, selected, options)
            await subscription._open(opening_timeout)
            self._subscriptions[subscription] = None
            return subscription

        return Opening(open_subscription)

    def _forget(self, ended: AsyncProducer | AsyncSubscription | AsyncTransaction) -> None:
        if isinstance(ended, AsyncProducer):
            self._producers.pop(ended, None)
        elif isinstance(ended, AsyncTransaction):
            self._transactions.pop(ended, None)
        else:
            self._subscriptions.pop(ended, None)
