"""A cut that lasts leaves two rings, and its end makes one of them; both within a stated time.

That the ring becomes ideal after all faults is not enough: a side whose nodes all wait, off the
ring, until the cut is healed would pass. It is demanded where nothing strikes but one cut, if the
cut has lasted long enough.
"""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import CoreLike, RingView, name, snapshot

PERIODS = 12  # of stabilization: for two rings after the cut, and for one after its end


class EachSideOfACutBecomesARing(RingChecker):
    name = "each_side_of_a_cut_becomes_a_ring"
    sentence = (
        f"{PERIODS} periods of stabilization after a cut each side is an ideal ring, and as long "
        "after its end both are one."
    )

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._healed_us: int | None = None  # the end of a cut that was looked at
        self._whole_us: int | None = None  # when all were one ideal ring after it

    def before_healing(self) -> None:
        cluster = self._watch.cluster
        links = cluster.links
        if cluster.options.temper != "split" or not links.is_cut:
            return
        if cluster.now_us - links.cut_since_us < self._bound_us:
            return
        self.seen += 1
        self._healed_us = cluster.now_us
        cores = cluster.rings()
        first = cores[0].me.address
        for is_here in (True, False):
            self._look_at_side(
                [core for core in cores if links.reaches(first, core.me.address) is is_here]
            )

    def _look_at_side(self, cores: list[CoreLike]) -> None:
        view = snapshot(cores)
        for core in cores:
            if core.standing != "member":
                raise self.broken(f"{name(core.me)} is {core.standing}; the members:\n{view}")
        if not view.is_ideal:
            raise self.broken(f"{view.difference}\nof the members\n{view}")

    def after_event(self) -> None:
        if self._healed_us is None or self._whole_us is not None:
            return
        cluster, view = self._watch.cluster, self._watch.view
        if len(view.members) == len(cluster.rings()) and view.is_ideal:
            self._whole_us = cluster.now_us

    def at_end(self) -> None:
        if self._healed_us is None:
            return
        if self._whole_us is None:
            raise self.broken("they never became one")
        if self._whole_us - self._healed_us > self._bound_us:
            raise self.broken(f"one ring only {self._whole_us - self._healed_us} us after its end")

    @property
    def _bound_us(self) -> int:
        return PERIODS * self._watch.cluster.options.ring().stabilize_us

    def look(self, view: RingView) -> None:
        """Nothing that holds at every moment."""
