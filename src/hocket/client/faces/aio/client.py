"""The asyncio client, which `hocket.aio.connect` and `hocket.aio.embedded` make."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from hocket import frames
from hocket.client.connection.link import Connector
from hocket.client.engines.aio import AioEngine
from hocket.client.engines.leaving import EXIT_SECONDS
from hocket.client.faces.aio import dead_letters
from hocket.client.faces.aio.access import AsyncAccessCalls
from hocket.client.faces.aio.cluster import AsyncClusterCalls
from hocket.client.faces.aio.kinds import kinds
from hocket.client.faces.aio.producer import AsyncProducer, P
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.aio.topics import AsyncTopicCalls
from hocket.client.faces.aio.transaction import AsyncTransaction, decide, drop
from hocket.client.faces.misuse import AsyncFace
from hocket.client.faces.names import NamesOfClient
from hocket.client.faces.opening import Opening
from hocket.client.faces.topics_reader import selected_topics
from hocket.client_core.calls import dead_letters as dead_letter_calls
from hocket.client_core.calls.dead_letters import DeadLetter
from hocket.client_core.calls.options import (
    check_callback,
    check_number,
    producer_options,
    subscription_options,
)
from hocket.client_core.calls.topics import Duration, StartLike
from hocket.client_core.producing.encoding import ABSENT, coder_for, payload
from hocket.client_core.producing.outgoing import Outcome
from hocket.client_core.producing.staging import check_participants, topic_of
from hocket.client_core.session.answers import closed
from hocket.client_core.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.model import (
    BrokerDescription,
    Participant,
    Position,
    check_name,
)
from hocket.remote.manager import NameManager
from hocket.remote.reach import Reach

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from typing_extensions import Buffer

    from hocket.client_core.consuming.message import V
    from hocket.client_core.producing.delays import Delay
    from hocket.client_core.producing.records import Headers
    from hocket.values import Coder


async def nothing_else() -> None:
    """Nothing else ends with a client."""


class AsyncClient(AsyncTopicCalls, AsyncAccessCalls, AsyncClusterCalls, AsyncFace):
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
        reach: Reach | None = None,
        tracing: bool = False,
    ) -> None:
        self._names = NamesOfClient(reach)
        self._kinds = kinds(tracing=tracing)
        self._engine = AioEngine(connector, name=name, token=token or "", exit_seconds=exit_timeout)
        self._closing = closing  # called when all the rest has ended
        self._closed = True  # until it is open
        self._producers: dict[AsyncProducer[Any], None] = {}
        self._transactions: dict[AsyncTransaction, None] = {}
        self._subscriptions: dict[AsyncSubscription[Any], None] = {}
        self._publisher = self._kinds.publisher(self._engine)
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
        if not getattr(self, "_closed", True) and not self._engine.refuses:
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

    @property
    def broker(self) -> BrokerDescription:
        """Who has answered last: its node, the software it runs, and its cluster."""
        session = self._engine.session
        return BrokerDescription(session.node, session.software, session.cluster)

    @property
    def names(self) -> NameManager:
        """The names of brokers in the whole cluster: a manager for `hocket.local`.

        `QueueBroker("chat", pump, client)` registers a name that other processes connect to. The
        manager is made when it is first asked for, and ends with the client.
        """
        return self._names.manager()

    def use_names(self, *, listen: str | None = "auto", advertise: str = "") -> NameManager:
        """`names`, made now: other processes reach this one at `listen` ("host:port").

        They are told `advertise` instead, if it is given. With `listen=None` they come through the
        node that this process is connected to.
        """
        return self._names.use(listen, advertise)

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Deliver what was sent, commit what was acknowledged, and let go.

        Raises the first thing that went wrong, after everything is closed. In a forked child it
        does nothing: the connection, and what was sent, are the parent's. It does not raise after
        an interrupt has ended the client: whoever was interrupted knows.
        """
        if self._engine.interrupted is not None and not self._closed:
            self._closed = True
            await self._stop()
        if self._closed or self._engine.refuses:
            return
        deadline = Deadline(check_timeout(timeout))
        self._closed = True
        errors: list[HocketError] = []
        try:
            opened: list[AsyncProducer[Any] | AsyncSubscription[Any] | AsyncTransaction] = [
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
        await self._names.close_async()  # asyncio
        # blocking: self._names.close()
        self._engine.stop(closed("the client"))
        await self._closing()

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
        to_index: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> int:
        """Publish dead letters that were not replayed yet to the topic again; returns how many.

        They are new messages, for every index of the topic, with the header `hocket-replayed`. With
        `to_index` nothing is published: the index that gave a message up delivers it once more, as
        if it were new, and no other index does. Raises OutOfRange for a message that the topic does
        not keep any more; those before it are delivered again.
        """
        seconds = check_timeout(timeout)
        return await dead_letters.replay(self, topic, index, limit, to_index, seconds)

    async def purge_dead_letters(
        self,
        topic: str,
        *,
        index: str | None = None,
        before: StartLike | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> int:
        """Delete dead letters for good: all, or those of an index, or that died before a time.

        Returns how many, replayed ones among them.
        """
        return await dead_letters.purge(self, topic, index, before, check_timeout(timeout))

    async def revive(
        self,
        topic: str,
        index: str,
        letters: Sequence[tuple[int, int]],
        *,
        partition: int,
        dead_partition: int,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int]:
        """Have a shared index deliver messages again: (offset, offset of its dead letter).

        `replay_dead_letters(to_index=True)` is made of this. Returns the offsets of those that are
        delivered again; those whose dead letters were used up before are not.
        """
        call = dead_letter_calls.revive(topic, index, partition, letters, dead_partition)
        return await self._engine.call(call, timeout)

    # --- messages --------------------------------------------------------------------------------

    @overload
    async def publish(
        self,
        topic: str,
        message: Buffer = ...,
        *,
        value: Buffer = ...,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Position: ...

    @overload
    async def publish(
        self,
        topic: str,
        message: P,
        *,
        value: type[P] | Coder[P] | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Position: ...

    async def publish(
        self,
        topic: str,
        message: Any = ABSENT,
        *,
        value: Any = ABSENT,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Position:
        """Store one message; returns where it stands once it is as durable as its topic demands.

        The message is bytes, or a value of the type that `value` names: see `hocket.values`.

        Publishes of many tasks share frames. A publish is tried again while `timeout` lasts, and
        stored once. For a stream of messages a `producer` is the better choice.

        With a `delay` ("5m", seconds or a timedelta), or with `deliver_at`, nobody sees the message
        before it is due; the topic must be made with `delayed=True`. The message gets its offset
        then, and the time at which it is due as its timestamp: here the offset is -1.
        """
        if value is not ABSENT:
            message = payload(topic, message, value)
        return await self._publisher.publish(
            topic,
            message,
            key,
            headers,
            partition,
            timestamp,
            check_timeout(timeout),
            delay=delay,
            deliver_at=deliver_at,
        )

    def producer(
        self,
        topic: str,
        *,
        value: type[P] | Coder[P] | None = None,
        linger: float = 0.002,
        batch_bytes: int | str = 1 << 20,
        window_bytes: int | str = 16 << 20,
        codec: str = "none",
        on_delivery: Callable[[Outcome], None] | None = None,
        send_timeout: float | None = None,
        delivery_timeout: float | None = 120,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Opening[AsyncProducer[P]]:
        """A stream of messages to a topic: bytes, or values of the type that `value` names.

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
        coder = coder_for(value)

        async def open_producer() -> AsyncProducer[P]:
            made = self._forget, self._engine, topic, options, on_delivery, seconds
            producer: AsyncProducer[P]
            if coder is None:
                producer = self._kinds.producer(*made)
            else:
                producer = self._kinds.typed(coder, *made)
            await producer._open(opening_timeout)
            self._producers[producer] = None
            return producer

        return Opening(open_producer, "client.producer(...)")

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
            self._kinds.staging,
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
        await decide(self._engine, commit, check_timeout(timeout), "commit", topic_of(named))

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
        named = check_participants(participants)
        producers = [each.producer_id for each in named]
        await drop(self._engine, name, producers, check_timeout(timeout), topic_of(named))

    def subscribe(
        self,
        topic: str | Iterable[str],
        *,
        value: type[V] | Coder[V] | None = None,
        index: str | None = None,
        mode: str = "own",
        start: StartLike = "earliest",
        partitions: Iterable[int] | None = None,
        positions: Mapping[int, int] | None = None,
        hold_retention: bool = False,
        credit_bytes: int | str | None = None,
        lease: Duration | None = None,
        max_deliveries: int | None = None,
        prefetch: int | None = None,
        failover: str = "safe",
        create: bool = True,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Opening[AsyncSubscription[V]]:
        """Read a topic from where `index` is, which the broker remembers.

        Messages have bytes, or values of the type that `value` names: see `hocket.values`.

        `topic` may be a list of names, and a name may have `*` for any run of characters: topics
        that match are read as well, also those that are made later, from their first message on.
        Each topic has an index of this name.

        `start` counts only where the index is new; with `create=False` an index that is not there
        is an UnknownIndex. Without an index the subscription begins at
        `start`, or at `positions` (partition -> offset), and you remember how far it has come. The
        broker sends at most `credit_bytes` ahead of what was handed out, all nodes of the topic
        together; by default 8 MiB, and of several nodes 8 MiB each, but no more than 32 MiB.

        With `mode="shared"` every message goes to one of the index's consumers, and belongs to that
        consumer for `lease` (seconds, or "30s"). A message that is not settled by then is delivered
        again, `max_deliveries` times at most, and then goes to the dead letters. None leaves either
        as the index has it: 30 s and 5, unless somebody set it. `mode="key_shared"` also keeps the
        order of each key. The subscription holds at most `prefetch` messages that are not settled,
        shared out evenly over the nodes of the topic, and one of each node at least; by default
        5,000 of each node.
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
            value=value,
        )
        opening_timeout = check_timeout(timeout)
        selected = selected_topics(topic, options)

        async def open_subscription() -> AsyncSubscription[V]:
            subscription: AsyncSubscription[V] = AsyncSubscription(
                self._forget, self._engine, selected, options
            )
            await subscription._open(opening_timeout)
            self._subscriptions[subscription] = None
            return subscription

        return Opening(open_subscription, "client.subscribe(...)")

    def _forget(
        self, ended: AsyncProducer[Any] | AsyncSubscription[Any] | AsyncTransaction
    ) -> None:
        if isinstance(ended, AsyncProducer):
            self._producers.pop(ended, None)
        elif isinstance(ended, AsyncTransaction):
            self._transactions.pop(ended, None)
        else:
            self._subscriptions.pop(ended, None)
