"""janus: a queue with a face for threads and one for asyncio; bounded like ours."""

from __future__ import annotations

import asyncio

from janus import Queue

from benchmarks.local.peers import asynchronous

MESSAGES_MAX = 1024


async def exchange(count: int, message: object) -> float:
    queue: Queue[object] = Queue(MESSAGES_MAX)  # wants a running loop
    try:
        return await asynchronous.one_way(count, message, queue.sync_q.put, queue.async_q.get)
    finally:
        await queue.aclose()


def one_way_to_asyncio(count: int, message: object) -> float:
    """Seconds for `count` messages from a thread to a coroutine."""
    return asyncio.run(exchange(count, message))
