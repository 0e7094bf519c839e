"""The time of the machine."""

from __future__ import annotations

import time


class SystemClock:
    """The real `ports.SteadyClock`."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def ticks_us(self) -> int:
        return time.monotonic_ns() // 1000
