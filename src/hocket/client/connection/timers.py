"""Time as the client's cores see it: a clock that they are given, and what is to happen when.

Nothing here waits. Whoever drives the cores asks `delay_us` how long it may sleep, and calls
`run_due` when it wakes; `wake` is called when it must wake earlier than it was last told.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Microseconds since the epoch; for the timestamps of records. It may jump."""

    def ticks_us(self) -> int:
        """Microseconds since some moment; never goes back. For everything that takes time."""


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def ticks_us(self) -> int:
        return time.monotonic_ns() // 1000


class Timer:
    """Something that will be done. `cancel` it, or let it be done once."""

    __slots__ = ("action", "due_us")

    def __init__(self, due_us: int, action: Callable[[], None]) -> None:
        self.due_us = due_us
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self.clock = clock
        self._wake = wake
        self._order = count()  # of two timers due at once the older comes first
        self._heap: list[tuple[int, int, Timer]] = []

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        timer = Timer(self.clock.ticks_us() + delay_us, action)
        earliest = self._heap[0][0] if self._heap else None
        heapq.heappush(self._heap, (timer.due_us, next(self._order), timer))
        if earliest is None or timer.due_us < earliest:
            self._wake()
        return timer

    def delay_us(self) -> int | None:
        """How long until something is due; None if nothing ever is."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return max(0, self._heap[0][0] - self.clock.ticks_us()) if self._heap else None

    def run_due(self) -> None:
        while self.delay_us() == 0:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            assert action is not None  # delay_us has dropped the cancelled ones
            action()
