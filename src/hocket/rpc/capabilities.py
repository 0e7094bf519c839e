"""The capabilities that RPC clients hold: one class for each interface of `schema/rpc.capnp`.

pycapnp calls their methods. A capability lives for as long as the other end holds it; when it is
dropped, what it stands for is closed. Nothing in this package keeps a reference to a capability,
so that it is dropped at once.

Rule 1: a method reads its arguments before its first `await` and writes its results after its last.
In between the call may be given up, and the memory of arguments and results with it.
Rule 2: every error that a method raises becomes a Failure with a code.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

import capnp  # type: ignore[import-untyped]

from hocket.client_core.calls.options import producer_options
from hocket.client_core.sharing.verdict import ACK
from hocket.errors import HocketError, OutOfRange, ProtocolError
from hocket.model import (
    Failover,
    Mode,
    Settlement,
    Start,
    TopicConfig,
    TopicDescription,
    check_name,
)
from hocket.rpc.batches import read_batch
from hocket.rpc.connection import Connection
from hocket.rpc.delivery import Delivery
from hocket.rpc.endpoint_state import EndpointState
from hocket.rpc.failure import failure, forget_trace, reason_of
from hocket.rpc.login import Login, PushProducer
from hocket.rpc.schema import rpc_capnp
from hocket.rpc.settling import verdict_of
from hocket.wire.frame_codec import struct_codec

log = logging.getLogger("hocket.rpc")

WINDOW_BYTES_MAX = 64 << 20
MODES: tuple[Mode, ...] = ("own", "shared", "key_shared")  # as numbered in hocket.capnp
FAILOVERS: tuple[Failover, ...] = ("safe", "fast")
SETTLEMENTS: tuple[Settlement, ...] = ("ack", "nack", "extend", "reject", "release")

read_config = struct_codec(TopicConfig)[1]
read_start = struct_codec(Start)[1]
write_description = struct_codec(TopicDescription)[0]

F = TypeVar("F", bound="Capability | BrokerCapability")
T = TypeVar("T")


class Capability:
    """What every capability has: the connection it was made on, and the login it belongs to."""

    def __init__(self, state: EndpointState, connection: Connection, login: Login) -> None:
        self.state = state
        self.connection = connection
        self.login = login
        login.hold()

    def __del__(self) -> None:
        self.state.let_go(self.login)


def answering(
    method: Callable[[F, Any], Awaitable[None]],
) -> Callable[[F, Any], Coroutine[Any, Any, None]]:
    @wraps(method)
    async def answer(capability: F, context: Any) -> None:
        with capability.connection.call():
            try:
                await method(capability, context)
            except HocketError as error:
                forget_trace(error)
                raise failure(error) from None
            except (capnp.KjException, UnicodeDecodeError) as error:
                forget_trace(error)
                wrong = ProtocolError(f"the call's arguments cannot be read: {reason_of(error)}")
                raise failure(wrong) from None
            except Exception as error:
                log.exception("a call failed unexpectedly")
                forget_trace(error)
                raise failure(HocketError("the broker has failed; its log says how")) from None

    return answer


class BrokerCapability(rpc_capnp.Broker.Server):  # type: ignore[misc]
    """The capability that every connection begins with."""

    def __init__(self, state: EndpointState, connection: Connection) -> None:
        self.state = state
        self.connection = connection

    @answering
    async def login_context(self, context: Any) -> None:
        params = context.params
        token, client = params.token, params.client
        context.release_params()
        login = await self.state.log_in(self.connection, token, client)
        context.results.session = SessionCapability(self.state, self.connection, login)


class SessionCapability(Capability, rpc_capnp.Session.Server):  # type: ignore[misc]
    @answering
    async def topic_context(self, context: Any) -> None:
        context.results.topic = self._topic(check_name(context.params.topic))

    @answering
    async def createTopic_context(self, context: Any) -> None:  # noqa: N802
        params = context.params
        name, config = params.topic, read_config(params.config)
        await self.login.create_configured(name, config, params.existOk)
        context.results.topic = self._topic(name)

    @answering
    async def deleteTopic_context(self, context: Any) -> None:  # noqa: N802
        params = context.params
        await self.login.delete_topic(params.topic, missing_ok=params.missingOk)

    @answering
    async def topics_context(self, context: Any) -> None:
        names = await self.login.topics()
        context.results.names = names

    def _topic(self, name: str) -> TopicCapability:
        return TopicCapability(self.state, self.connection, self.login, name)


class TopicCapability(Capability, rpc_capnp.Topic.Server):  # type: ignore[misc]
    def __init__(
        self, state: EndpointState, connection: Connection, login: Login, name: str
    ) -> None:
        super().__init__(state, connection, login)
        self._name = name

    @answering
    async def publish_context(self, context: Any) -> None:
        batch = read_batch(context.params.batch)
        context.release_params()
        with self.connection.carrying(batch.size):
            position = await self.login.publish_batch(self._name, batch)
        results = context.results
        results.partition = position.partition
        results.offset = position.offset

    @answering
    async def producer_context(self, context: Any) -> None:
        options = context.params.options
        chosen = producer_options(
            linger=options.lingerUs / 1e6,
            batch_bytes=options.batchBytes,
            window_bytes=_window(options.windowBytes),
            codec=options.codec,
            delivery_timeout=120,
        )
        producer = await self.login.open_producer(self._name, chosen)
        context.results.producer = ProducerCapability(
            self.state, self.connection, self.login, producer
        )

    @answering
    async def subscribe_context(self, context: Any) -> None:
        params = context.params
        options, sink = params.options, params.sink
        encoded = _member(options.form, ("records", "encoded")) == "encoded"
        window_bytes = _window(options.windowBytes)
        start = read_start(options.start)
        subscription = await self.login.subscribe(
            self._name,
            index=options.index or None,
            mode=_member(options.mode, MODES),
            start=start,
            partitions=list(options.partitions) or None,
            positions={each.partition: each.offset for each in options.positions} or None,
            hold_retention=options.holdRetention,
            credit_bytes=window_bytes,
            lease=options.leaseUs / 1e6 or None,
            max_deliveries=options.maxDeliveries or None,
            prefetch=options.prefetch,
            failover=_member(options.failover, FAILOVERS),
        )
        delivery = Delivery(
            subscription,
            sink,
            self.state.background,
            encoded=encoded,
            window_bytes=window_bytes,
        )
        self.state.deliveries[delivery] = None
        context.results.subscription = SubscriptionCapability(
            self.state, self.connection, self.login, delivery
        )

    @answering
    async def describe_context(self, context: Any) -> None:
        description = await self.login.describe(self._name)
        write_description(context.results, "description", description)


class ProducerCapability(Capability, rpc_capnp.Producer.Server):  # type: ignore[misc]
    def __init__(
        self, state: EndpointState, connection: Connection, login: Login, producer: PushProducer
    ) -> None:
        super().__init__(state, connection, login)
        self._producer = producer

    def __del__(self) -> None:
        self.state.background.do(self._producer.close)
        super().__del__()

    @answering
    async def push_context(self, context: Any) -> None:
        batch = read_batch(context.params.batch)
        context.release_params()
        with self.connection.carrying(batch.size, stream=True):
            await self._producer.push(batch)

    @answering
    async def flush_context(self, context: Any) -> None:
        await self._producer.flush()
        ends = sorted(self._producer.ends.items())
        written = context.results.init("ends", len(ends))
        for at, (partition, offset) in enumerate(ends):
            written[at].partition = partition
            written[at].offset = offset


class SubscriptionCapability(Capability, rpc_capnp.Subscription.Server):  # type: ignore[misc]
    def __init__(
        self, state: EndpointState, connection: Connection, login: Login, delivery: Delivery
    ) -> None:
        super().__init__(state, connection, login)
        self._delivery = delivery

    def __del__(self) -> None:
        self.state.background.do(self._delivery.close)
        self.state.deliveries.pop(self._delivery, None)
        super().__del__()

    @answering
    async def ack_context(self, context: Any) -> None:
        params = context.params
        self._delivery.settle(ACK, params.partition, params.start, params.end)

    @answering
    async def settle_context(self, context: Any) -> None:
        said = [
            (
                verdict_of(_member(each.action, SETTLEMENTS), each.durationUs, each.reason),
                each.partition,
                each.start,
                each.end,
            )
            for each in context.params.settlements
        ]
        for each in said:
            self._delivery.settle(*each)

    @answering
    async def commit_context(self, _context: Any) -> None:
        await self._delivery.commit()

    @answering
    async def close_context(self, _context: Any) -> None:
        await self._delivery.close()


def _window(size: int) -> int:
    if not 1 <= size <= WINDOW_BYTES_MAX:
        raise OutOfRange(f"windowBytes must lie between 1 and {WINDOW_BYTES_MAX}, not {size}")
    return size


def _member(enum: Any, names: tuple[T, ...]) -> T:
    number: int = enum.raw
    if number >= len(names):
        raise OutOfRange(f"{number} is none of {', '.join(map(str, names))}")
    return names[number]
