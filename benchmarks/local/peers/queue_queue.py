"""`queue.Queue(1024)`: the queue Python users have, with the same bound as ours."""

from __future__ import annotations

from queue import Queue
from time import perf_counter

from benchmarks.workers import Worker, time_one_way

MESSAGES_MAX = 1024


def one_way(count: int, message: object) -> float:
    """Seconds for `count` messages from a thread to this one."""
    queue: Queue[object] = Queue(MESSAGES_MAX)

    def send() -> None:
        put = queue.put
        for _ in range(count):
            put(message)

    def receive() -> None:
        get, received = queue.get, 0
        while received < count:
            get()
            received += 1

    return time_one_way(send, receive)


def round_trips(count: int, message: object) -> list[float]:
    """Seconds of each of `count` round trips through two queues and an echo thread."""
    there: Queue[object] = Queue(MESSAGES_MAX)
    back: Queue[object] = Queue(MESSAGES_MAX)

    def echo() -> None:
        get, put = there.get, back.put
        for _ in range(count):
            put(get())

    latencies = []
    with Worker(echo):
        put, get = there.put, back.get
        for _ in range(count):
            start = perf_counter()
            put(message)
            get()
            latencies.append(perf_counter() - start)
    return latencies
