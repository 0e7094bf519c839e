"""SIGINT and SIGTERM as a flag to look at, instead of an exception at any point.

A command that must know exactly what it has read or written looks at the flag between two steps,
and waits with `wait_readable` and `wait_writable`. Only where losing track does no harm does it
let itself be `interruptible`. The second signal has its usual effect, so a step that hangs can
still be ended.
"""

from __future__ import annotations

import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hocket.adapters.waker import new_waker
from hocket.cli.exits import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    requested = 0  # the number of the signal that came; 0: none
    _raising = False

    def __enter__(self) -> StopSignals:
        self._waker = new_waker()
        self._woken = self._waker.descriptor
        self._former: dict[int, Any] = {
            each: signal.signal(each, self._received) for each in SIGNALS
        }
        return self

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.requested = number
        self._restore()
        self._waker.wake()
        if self._raising:
            raise Interrupted(number)

    def _restore(self) -> None:
        for each, handler in self._former.items():
            signal.signal(each, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within the block a signal raises Interrupted; a signal that came before does at once."""
        self._raising = True
        try:
            if self.requested:
                raise Interrupted(self.requested)
            yield
        finally:
            self._raising = False

    def wait_readable(self, descriptor: int) -> bool:
        """True when there is something to read; False when a signal asked to stop."""
        select.select([descriptor, self._woken], [], [])
        return not self.requested

    def wait_writable(self, descriptor: int) -> bool:
        """True when there is room, PIPE_BUF bytes at least; False when a signal asked to stop."""
        select.select([self._woken], [descriptor], [])
        return not self.requested

    def wait_for_leaving(self, pipe: int, seconds: float) -> bool:
        """True when the reader of the pipe has left; False after `seconds`, or on a signal."""
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        waiting.register(pipe, 0)  # errors are told unasked
        return any(descriptor == pipe for descriptor, _ in waiting.poll(seconds * 1000))

    def __exit__(self, *_: object) -> None:
        self._restore()
        self._waker.close()
