"""I3, OrderedSuccessorLists: of any three entries the second lies between the other two."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class SuccessorListsAreOrdered(RingChecker):
    name = "successor_lists_are_ordered"
    sentence = "Every extended successor list is in the order of the circle."

    def look(self, view: RingView) -> None:
        for member in view.members:
            if not member.is_ordered:
                raise self.broken(repr(member))
