"""How many lines of log somebody who is not known may bring about: some each minute.

Anybody who reaches a port can have something written down, as often as they like, and must not fill
the disk with it. So only some are named, and the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

MINUTE_SECONDS = 60.0


class Ration:
    def __init__(
        self,
        lines_max: int,
        say_rest: Callable[[int], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`say_rest` is told at the end of a minute how many were left out, if any were."""
        self._lines_max = lines_max
        self._say_rest = say_rest
        self._clock = clock
        self._minute_ends = 0.0
        self._taken = 0
        self._left_out = 0

    def take(self) -> bool:
        """Whether one more line may be written in this minute; else it is counted."""
        self.tick()
        if not self._taken:
            self._minute_ends = self._clock() + MINUTE_SECONDS
        if self._taken < self._lines_max:
            self._taken += 1
            return True
        self._left_out += 1
        return False

    def tick(self) -> None:
        """A minute may be over: then say how many were left out."""
        if self._taken and self._clock() >= self._minute_ends:
            left_out, self._taken, self._left_out = self._left_out, 0, 0
            if left_out:
                self._say_rest(left_out)
