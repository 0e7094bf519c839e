"""A client of the broker for each login: the client that asyncio users have, with its own link.

So windows, retries, batching, handles and permissions are the code that everybody uses. This module
adds only what RPC clients can ask for and others cannot: batches that are encoded already, and
several records in one publish.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.client.connection.embedded import EmbeddedConnector
from hocket.client.engines import timeouts
from hocket.client.engines.aio import AioEngine
from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.aio.producer import AsyncProducer, AsyncPublisher, wait_until_open
from hocket.client_core.calls import topics as topic_calls
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp, restamped
from hocket.client_core.timeout import DEFAULT_TIMEOUT
from hocket.core.session.session import Caller
from hocket.deadline import Deadline
from hocket.errors import HocketError, OutOfRange
from hocket.model import Position, TopicConfig, check_name
from hocket.node.broker import Broker
from hocket.rpc.batches import Encoded, Records

Choose = Callable[[ProducerCore], Gathering | None]


class Login(AsyncClient):
    """One login. It ends when the last capability that belongs to it is dropped."""

    def __init__(self, broker: Broker, caller: Caller, *, token: str, name: str) -> None:
        super().__init__(EmbeddedConnector(broker, caller), token=token, name=name)
        self._batch_publisher = BatchPublisher(self._engine)
        self._holders = 0

    async def open(self) -> None:
        await self._open(DEFAULT_TIMEOUT)

    def abandon(self, error: HocketError) -> None:
        """End the login without closing what it has open: there is no time left for that."""
        self._closed = True
        self._engine.stop(error)

    # --- capabilities ----------------------------------------------------------------------------

    def hold(self) -> None:
        self._holders += 1

    def let_go(self) -> bool:
        """One capability is dropped. Returns whether it was the last."""
        self._holders -= 1
        return not self._holders

    # --- what RPC clients ask for ----------------------------------------------------------------

    async def create_configured(self, name: str, config: TopicConfig, exist_ok: bool) -> None:
        call = topic_calls.create_topic(name, config, exist_ok=exist_ok)
        await self._engine.call(call, DEFAULT_TIMEOUT)

    async def publish_batch(self, topic: str, batch: Records | Encoded) -> Position:
        if isinstance(batch, Encoded):
            if len(batch.entries) != 1:
                raise OutOfRange(f"a publish takes one encoded batch, not {len(batch.entries)}")
            info = batch.entries[0]
            return await self._batch_publisher.publish_entry(
                topic,
                lambda core: batch.gathering(core, info),
                partial(restamped, batch.entry(info)),
                info.header.count,
            )
        if not batch.records:
            raise OutOfRange("a publish takes one record at least; this one has none")
        if len(batch.records) > 1:
            now = self._engine.clock.now_us()
            return await self._batch_publisher.publish_entry(
                topic, batch.gathering, partial(batch.encoded, now), len(batch.records)
            )
        value, key, headers, timestamp, _ = batch.records[0]
        return await self.publish(
            topic, value, key=key, headers=headers, partition=batch.partition, timestamp=timestamp
        )

    async def open_producer(self, topic: str, options: ProducerOptions) -> PushProducer:
        producer = PushProducer(self._forget, self._engine, check_name(topic), options)
        await producer._open(DEFAULT_TIMEOUT)
        self._producers[producer] = None
        return producer


class BatchPublisher(AsyncPublisher):
    async def publish_entry(
        self,
        topic: str,
        choose: Choose,
        encode_entry: Callable[[Stamp], bytes],
        count: int,
    ) -> Position:
        """Publish records in a batch of their own; returns the position of the first record."""
        deadline = Deadline(DEFAULT_TIMEOUT)
        engine = self._engine
        publication = self._publications.new(engine.clock.ticks_us(), DEFAULT_TIMEOUT)
        core = engine.do(partial(self._publications.core, check_name(topic)))
        await wait_until_open(engine, core, "topic", deadline.remaining())
        engine.do(lambda: core.offer_entry(choose(core), encode_entry, count, publication))
        outcome = await self._engine.wait_for_reply(
            publication,
            deadline.remaining(),
            lambda: timeouts.unpublished(core, False, DEFAULT_TIMEOUT),
        )
        if isinstance(outcome, HocketError):
            raise outcome
        return outcome


class PushProducer(AsyncProducer):
    """A producer that takes whole batches, and knows the offsets of its last records."""

    def __init__(
        self,
        forget: Callable[[AsyncProducer], None],
        engine: AioEngine,
        topic: str,
        options: ProducerOptions,
    ) -> None:
        self.ends: dict[int, int] = {}  # by partition, the offset behind the last record
        super().__init__(forget, engine, topic, options, on_delivery=None, send_timeout=None)
        self._core = ProducerCore(engine.session, topic, options, self._settle)

    async def push(self, batch: Records | Encoded) -> None:
        """Return when the producer's window has taken all records."""
        core = self._core
        for portion in batch.portions(core):
            start = 0
            while start < portion.count:
                start = await self._when_taken(core, partial(portion.offer, core, start), None)

    def _settle(self, _batch: Outgoing, outcome: Outcome) -> None:
        if isinstance(outcome, Positions):
            self.ends[outcome.partition] = max(self.ends.get(outcome.partition, 0), outcome.end)
