"""Failure detection is as good as the network lets it be. Where few messages are lost and no
machine hangs for long, no living node is taken for dead: five pings in a row would have to be lost.

The invariants of the ring rest on that, and are not demanded any more once it was broken. So where
it can be kept, it must be.
"""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class TheLivingAreNotGivenUp(RingChecker):
    name = "the_living_are_not_given_up"
    sentence = "Where few messages are lost and nobody hangs long, nobody who lives is given up."

    def after_event(self) -> None:
        cluster = self._watch.cluster
        if cluster.options.temper in ("wild", "split"):
            return
        self.seen += 1
        if cluster.deceived:
            raise self.broken("a living node was given up; the timeline says which")

    def look(self, view: RingView) -> None:
        """Nothing of the ring."""
