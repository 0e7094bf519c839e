"""Virtual time: events in order, all chance from one seed.

The same seed and the same calls give the same run. Every source of chance has a stream of its own
(`random("disk")`), so that one that asks more often does not move the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

START_US = 1_700_000_000_000_000  # any day will do; a clock that begins at 0 hides mistakes


class Timer:
    """An event that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    def __init__(self, seed: object, *, start_us: int = START_US) -> None:
        self.seed = seed
        self._now_us = start_us
        self._heap: list[tuple[int, int, Timer]] = []  # time, order of arrival, what
        self._arrived = 0
        self._streams: dict[str, Random] = {}
        self.events = 0  # that have happened

    def now_us(self) -> int:
        return self._now_us

    def random(self, stream: str) -> Random:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = Random(f"{self.seed}/{stream}")
        return found

    def at(self, time_us: int, action: Callable[[], None]) -> Timer:
        """Do `action` at this time, or now if that has passed.

        Events of the same time happen in the order in which they were made.
        """
        timer = Timer(action)
        self._arrived += 1
        heapq.heappush(self._heap, (max(time_us, self._now_us), self._arrived, timer))
        return timer

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        return self.at(self._now_us + delay_us, action)

    def advance(self) -> bool:
        """Let the next event happen; False if there is none."""
        while self._heap:
            time_us, _, timer = heapq.heappop(self._heap)
            action, timer.action = timer.action, None
            if action is None:
                continue
            self._now_us = time_us
            self.events += 1
            action()
            return True
        return False

    def run_until(self, time_us: int) -> None:
        """Let everything happen up to and including this time, which is then the current time."""
        while self._heap and self._heap[0][0] <= time_us:
            if self._heap[0][2].action is None:
                heapq.heappop(self._heap)
            else:
                self.advance()
        self._now_us = max(self._now_us, time_us)

    def run_for(self, duration_us: int) -> None:
        self.run_until(self._now_us + duration_us)

    def run_until_true(self, predicate: Callable[[], object], *, within_us: int) -> bool:
        """Let events happen until the predicate holds; False if it does not within this time."""
        deadline_us = self._now_us + within_us
        while not predicate():
            if not self._heap or self._heap[0][0] > deadline_us:
                return bool(predicate())
            self.advance()
        return True
