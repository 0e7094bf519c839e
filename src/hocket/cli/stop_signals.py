"""SIGINT and SIGTERM as a fact to look at, instead of an exception at any point.

A command that must not lose what it has read asks `requested` between two steps, and waits with
`wait_readable`. The second signal has its usual effect, so a step that hangs can still be ended.
"""

from __future__ import annotations

import os
import select
import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    requested = 0  # the number of the signal that came; 0: none

    def __enter__(self) -> StopSignals:
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._former: dict[int, Any] = {
            each: signal.signal(each, self._received) for each in SIGNALS
        }
        return self

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.requested = number
        self._restore()
        os.write(self._waker, b"!")

    def _restore(self) -> None:
        for each, handler in self._former.items():
            signal.signal(each, handler)

    def wait_readable(self, descriptor: int) -> bool:
        """True when there is something to read; False when a signal asked to stop."""
        ready, _, _ = select.select([descriptor, self._woken], [], [])
        return not self.requested and descriptor in ready

    def __exit__(self, *_: object) -> None:
        self._restore()
        os.close(self._woken)
        os.close(self._waker)
