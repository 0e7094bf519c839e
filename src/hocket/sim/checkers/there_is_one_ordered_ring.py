"""I6, OneOrderedRing: AtLeastOneRing, AtMostOneRing and OrderedRing."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class ThereIsOneOrderedRing(RingChecker):
    name = "there_is_one_ordered_ring"
    sentence = "Best successors make one ring, in the order of the circle."

    def look(self, view: RingView) -> None:
        if len(view.rings) != 1:
            raise self.broken(f"{len(view.rings)} rings of the members\n{view}")
        ring = view.rings[0]
        descents = sum(spot < ring[at - 1] for at, spot in enumerate(ring))
        if descents != (len(ring) > 1):  # once round goes down only where it passes zero
            raise self.broken(f"the ring winds through the members\n{view}")
