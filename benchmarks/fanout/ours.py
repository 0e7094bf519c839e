"""Hocket as a side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import hocket.aio
from benchmarks.fanout.side import Consumers, Crowd
from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.model import Durability

OPENED_AT_ONCE = 50
MEMORY = "hocket, memory"  # a topic of that durability: nobody waits for the disk


class Hocket:
    def __init__(self, name: str = "hocket", durability: Durability = "quorum") -> None:
        self.name = name
        self._durability: Durability = durability

    async def make(self, address: str, topic: str, consumers: int) -> None:
        async with await hocket.aio.connect(address) as client:
            await client.create_topic(topic, durability=self._durability)

    @asynccontextmanager
    async def publishing(
        self, address: str, topic: str
    ) -> AsyncIterator[Callable[[list[bytes]], Awaitable[None]]]:
        async with (
            await hocket.aio.connect(address) as client,
            await client.producer(topic, linger=0) as producer,
        ):

            async def publish(values: list[bytes]) -> None:
                for value in values:
                    await producer.send(value)

            yield publish

    async def consume(self, address: str, topic: str, consumers: Consumers) -> None:
        async with AsyncExitStack() as clients:
            client = None
            opened = []
            for number in range(consumers.count):
                if client is None or consumers.apart:
                    client = await clients.enter_async_context(await hocket.aio.connect(address))
                opened.append(await client.subscribe(topic, index=f"index-{number}"))
            consumers.ready()

            async def read(messages: AsyncSubscription[bytes]) -> None:
                async for message in messages:
                    last = consumers.seen(message.value)
                    await message.ack()
                    if last:
                        return

            await asyncio.gather(*map(read, opened))
            await consumers.stay()

    async def crowd(self, address: str, topic: str, count: int) -> Crowd:
        clients: list[AsyncClient] = []
        gate = asyncio.Semaphore(OPENED_AT_ONCE)

        async def come() -> None:
            async with gate:
                client = await hocket.aio.connect(address)
                clients.append(client)
                await client.subscribe(topic, start="latest")

        await asyncio.gather(*(come() for _ in range(count)))
        return Deaf(clients)


def links_of(client: AsyncClient) -> list[Any]:
    return list(client._engine.links)


class Deaf(Crowd):
    """Clients that have opened their subscriptions as all clients do, and then read no frame."""

    def __init__(self, clients: list[AsyncClient]) -> None:
        super().__init__([[] for _ in clients])
        self._clients = clients
        self._links: list[Any] = []

    def begin(self) -> None:
        self._descriptors = []
        for client in self._clients:
            links = links_of(client)
            self._links += links
            for link in links:
                link._transport.pause_reading()
            sockets = [link._transport.get_extra_info("socket") for link in links]
            self._descriptors.append([each.fileno() for each in sockets])

    def take(self) -> None:
        super().take()
        for link in self._links:
            link._heard += 1  # the client does not know what has come, and must not hang up
