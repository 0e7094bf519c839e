"""I4, NoDuplicates: an extended successor list names no node twice, so no list names its owner."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class SuccessorListsHaveNoDuplicates(RingChecker):
    name = "successor_lists_have_no_duplicates"
    sentence = "No position stands twice in an extended successor list."

    def look(self, view: RingView) -> None:
        for member in view.members:
            if not member.is_unique:
                raise self.broken(repr(member))
