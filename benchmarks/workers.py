"""Threads of a benchmark: always joined within a time, and their failure reaches their owner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

PATIENCE_SECONDS = 60.0  # far beyond any round; whoever needs longer hangs


class Worker(threading.Thread):
    """A thread for a `with` block. A daemon, so that one that hangs cannot keep the run alive."""

    def __init__(self, target: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work = target
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.join(PATIENCE_SECONDS)  # the failure of the block itself is the news

    def finish(self) -> None:
        """Join; raise what the thread raised."""
        self.join(PATIENCE_SECONDS)
        if self.is_alive():
            raise TimeoutError(f"a benchmark thread still runs after {PATIENCE_SECONDS} s")
        if self.failure is not None:
            raise self.failure


def time_one_way(produce: Callable[[], object], consume: Callable[[], object]) -> float:
    """Seconds until `consume`, on this thread, is done with what `produce` makes on another."""
    start = perf_counter()
    with Worker(produce):
        consume()
        return perf_counter() - start  # before the join, which is not part of the work


def wait_for(event: threading.Event) -> None:
    if not event.wait(PATIENCE_SECONDS):
        raise TimeoutError(f"the other side is not done after {PATIENCE_SECONDS} s")


class Countdown:
    """The consumer's work where it is called and does not loop: count, and tell when all came."""

    __slots__ = ("count", "done", "expected")

    def __init__(self, expected: int, done: Callable[[], object]) -> None:
        self.count = 0
        self.expected = expected
        self.done = done

    def tick(self) -> None:
        self.count += 1
        if self.count == self.expected:
            self.done()
