"""NATS JetStream as a side: one server, streams in files, a durable push consumer an index."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from benchmarks.fanout.side import ACK_SECONDS, Consumers, Crowd

ACKS_PENDING_MAX = 65_536


class Nats:
    name = "NATS JetStream"

    async def make(self, address: str, topic: str, consumers: int) -> None:
        connection = await nats.connect(address)
        stream = StreamConfig(name=topic, subjects=[topic], storage=StorageType.FILE)
        await connection.jetstream().add_stream(stream)
        await connection.close()

    @asynccontextmanager
    async def publishing(
        self, address: str, topic: str
    ) -> AsyncIterator[Callable[[list[bytes]], Awaitable[None]]]:
        connection = await nats.connect(address)
        stream = connection.jetstream(publish_async_max_pending=ACKS_PENDING_MAX)

        async def publish(values: list[bytes]) -> None:
            for value in values:
                await stream.publish_async(topic, value)

        yield publish
        await stream.publish_async_completed()
        await connection.close()

    async def consume(self, address: str, topic: str, consumers: Consumers) -> None:
        # As with ours, an acknowledgement stands for all messages before it.
        config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=ACKS_PENDING_MAX)
        connections = []
        ends = []
        for number in range(consumers.count):
            if not connections or consumers.apart:
                connections.append(await nats.connect(address))
            end = asyncio.get_running_loop().create_future()
            ends.append(end)
            take = taking(consumers, end)
            await connections[-1].jetstream().subscribe(
                topic, durable=f"index-{number}", cb=take, manual_ack=True, config=config,
                pending_msgs_limit=-1, pending_bytes_limit=-1,
            )  # fmt: skip
        consumers.ready()
        await asyncio.gather(*ends)
        await consumers.stay()
        for connection in connections:
            await connection.close()

    async def crowd(self, address: str, topic: str, count: int) -> Crowd:
        connection = await nats.connect(address)
        host, _, port = address.partition("://")[2].partition(":")
        sockets = []
        for number in range(count):
            sock = socket.create_connection((host, int(port)))
            subject = f"crowd.{topic}.{number}"
            sock.sendall(b'CONNECT {"verbose":false}\r\nSUB %s 1\r\nPING\r\n' % subject.encode())
            while not sock.recv(4096).endswith(
                b"PONG\r\n"
            ):  # behind what the server says of itself
                pass
            sock.setblocking(False)
            sockets.append(sock)
            config = ConsumerConfig(
                deliver_subject=subject, ack_policy=AckPolicy.NONE,
                deliver_policy=DeliverPolicy.NEW,
            )  # fmt: skip
            await connection.jetstream().add_consumer(topic, config)
        return Crowd([[sock.detach()] for sock in sockets])


def taking(consumers: Consumers, end: asyncio.Future[None]) -> Callable[[Any], Awaitable[None]]:
    acked = monotonic()

    async def take(message: Any) -> None:
        nonlocal acked
        last = consumers.seen(message.data)
        now = monotonic()
        if last or now - acked > ACK_SECONDS:
            acked = now
            await message.ack()
        if last:
            end.set_result(None)

    return take
