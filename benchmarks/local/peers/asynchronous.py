"""The shape that culsans and janus share: a thread puts, a coroutine on this thread gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks.workers import PATIENCE_SECONDS, Worker


async def one_way(
    count: int,
    message: object,
    put: Callable[[object], object],
    get: Callable[[], Awaitable[object]],
) -> float:
    """Seconds for `count` messages from a thread to the running event loop."""

    def send() -> None:
        for _ in range(count):
            put(message)

    sender = Worker(send)
    start = perf_counter()
    sender.start()
    received = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while received < count:
            await get()
            received += 1
    seconds = perf_counter() - start
    sender.finish()
    return seconds
