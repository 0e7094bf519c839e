"""Slow jobs on threads: one thread per worker, started when the worker is first used.

A `brief` job is done at once, on the owner's thread, while such jobs take less than a millisecond
on average: handing a quick job over would cost more than the job.

A finished job is put on a list, and the owner's thread is asked, through the `post` that was given,
to empty the list. `drain` empties the same list while it waits, so that closing down needs no event
loop; what was posted before then finds an empty list.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

Post = Callable[[Callable[[], None]], None]
_Work = tuple[Callable[[], Any], Callable[[Any], None], bool]

# Carrying a job to its thread and back costs some 100 us, and more when the GIL is wanted. A job
# that takes a few times that is better done at once; one that takes longer would keep the owner
# from everything else. How long a synced write takes is up to the disk, so it is measured.
BRIEF_SECONDS_MAX = 0.001
OWNER = ""  # stands for the worker of a job that the owner's own thread has run


class ThreadExecutor:
    """The real `ports.Executor`. `post(callable)` must run it on the owner's thread, soon."""

    def __init__(self, post: Post, *, name: str = "hocket") -> None:
        self._post = post
        self._name = name
        self._workers: dict[str, SimpleQueue[_Work | None]] = {}
        self._threads: list[threading.Thread] = []
        self._finished: deque[tuple[str, Callable[[Any], None], Any]] = deque()
        # How many jobs each worker has that are not reported; touched by the owner's thread only.
        self._under_way: dict[str, int] = {}
        self._brief_seconds = 0.0
        self._one_finished = threading.Semaphore(0)  # for `drain` alone
        self._pending = 0  # submitted, `done` not yet called; touched by the owner's thread only

    def submit(
        self,
        worker: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        brief: bool = False,
    ) -> None:
        self._pending += 1
        if brief and self._brief_seconds < BRIEF_SECONDS_MAX and not self._under_way.get(worker):
            started = perf_counter()
            self._finish(OWNER, done, _outcome(job))
            self._took(perf_counter() - started)
            return
        queue = self._workers.get(worker)
        if queue is None:
            try:
                queue = self._start(worker)
            except RuntimeError:  # no thread can be started: since Python 3.12, at the very end
                self._finish(OWNER, done, _outcome(job))
                return
        self._under_way[worker] = self._under_way.get(worker, 0) + 1
        queue.put((job, done, brief))

    def beside(self, name: str) -> ThreadExecutor:
        """Another one, with threads of its own, that reports to the same owner's thread."""
        return ThreadExecutor(self._post, name=name)

    def drain(self) -> None:
        while self._pending:
            self._one_finished.acquire()
            self._deliver()

    def close(self) -> None:
        """End the threads after the jobs that they have. Their results are not delivered."""
        for queue in self._workers.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()
        self._workers.clear()
        self._threads.clear()

    def abandon(self) -> None:
        """End the threads without waiting for the job that each has: nobody wants its result, and
        it may take long. The jobs behind it are dropped."""
        for queue in self._workers.values():
            with suppress(Empty):
                while True:
                    queue.get_nowait()
            queue.put(None)
        self._workers.clear()
        self._threads.clear()

    def _start(self, worker: str) -> SimpleQueue[_Work | None]:
        queue: SimpleQueue[_Work | None] = SimpleQueue()
        # A daemon: an owner that forgot to close must not keep its process from ending.
        thread = threading.Thread(
            target=self._run, args=(worker, queue), name=f"{self._name}: {worker}", daemon=True
        )
        thread.start()
        self._workers[worker] = queue
        self._threads.append(thread)
        return queue

    def _run(self, worker: str, queue: SimpleQueue[_Work | None]) -> None:
        while (work := queue.get()) is not None:
            job, done, brief = work
            started = perf_counter()
            result = _outcome(job)
            if brief:
                self._took(perf_counter() - started)
            self._finish(worker, done, result)
            del work, job, done, result  # else what they hold would live until the next job

    def _finish(self, worker: str, done: Callable[[Any], None], result: Any) -> None:
        self._finished.append((worker, done, result))
        self._one_finished.release()
        self._post(self._deliver)

    def _took(self, seconds: float) -> None:
        """Keep a mean of the last few: how long a brief job keeps the owner from other work."""
        self._brief_seconds += (seconds - self._brief_seconds) / 8

    def _deliver(self) -> None:
        while self._finished:
            worker, done, result = self._finished.popleft()
            if self._under_way.get(worker):
                self._under_way[worker] -= 1
            self._one_finished.acquire(blocking=False)
            self._pending -= 1
            done(result)


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except BaseException as error:  # noqa: BLE001  # the owner gets it, whatever it is
        return error
