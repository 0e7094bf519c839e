"""Lines to stdout, with an exact account of how many of them got out.

Unbuffered on purpose: what a buffer holds when the reader of a pipe leaves is neither written nor
known, and an index must not move past it.
"""

from __future__ import annotations

import select
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import Any


class LineWriter:
    """`written` is how many lines of the last `write` got out whole, also if it raised."""

    def __init__(self) -> None:
        self.written = 0
        stream: Any = sys.stdout.buffer
        self._raw = getattr(stream, "raw", stream)

    def write(self, lines: list[bytes]) -> None:
        """All of them, delimiters included. Raises what the operating system does."""
        self.written = 0
        view = memoryview(b"".join(lines))
        done = 0
        try:
            while done < len(view):
                count = self._raw.write(view[done:])
                if count is None:  # somebody made our stdout non-blocking, and it is full
                    select.select([], [self._raw], [])
                else:
                    done += count
        except BaseException:
            self.written = bisect_right(list(accumulate(map(len, lines))), done)
            raise
        self.written = len(lines)
