"""Progress, the theorem of Zave's proof: when nobody joins, fails or leaves any more, the ring
becomes ideal, and then nothing changes it.

It is demanded of every run, whatever happened before. In runs in which living nodes were taken for
dead, the search for another ring brings all nodes together again.
"""

from __future__ import annotations

from hocket.core.ring.contact import Contact
from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import RingView, name


class TheRingBecomesIdealAndStays(RingChecker):
    name = "the_ring_becomes_ideal_and_stays"
    sentence = "After the last fault the ring becomes ideal with all who live, and stays so."

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._ideal: tuple[Contact, ...] | None = None  # all who live, when it was last ideal

    def after_event(self) -> None:
        cluster, view = self._watch.cluster, self._watch.view
        if cluster.is_safety_phase:
            return
        self.seen += 1
        living = tuple(sorted(ring.me for ring in cluster.rings()))
        if view.small or len(view.members) < len(living):
            self._ideal = None  # somebody is on the way in, and may change it
        elif view.is_ideal:
            self._ideal = living
        elif living == self._ideal:
            raise self.broken(f"{view.difference}\nof the members\n{view}")

    def at_end(self) -> None:
        self.seen += 1
        view = self._watch.view
        for ring in self._watch.cluster.rings():
            if ring.standing != ("small" if view.small else "member"):
                raise self.broken(f"{name(ring.me)} is {ring.standing}; the members:\n{view}")
        if not view.small and not view.is_ideal:
            raise self.broken(f"{view.difference}\nof the members\n{view}")

    def look(self, view: RingView) -> None:
        """Nothing that holds at every moment."""
