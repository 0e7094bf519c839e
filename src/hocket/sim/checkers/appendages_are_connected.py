"""I7, ConnectedAppendages: best successors lead from every appendage to the ring."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class AppendagesAreConnected(RingChecker):
    name = "appendages_are_connected"
    sentence = "From every member that is not on the ring best successors lead to it."

    def look(self, view: RingView) -> None:
        on_a_ring = view.on_a_ring
        if len(on_a_ring) == len(view.members):
            return
        best, connected = view.best, dict.fromkeys(on_a_ring)
        for member in view.members:
            way, at = [], member.spot
            while at not in connected:
                way.append(at)
                if at not in best:
                    raise self.broken(f"{member}\nof the members\n{view}")
                at = best[at]
            connected.update(dict.fromkeys(way))
