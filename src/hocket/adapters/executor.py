"""Slow jobs on threads: one thread per lane, started when the lane is first used.

A finished job is put on a list, and the owner's thread is asked, through the `post` given, to
empty it. `drain` empties the same list while it waits, so that closing down needs no event loop;
whatever was posted for it then finds nothing left to do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Post = Callable[[Callable[[], None]], None]
_Work = tuple[Callable[[], Any], Callable[[Any], None]]


class ThreadExecutor:
    """The real `ports.Executor`. `post(callable)` must run it on the owner's thread, soon."""

    def __init__(self, post: Post, *, name: str = "hocket") -> None:
        self._post = post
        self._name = name
        self._lanes: dict[str, SimpleQueue[_Work | None]] = {}
        self._threads: list[threading.Thread] = []
        self._finished: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._one_finished = threading.Semaphore(0)  # for `drain` alone
        self._pending = 0  # submitted, `done` not yet called; touched by the owner's thread only

    def submit(
        self, lane: str, job: Callable[[], T], done: Callable[[T | BaseException], None]
    ) -> None:
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._start(lane)
        self._pending += 1
        queue.put((job, done))

    def drain(self) -> None:
        while self._pending:
            self._one_finished.acquire()
            self._deliver()

    def close(self) -> None:
        """End the threads, after the jobs they have; what these report is no longer delivered."""
        for queue in self._lanes.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self._lanes.clear()
        self._threads.clear()

    def _start(self, lane: str) -> SimpleQueue[_Work | None]:
        queue: SimpleQueue[_Work | None] = SimpleQueue()
        # A daemon: an owner that forgot to close must not keep its process from ending.
        thread = threading.Thread(
            target=self._run, args=(queue,), name=f"{self._name}: {lane}", daemon=True
        )
        self._lanes[lane] = queue
        self._threads.append(thread)
        thread.start()
        return queue

    def _run(self, queue: SimpleQueue[_Work | None]) -> None:
        while (work := queue.get()) is not None:
            job, done = work
            result: Any
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  # the owner gets it, whatever it is
                result = error
            self._finished.append((done, result))
            del work, job, done, result  # what they hold must not live until the next job
            self._one_finished.release()
            self._post(self._deliver)

    def _deliver(self) -> None:
        while self._finished:
            done, result = self._finished.popleft()
            self._one_finished.acquire(blocking=False)
            self._pending -= 1
            done(result)
