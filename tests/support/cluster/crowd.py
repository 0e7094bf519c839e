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

    def __init__(
        self, url: str, topic: str, count: int, *, per_client: int = 1, name: str = "c"
    ) -> None:
        self.consumers = [Consumer(f"{name}{number}", number % 2 == 0) for number in range(count)]
        self._url = url
        self._topic = topic
        self._per_client = per_client
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._all())
        self._loop.close()

    async def _all(self) -> None:
        groups = [
            self.consumers[at : at + self._per_client]
            for at in range(0, len(self.consumers), self._per_client)
        ]
        await asyncio.gather(*map(self._client, groups))

    async def _client(self, group: list[Consumer]) -> None:
        async with hocket.aio.connect(self._url) as client:
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
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(60)
        assert not self._thread.is_alive()

    # --- what they got ---------------------------------------------------------------------------

    def mark(self) -> None:
        """From now on pauses are measured anew."""
        now = monotonic()
        for each in self.consumers:
            each.longest_pause, each.last_at = 0.0, now

    def state(self) -> list[tuple[str, int, BaseException | None]]:
        return [(each.name, each.count(), each.error) for each in self.consumers]

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
