"""Calls that wait for their time: one heap for the event pump, the client and the simulator.

Nothing here waits or reads a clock. Whoever drives a heap asks `next_due` when to look again, and
takes what is due with `pop`. Times are numbers that only grow; their unit and their zero belong to
the driver (seconds in `local`, microseconds in the client, simulated microseconds in `sim`).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeVar

Time = TypeVar("Time", int, float)

# A heap with fewer timers than this is never searched for cancelled ones.
UNSWEPT_MAX = 256


class Timer:
    """A call that waits for its time. It runs once, or never after `cancel`."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Have the call not made, if it has not been made yet. Any thread may cancel."""
        self.action = None

    @property
    def cancelled(self) -> bool:
        """It was cancelled, or it has run."""
        return self.action is None

    def __call__(self) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()


class TimerHeap(list[tuple[Time, int, Timer]]):
    """Timers by the time at which they are due; of two due at once, the one put first comes first.

    The heap is a list of (due, order, timer), so that comparing and testing for emptiness cost no
    Python call. One thread uses it; only `Timer.cancel` may be called by others.
    """

    __slots__ = ("_order", "_sweep_at")

    def __init__(self) -> None:
        super().__init__()
        self._order = count()
        self._sweep_at = UNSWEPT_MAX

    def put(self, due: Time, timer: Timer) -> None:
        heappush(self, (due, next(self._order), timer))
        if len(self) >= self._sweep_at:  # cancelled timers must not pile up until they are due
            self[:] = [entry for entry in self if entry[2].action is not None]
            heapify(self)
            self._sweep_at = max(UNSWEPT_MAX, 2 * len(self))

    def next_due(self) -> Time | None:
        """When the next timer that was not cancelled is due; None if there is none."""
        while self:
            due, _, timer = self[0]
            if timer.action is not None:
                return due
            heappop(self)
        return None

    def pop(self) -> Timer:  # type: ignore[override]
        """Take out the timer of which `next_due` has just spoken."""
        return heappop(self)[2]
