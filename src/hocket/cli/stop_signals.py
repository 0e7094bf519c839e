"""SIGINT and SIGTERM as a flag to look at, instead of an exception at any point.

A command that must know exactly what it has read or written looks at the flag between two steps,
and waits with `wait_readable`, `wait_writable` and `wait_for`. An exception in the middle of a
client's turn would leave the client in pieces, and the command could not even close it. The second
signal has its usual effect, so a step that hangs can still be ended.
"""

from __future__ import annotations

import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from hocket.adapters.waker import new_waker
from hocket.cli.exits import Interrupted
from hocket.deadline import Deadline, in_seconds
from hocket.errors import Timeout

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_SECONDS = 0.1  # how often a command that waits for a client looks at the flag


class StopSignals:
    requested = 0  # the number of the signal that came; 0: none

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

    def _restore(self) -> None:
        for each, handler in self._former.items():
            signal.signal(each, handler)

    def wait_for(self, receive: Callable[[float], T], timeout: float | None) -> T:
        """What `receive` returns; it is called with the seconds that it may take.

        Raises `Interrupted` if a signal asks to stop, and `Timeout` after `timeout` seconds.
        """
        deadline = Deadline(timeout)
        while True:
            if self.requested:
                raise Interrupted(self.requested)
            left = deadline.remaining()
            patience = LOOK_SECONDS if left is None else min(left, LOOK_SECONDS)
            try:
                return receive(patience)
            except Timeout as error:
                if left is not None and left <= LOOK_SECONDS:
                    text = str(error).replace(in_seconds(patience), in_seconds(timeout))
                    raise Timeout(text) from None

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
