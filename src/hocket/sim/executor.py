"""Slow jobs in virtual time: each worker does one at a time, in order, and each takes a while.

A job does its work at some moment, and its `done` is called at a later one; `crash` between the two
leaves work done that nobody was told about, as in life.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from hocket.sim.scheduler import Scheduler, below
from hocket.timers import Timer

T = TypeVar("T")

_Work = tuple[Callable[[], Any], Callable[[Any], None]]


class SimExecutor:
    """The simulated `ports.Executor`. Errors of jobs go to `done`, but not a BaseException that is
    no Exception: that is the simulation's own, such as `sim.disk.PowerLoss`, and ends the run."""

    def __init__(
        self, scheduler: Scheduler, *, stream: str = "executor", delay_us_max: int = 2000
    ) -> None:
        self._scheduler = scheduler
        self._random = scheduler.random(stream)
        self.delay_us_max = delay_us_max
        self._workers: dict[str, deque[_Work]] = {}
        self._timers: dict[str, Timer] = {}  # of the workers that have a job
        self._finished: dict[str, tuple[Callable[[Any], None], Any]] = {}  # `done` still to come
        self.dead = False

    def submit(
        self,
        worker: str,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        brief: bool = False,
    ) -> None:
        del brief  # every job takes its time here, so that more can happen in between
        if self.dead:
            return
        self._workers.setdefault(worker, deque()).append((job, done))
        if worker not in self._timers:
            self._schedule(worker)

    def drain(self) -> None:
        """At once: virtual time does not pass."""
        while self._timers:
            worker = next(iter(self._timers))
            self._timers[worker].cancel()
            if worker in self._finished:
                self._tell(worker)
            else:
                self._run(worker)

    def crash(self) -> None:
        """Drop everything that has not happened, for good."""
        self.dead = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._workers.clear()
        self._finished.clear()

    @property
    def idle(self) -> bool:
        return not self._timers

    def _schedule(self, worker: str) -> None:
        action = partial(self._tell if worker in self._finished else self._run, worker)
        delay_us = below(self._random.getrandbits, self.delay_us_max + 1)
        self._timers[worker] = self._scheduler.after(delay_us, action)

    def _run(self, worker: str) -> None:
        job, done = self._workers[worker].popleft()
        result: Any
        try:
            result = job()
        except Exception as error:  # noqa: BLE001  # the owner gets it, whatever it is
            result = error
        self._finished[worker] = (done, result)
        self._schedule(worker)

    def _tell(self, worker: str) -> None:
        done, result = self._finished.pop(worker)
        if self._workers[worker]:
            self._schedule(worker)
        else:
            del self._timers[worker]
        done(result)
