"""Writes lines to stdout, and counts exactly how many of them were written.

There is no buffer, on purpose: when the reader of a pipe leaves, nobody knows what was in a buffer,
and an index must not move past lines that were not written. For the same reason no signal
interrupts a write: a pipe is given only what it takes without waiting, and a signal stops the wait.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import Any

from hocket.cli.exits import Interrupted
from hocket.cli.stop_signals import StopSignals


class LineWriter:
    """`written` is how many whole lines the last `write` has written, also if it raised."""

    def __init__(self, stop: StopSignals) -> None:
        self.written = 0
        self._stop = stop
        stream: Any = sys.stdout.buffer
        self._raw = getattr(stream, "raw", stream)
        self._waits_on = _descriptor_that_may_block(self._raw)

    def write(self, lines: list[bytes]) -> None:
        """Write all lines, which include their ends. Raises Interrupted and OSError."""
        self.written = 0
        view = memoryview(b"".join(lines))
        done = 0
        try:
            while done < len(view):
                done += self._write_some(view[done:])
        except BaseException:
            self.written = bisect_right(list(accumulate(map(len, lines))), done)
            raise
        self.written = len(lines)

    def _write_some(self, view: memoryview) -> int:
        if self._waits_on is not None:
            if not self._stop.wait_writable(self._waits_on):
                raise Interrupted(self._stop.requested)
            view = view[: select.PIPE_BUF]
        return self._raw.write(view) or 0  # None: somebody else has filled the pipe


def _descriptor_that_may_block(raw: Any) -> int | None:
    try:
        descriptor: int = raw.fileno()
    except io.UnsupportedOperation:  # not a file at all
        return None
    return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor
