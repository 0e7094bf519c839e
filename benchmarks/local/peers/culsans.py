"""culsans: a queue with a face for threads and one for coroutines; bounded like ours."""

from __future__ import annotations

import asyncio

from culsans import Queue

from benchmarks.local.peers import asynchronous
from benchmarks.workers import time_one_way

MESSAGES_MAX = 1024


def one_way(count: int, message: object) -> float:
    """Seconds for `count` messages from a thread to this one."""
    queue: Queue[object] = Queue(MESSAGES_MAX)

    def send() -> None:
        put = queue.sync_put
        for _ in range(count):
            put(message)

    def receive() -> None:
        get, received = queue.sync_get, 0
        while received < count:
            get()
            received += 1

    return time_one_way(send, receive)


def one_way_to_asyncio(count: int, message: object) -> float:
    """Seconds for `count` messages from a thread to a coroutine."""
    queue: Queue[object] = Queue(MESSAGES_MAX)
    return asyncio.run(asynchronous.one_way(count, message, queue.sync_put, queue.async_get))
