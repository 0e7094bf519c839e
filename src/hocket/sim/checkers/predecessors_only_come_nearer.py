"""Rectify: a predecessor gives way to one that lies nearer, or because it is dead.

No invariant speaks of predecessors, since a list of successors never comes from a node that has
not answered. But a predecessor that any node can push away makes stabilization go to and fro.
"""

from __future__ import annotations

from hocket.core.ring.contact import Contact
from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import Member, RingView, between, name, spot


class PredecessorsOnlyComeNearer(RingChecker):
    name = "predecessors_only_come_nearer"
    sentence = "A predecessor that is alive is replaced only by one that lies nearer."

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._before: dict[Contact, Member] = {}

    def after_event(self) -> None:
        view = self._watch.demanded
        if view is None:
            self._before = {}
        else:
            self.look(view)

    def look(self, view: RingView) -> None:
        for member in view.members:
            before = self._before.get(member.me)
            if before is None or before is member or before.predecessor is None:
                continue
            old, new = before.predecessor, member.predecessor
            if old == new or spot(old) not in view.by_spot:
                continue
            self.seen += 1
            if new is None or not between(spot(old), spot(new), member.spot):
                raise self.broken(f"{name(old)} was the predecessor of {member}\nof\n{view}")
        self._before = view.by_contact
