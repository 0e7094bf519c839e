"""The time of one simulated machine: virtual time, and how wrong its clock is."""

from __future__ import annotations

from hocket.sim.scheduler import Scheduler


class SimClock:
    def __init__(self, scheduler: Scheduler, *, skew_us: int = 0) -> None:
        self._scheduler = scheduler
        self.skew_us = skew_us

    def now_us(self) -> int:
        return self._scheduler.now_us() + self.skew_us
