"""A cut that lasts leaves two rings, and its end makes one of them; both within a stated time.

That the ring becomes ideal after all faults is not enough: a side whose nodes all wait, off the
ring, until the cut is healed would pass. It is demanded where nothing strikes but one cut, and of a
cut that has lasted long enough.
"""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import CoreLike, RingView, snapshot

PERIODS = 12  # of stabilization: for two rings after the cut, and for one after its end


class EachSideOfACutBecomesARing(RingChecker):
    name = "each_side_of_a_cut_becomes_a_ring"
    sentence = (
        f"{PERIODS} periods of stabilization after a cut each side is an ideal ring, and after its "
        "end both are one."
    )

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._bound_us = PERIODS * watch.cluster.options.ring().stabilize_us
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
        sides: dict[bool, list[CoreLike]] = {True: [], False: []}
        first = cluster.machines[0].address
        for machine in cluster.machines:
            assert machine.node is not None  # nothing strikes but the cut
            sides[links.reaches(first, machine.address)].append(machine.node.ring.core)
        for cores in sides.values():
            view = snapshot(cores)
            outside = [core for core in cores if core.standing != "member"]
            if outside or not view.is_ideal:
                raise self.broken(f"{len(outside)} are not on the ring, the others\n{view}")

    def after_event(self) -> None:
        view = self._watch.view
        if self._healed_us is None or self._whole_us is not None:
            return
        if len(view.members) == len(self._watch.cluster.machines) and view.is_ideal:
            self._whole_us = self._watch.cluster.now_us

    def at_end(self) -> None:
        if self._healed_us is None:
            return
        whole_us = self._whole_us
        if whole_us is None or whole_us - self._healed_us > self._bound_us:
            after = "not yet" if whole_us is None else f"{whole_us - self._healed_us} us after it"
            raise self.broken(f"one ring: {after}")

    def look(self, view: RingView) -> None:
        """Nothing that holds at every moment."""
