"""Some of the consumers of a crowd, a process of its own: who got what, and when.

    python -m tests.support.cluster.crowd_process URL TOPIC NAME FIRST COUNT PER_CLIENT

The consumers are called NAME and a number, from FIRST on; every second one has an index, and there
are PER_CLIENT on each client. A line on stdin is a question, and a line of JSON the answer: `look`
tells of each consumer what it has, `mark` begins to measure pauses anew, `end` ends all of them,
and tells what each of them got.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns
from typing import Any

import hocket
import hocket.aio

PATIENCE = 120.0  # of a call, while nodes die and a thousand others ask


@dataclass(slots=True)
class Consumer:
    name: str
    has_index: bool
    got: list[tuple[int, int, int, str]] = field(default_factory=list)  # at, partition, offset, ...
    last_at: float = 0.0
    longest_pause: float = 0.0  # since `mark`, between two messages
    error: str = ""

    def took(self, message: Any) -> None:
        now = monotonic()
        value = message.value.decode()
        self.got.append((monotonic_ns(), message.partition, message.offset, value))
        if self.last_at:
            self.longest_pause = max(self.longest_pause, now - self.last_at)
        self.last_at = now

    def mark(self) -> None:
        self.longest_pause, self.last_at = 0.0, monotonic()


class Consumers:
    def __init__(self, url: str, topic: str, consumers: list[Consumer], per_client: int) -> None:
        self._url, self._topic, self._per_client = url, topic, per_client
        self._consumers = consumers
        self._ending = asyncio.Event()

    async def run(self) -> None:
        groups = [
            self._consumers[at : at + self._per_client]
            for at in range(0, len(self._consumers), self._per_client)
        ]
        reading = asyncio.gather(*map(self._client, groups))
        while not self._ending.is_set():
            question = (await asyncio.to_thread(sys.stdin.readline)).strip()
            if question == "look":
                say([[each.name, len(each.got), each.longest_pause, each.error]
                     for each in self._consumers])  # fmt: skip
            elif question == "mark":
                for each in self._consumers:
                    each.mark()
                say([])
            else:
                self._ending.set()
        await reading
        say([[each.name, each.has_index, each.got] for each in self._consumers])

    async def _client(self, group: list[Consumer]) -> None:
        async with hocket.aio.connect(self._url, timeout=PATIENCE) as client:
            reading = [asyncio.ensure_future(self._read(client, each)) for each in group]
            await self._ending.wait()
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, client: hocket.AsyncClient, consumer: Consumer) -> None:
        try:
            index = consumer.name if consumer.has_index else None
            async with client.subscribe(self._topic, index=index, timeout=PATIENCE) as reader:
                async for message in reader:
                    consumer.took(message)
                    if consumer.has_index:
                        await message.ack()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            consumer.error = f"{type(error).__name__}: {error}"


def say(answer: list[Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(url: str, topic: str, name: str, *numbers: str) -> None:
    first, count, per_client = map(int, numbers)
    consumers = [Consumer(f"{name}{each}", each % 2 == 0) for each in range(first, first + count)]
    asyncio.run(Consumers(url, topic, consumers, per_client).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
