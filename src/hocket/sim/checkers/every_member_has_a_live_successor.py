"""I1, OneLiveSuccessor. With I2 it is the inductive invariant: all of I3 to I7 follow."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class EveryMemberHasALiveSuccessor(RingChecker):
    name = "every_member_has_a_live_successor"
    sentence = "Every member has at least one live member in its successor list."

    def look(self, view: RingView) -> None:
        best = view.best
        if len(best) < len(view.members):
            alone = next(member for member in view.members if member.spot not in best)
            raise self.broken(f"{alone}\nof the members\n{view}")
