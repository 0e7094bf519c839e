"""I5, PrincipalsAreRingMembers."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class PrincipalsAreOnTheRing(RingChecker):
    name = "principals_are_on_the_ring"
    sentence = "Every principal comes back to itself by way of best successors."

    def look(self, view: RingView) -> None:
        on_a_ring = view.on_a_ring
        for member in view.principals:
            if member.spot not in on_a_ring:
                raise self.broken(f"{member}\nof the members\n{view}")
