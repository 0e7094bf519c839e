"""The root's signs of life, as this node has them.

When a network is cut, each side makes a ring of its own, and two rings never become one by
stabilization. So the root numbers its signs of life, and every ring hands them round. The ring
without the root gets no new ones. Its nodes notice that, look for somebody who has a newer one, and
join there again.

Rule: only what came by our own ring counts as fresh. A beacon from elsewhere shows that there is
another ring, so it must not be handed round in ours, where it would look fresh.
"""

from __future__ import annotations

from hocket.core.ring.messages import Beacon


class Beacons:
    __slots__ = ("_handed_on", "fresh_us", "newest", "stale_us")

    def __init__(self, stale_us: int) -> None:
        self.newest = Beacon()  # that came by our own ring
        self.fresh_us = 0  # when it came
        self.stale_us = stale_us
        self._handed_on = Beacon()

    def take(self, beacon: Beacon, now_us: int) -> bool:
        """It came by our own ring. True if it is news."""
        if beacon <= self.newest:
            return False
        self.newest = beacon
        self.fresh_us = now_us
        return True

    def is_to_be_handed_on(self, beacon: Beacon) -> bool:
        """Once. We may know it already by an answer, while those behind us do not."""
        if beacon <= self._handed_on:
            return False
        self._handed_on = beacon
        return True

    def is_stale(self, now_us: int) -> bool:
        return now_us - self.fresh_us >= self.stale_us
