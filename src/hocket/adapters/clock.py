"""The time of the machine."""

from __future__ import annotations

import time


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000
