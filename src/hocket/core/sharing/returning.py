"""Messages that no consumer has any more, and that are leased again when the log has that.

Of a partition that several nodes keep, the log says who has which message. If a consumer comes to
the next leader without a message that it has by the log, that message is free at once. So the log
must not say that one consumer has a message while another one has it: a message that comes back is
leased when the change by which it came back is committed. The same holds for a message that is
revived: the next leader might not know of the revival.

Meanwhile a message is RESTING, without an end that time would bring. A partition that one node
keeps has nothing like that: what a broker forgot in a crash it withholds.
"""

from __future__ import annotations

from hocket.core.sharing.maps import LEASED, RESTING, SETTLED, WITHHELD
from hocket.core.sharing.ranges import Range

FAR_US = 1 << 62  # later than all times

_KNOWN = (LEASED, WITHHELD, SETTLED)  # of messages in these states the log may have to be told


class Returning:
    """Changes are counted as they are taken to be logged."""

    __slots__ = ("_committed", "_is_awaited", "_rested", "_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = 0
        self._committed = 0
        self._rested = 0  # the last change by which messages rest for a time
        self._is_awaited = False  # messages wait for the change that is taken next
        self._waiting: list[tuple[int, Range]] = []  # by the change that they wait for

    def waits_for(self, before: int, *, changes: bool) -> int:
        """The change that a message must wait for which comes back from this state; 0: none.

        `changes`: there is something to log.
        """
        if before in _KNOWN and changes:
            return self._taken + 1
        if before == RESTING and self._rested > self._committed:
            return self._rested
        return 0

    def add(self, change: int, start: int, end: int) -> None:
        self._is_awaited |= change > self._taken
        self._waiting.append((change, (start, end)))

    def took(self, *, rests: bool) -> int:
        """A change goes to the log. Returns its number if messages wait for it, else 0."""
        self._taken += 1
        if rests:
            self._rested = self._taken
        awaited, self._is_awaited = self._is_awaited or rests, False
        return self._taken if awaited else 0

    def committed(self, change: int) -> list[Range]:
        """Changes up to this one are committed. Returns the messages that need not wait longer."""
        self._committed = max(self._committed, change)
        ready = [run for number, run in self._waiting if number <= change]
        self._waiting = [each for each in self._waiting if each[0] > change]
        return ready

    def reset(self) -> None:
        """The index was put elsewhere: nothing waits any more."""
        self._waiting, self._is_awaited, self._rested = [], False, 0
