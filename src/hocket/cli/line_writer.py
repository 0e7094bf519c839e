"""Writes lines to stdout, and counts exactly how many of them were written.

There is no buffer, on purpose: when the reader of a pipe leaves, nobody knows what was in a buffer,
and an index must not move past lines that were not written. For the same reason no signal
interrupts a write: a pipe is given only what it takes without waiting, and a signal stops the wait.

A pipe is a buffer too, which the system keeps, and which goes with its reader. So lines that a
reader left in the pipe when it went away do not count. Lines of an earlier `write` have counted by
then; hence a writer that is `in_step` begins when the reader has taken all of those.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import stat
import sys
import termios
from bisect import bisect_right
from itertools import accumulate
from typing import Any

from hocket.cli.exits import Interrupted
from hocket.cli.stop_signals import StopSignals

LOOK_SECONDS = 0.001  # how often a pipe is looked at, until its reader has taken everything


class LineWriter:
    """`written` is how many whole lines the last `write` has written, also if it raised."""

    def __init__(self, stop: StopSignals, *, in_step: bool = False) -> None:
        self.written = 0
        self._stop = stop
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed, so nothing can be printed")
        stream: Any = sys.stdout.buffer
        self._raw = getattr(stream, "raw", stream)
        self._waits_on = _descriptor_that_may_block(self._raw)
        self._pipe = self._waits_on if _is_pipe(self._waits_on) else None
        self._in_step = in_step

    def write(self, lines: list[bytes]) -> None:
        """Write all lines, which include their ends. Raises Interrupted and OSError."""
        self.written = 0
        view = memoryview(b"".join(lines))
        done = 0
        try:
            if self._in_step:
                self._wait_until_taken()
            while done < len(view):
                done += self._write_some(view[done:])
        except BaseException as error:
            if isinstance(error, BrokenPipeError):
                done = max(0, done - self._in_pipe())
            self.written = bisect_right(list(accumulate(map(len, lines))), done)
            raise
        self.written = len(lines)

    def _wait_until_taken(self) -> None:
        """Return when the reader of the pipe has all that was written. Raises if it left before."""
        while self._pipe is not None and self._in_pipe():
            if self._stop.wait_for_leaving(self._pipe, LOOK_SECONDS) and self._in_pipe():
                raise BrokenPipeError("the reader of the pipe has left")
            if self._stop.requested:
                raise Interrupted(self._stop.requested)

    def _in_pipe(self) -> int:
        """How many bytes lie in the pipe, which the reader has not taken; 0 if there is none."""
        if self._pipe is None:
            return 0
        answer = fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4))
        return int.from_bytes(answer, sys.byteorder)

    def _write_some(self, view: memoryview) -> int:
        if self._waits_on is not None:
            if not self._stop.wait_writable(self._waits_on):
                raise Interrupted(self._stop.requested)
            view = view[: select.PIPE_BUF]
        return self._raw.write(view) or 0  # None: somebody else has filled the pipe


def _is_pipe(descriptor: int | None) -> bool:
    return descriptor is not None and stat.S_ISFIFO(os.fstat(descriptor).st_mode)


def _descriptor_that_may_block(raw: Any) -> int | None:
    try:
        descriptor: int = raw.fileno()
    except io.UnsupportedOperation:  # not a file at all
        return None
    return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor
