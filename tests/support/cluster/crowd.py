"""A crowd of consumers of one topic, in this process: who got what, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic

import hocket
import hocket.aio


@dataclass
class Consumer:
    name: str
    has_index: bool
    offsets: dict[int, list[int]] = field(default_factory=dict)  # by partition, as they came
    last_at: float = 0.0
    longest_pause: float = 0.0  # since `mark`
    error: BaseException | None = None

    def took(self, partition: int, offset: int) -> None:
        now = monotonic()
        self.offsets.setdefault(partition, []).append(offset)
        if self.last_at:
            self.longest_pause = max(self.longest_pause, now - self.last_at)
        self.last_at = now

    def count(self) -> int:
        return sum(map(len, self.offsets.values()))


class Crowd:
    """`count` consumers, `per_client` on each client; every second one has an index."""

    def __init__(self, urls: list[str], topic: str, count: int, *, per_client: int = 1) -> None:
        self.consumers = [Consumer(f"c{number}", number % 2 == 0) for number in range(count)]
        self._urls = urls
        self._topic = topic
        self._per_client = per_client
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._all())
        self._loop.close()

    async def _all(self) -> None:
        groups = [
            self.consumers[at : at + self._per_client]
            for at in range(0, len(self.consumers), self._per_client)
        ]
        await asyncio.gather(*(self._client(n, group) for n, group in enumerate(groups)))

    async def _client(self, number: int, group: list[Consumer]) -> None:
        url = self._urls[number % len(self._urls)]
        async with hocket.aio.connect(url) as client:
            reading = [asyncio.ensure_future(self._read(client, each)) for each in group]
            await self._ending.wait()
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, client: hocket.AsyncClient, consumer: Consumer) -> None:
        try:
            index = consumer.name if consumer.has_index else None
            async with client.subscribe(self._topic, index=index, timeout=60) as reader:
                async for message in reader:
                    consumer.took(message.partition, message.offset)
                    if consumer.has_index:
                        await message.ack()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            consumer.error = error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    # --- what they got ---------------------------------------------------------------------------

    def mark(self) -> None:
        """From now on pauses are measured anew."""
        now = monotonic()
        for each in self.consumers:
            each.longest_pause, each.last_at = 0.0, now

    def have_all(self, ends: dict[int, int]) -> bool:
        return all(
            len(each.offsets.get(partition, ())) >= end
            for each in self.consumers
            for partition, end in ends.items()
        )

    def check(self, ends: dict[int, int]) -> None:
        """Every consumer got every offset once, in order."""
        for each in self.consumers:
            assert each.error is None, (each.name, each.error)
            for partition, end in ends.items():
                got = each.offsets.get(partition, [])
                assert got == list(range(end)), (each.name, partition, end, got[-5:], len(got))
