"""I9, the lemma behind progress: when nothing is under way and the ring is not ideal yet, some step
of the protocol would change it. So the ring cannot get stuck in any state but the ideal one."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView, effective_step


class ARingThatIsNotIdealCanMove(RingChecker):
    name = "a_ring_that_is_not_ideal_can_move"
    sentence = "If the ring is not ideal, some step of the protocol changes it."

    def after_event(self) -> None:
        view = self._watch.demanded
        if view is not None and view.quiet and not view.is_ideal:
            self.seen += 1
            self.look(view)

    def look(self, view: RingView) -> None:
        if effective_step(view) is None:
            raise self.broken(f"{view.difference}\nof the members\n{view}")
