"""What the client's cores want done later: their timers, and when the next one is due.

Nothing here waits. Whoever drives the cores asks `delay_us` how long it may sleep, and runs what
`due` gives when it wakes; `wake` is called when it must wake earlier than it was last told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hocket.timers import Timer, TimerHeap

if TYPE_CHECKING:
    from hocket.ports import SteadyClock


class Timers:
    def __init__(self, clock: SteadyClock, wake: Callable[[], None]) -> None:
        self.clock = clock
        self._wake = wake
        self._heap: TimerHeap[int] = TimerHeap()

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Another engine drives these from now on."""
        self._wake = wake

    def put(self, due_us: int, timer: Timer) -> None:
        earliest_us = self._heap[0][0] if self._heap else None
        self._heap.put(due_us, timer)
        if earliest_us is None or due_us < earliest_us:
            self._wake()

    def delay_us(self) -> int | None:
        """How long until a timer is due, 0 if one is due now; None if there are no timers."""
        due_us = self._heap.next_due()
        return None if due_us is None else max(0, due_us - self.clock.ticks_us())

    def due(self) -> Iterator[Timer]:
        """The timers that are due, one by one: each may put others."""
        while self.delay_us() == 0:
            yield self._heap.pop()
