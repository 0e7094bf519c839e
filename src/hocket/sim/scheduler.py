"""Virtual time: events in order, all chance from one seed.

The same seed and the same calls give the same run. Every source of chance has a stream of its own
(`random("disk")`), so that one that asks more often does not move the others.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from random import Random

from hocket.timers import Timer, TimerHeap

START_US = 1_700_000_000_000_000  # some day; a clock that begins at 0 hides mistakes


def below(bits: Callable[[int], int], end: int) -> int:
    """What `randrange(end)` draws from the stream of these bits, in a third of its time."""
    width = end.bit_length()
    drawn = bits(width)
    while drawn >= end:
        drawn = bits(width)
    return drawn


class Scheduler:
    def __init__(self, seed: object, *, start_us: int = START_US) -> None:
        self.seed = seed
        self.time_us = start_us  # the same as `now_us()`, for those who ask all the time
        self.timers: TimerHeap[int] = TimerHeap()
        self._streams: dict[str, Random] = {}
        self.events = 0  # that have happened

    def now_us(self) -> int:
        return self.time_us

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
        now_us = self.time_us
        self.timers.put(time_us if time_us > now_us else now_us, timer)
        return timer

    def put(self, time_us: int, timer: Timer) -> None:
        """The same, of a timer that there is already."""
        now_us = self.time_us
        self.timers.put(time_us if time_us > now_us else now_us, timer)

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        return self.at(self.time_us + delay_us, action)

    def advance(self) -> bool:
        """Let the next event happen; False if there is none."""
        # Every event of a run comes by here, so that this is written without calls.
        timers = self.timers
        while timers:
            time_us, _, timer = heappop(timers)
            if timer.action is not None:  # else it was cancelled
                self.time_us = time_us
                self.events += 1
                timer()
                return True
        return False

    def _advance_to(self, end_us: int) -> bool:
        """Let the next event happen, unless it lies behind `end_us`."""
        time_us = self.timers.next_due()
        return time_us is not None and time_us <= end_us and self.advance()

    def run_until(self, time_us: int) -> None:
        """Let everything up to and including this time happen; then it is this time."""
        while self._advance_to(time_us):
            pass
        self.time_us = max(self.time_us, time_us)

    def run_for(self, duration_us: int) -> None:
        self.run_until(self.time_us + duration_us)

    def run_until_true(self, predicate: Callable[[], object], *, within_us: int) -> bool:
        """Let events happen until the predicate holds; False if it does not within this time."""
        deadline_us = self.time_us + within_us
        while not predicate():
            if not self._advance_to(deadline_us):
                return False
        return True
