"""Redis Streams as a side: one server, a stream, a consumer group of its own for each index."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

from redis.asyncio import Redis

from benchmarks.fanout.side import ACK_SECONDS, Consumers, Crowd

ALWAYS = "Redis Streams, always"  # a server that syncs every write before it answers
READ_MAX = 1000  # messages that one answer has


class RedisStreams:
    def __init__(self, name: str = "Redis Streams") -> None:
        self.name = name

    async def make(self, address: str, topic: str, consumers: int) -> None:
        async with Redis.from_url(address) as server:
            for number in range(consumers):
                await server.xgroup_create(topic, f"index-{number}", id="0", mkstream=True)

    @asynccontextmanager
    async def publishing(
        self, address: str, topic: str
    ) -> AsyncIterator[Callable[[list[bytes]], Awaitable[None]]]:
        async with Redis.from_url(address) as server:

            async def publish(values: list[bytes]) -> None:
                pipeline = server.pipeline(transaction=False)
                for value in values:
                    pipeline.xadd(topic, {"v": value})
                await pipeline.execute()

            yield publish

    async def consume(self, address: str, topic: str, consumers: Consumers) -> None:
        async def read(number: int, server: Redis) -> None:
            group = f"index-{number}"
            to_ack: list[bytes] = []
            acked = monotonic()
            last = False
            while not last:
                asked = server.pipeline(transaction=False)
                if to_ack and monotonic() - acked > ACK_SECONDS:
                    asked.xack(topic, group, *to_ack)
                    acked = monotonic()
                    to_ack.clear()
                asked.xreadgroup(group, "one", {topic: ">"}, count=READ_MAX, block=1000)
                for _, messages in (await asked.execute())[-1]:
                    for name, fields in messages:
                        last = consumers.seen(fields[b"v"])
                        to_ack.append(name)
            await server.xack(topic, group, *to_ack)

        async with AsyncExitStack() as stack:  # who waits for a stream has a connection
            servers = [
                await stack.enter_async_context(Redis.from_url(address))
                for _ in range(consumers.count)
            ]
            consumers.ready()
            await asyncio.gather(*(read(number, each) for number, each in enumerate(servers)))
            await consumers.stay()

    async def crowd(self, address: str, topic: str, count: int) -> Crowd:
        host, _, port = address.partition("://")[2].partition(":")
        return Readers([socket.create_connection((host, int(port))) for _ in range(count)], topic)


class Readers(Crowd):
    """Each asks for what follows on the last message that it has, and asks again when that came."""

    def __init__(self, sockets: list[socket.socket], topic: str) -> None:
        super().__init__([[sock.fileno()] for sock in sockets])
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._came = dict.fromkeys(self._sockets, b"")
        self._topic = topic
        for sock in sockets:
            self._ask(sock, "$")
            sock.setblocking(False)

    def _take_from(self, descriptor: int) -> int:
        sock = self._sockets[descriptor]
        try:
            came = sock.recv(1 << 20)
        except BlockingIOError:
            return 0
        answer = self._came[descriptor] + came
        begun = _ANSWER.match(answer)
        names = _NAME.findall(answer)
        if begun and len(names) == int(begun[1]) and answer.endswith(b"\r\n"):
            answer = b""
            self._ask(sock, names[-1].decode())
        self._came[descriptor] = answer
        return len(came)

    def _ask(self, sock: socket.socket, last: str) -> None:
        words = ["XREAD", "COUNT", "1000", "BLOCK", "0", "STREAMS", self._topic, last]
        told = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        sock.sendall(f"*{len(words)}\r\n{told}".encode())


_ANSWER = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n")  # how many messages it has
_NAME = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n")
