"""How far the messages of a partition that several nodes keep may be leased.

Rule 1: a message is leased only if the log, committed, says that messages up to there may be: it
        lies below `high`. So whoever leads next knows what may be with a consumer: nothing from
        `high` on. What lies below it and is not settled, or known to be free, is withheld for as
        long as a lease of the former leader may last.
Rule 2: an entry reserves a run of messages, about a thousand, also if they are not there yet. The
        next run is asked for when half of it is used, so that leases do not wait for a commit. A
        run that was used up before the next one was there is doubled.

A lease that lasts longer than usual is logged by itself (`ShareChange.extended`). A partition that
one node keeps has no reservation.
"""

from __future__ import annotations

RUN = 1_000  # messages that one entry reserves, at first
RUN_MAX = 16_000


class Reservation:
    __slots__ = ("_asked", "_is_used", "alone_us", "high", "run")

    def __init__(self, alone_us: int, high: int = 0) -> None:
        self.alone_us = alone_us  # since when no other node leases messages of it
        self.high = high  # committed: messages below may be leased
        self.run = RUN
        self._asked = 0  # a reservation up to here is on its way
        self._is_used = False  # this node has reserved a run before

    def ask(self, at: int, *, starved: bool) -> int:
        """Up to where to reserve now, if messages below `at` are in use; 0: enough is reserved."""
        if self._asked > self.high or at + self.run // 2 <= self.high:
            return 0
        if starved and self._is_used:
            self.run = min(2 * self.run, RUN_MAX)
        self._asked = at + self.run
        return self._asked

    def answered(self, high: int) -> None:
        self.high = max(self.high, high)
        self._asked = 0
        self._is_used |= high > 0

    def reset(self) -> None:
        """The index was put elsewhere, and all leases are void."""
        self.high, self.run, self._asked, self._is_used = 0, RUN, 0, False
