"""O4: what is begun after something else was acknowledged comes behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class AcknowledgementsFollowRealTime(Checker):
    name = "acknowledgements_follow_real_time"
    sentence = "A batch that was made after another was acknowledged comes behind it."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read = 0

    def after_event(self) -> None:
        acks = self._cluster.workload.ledger.acks
        for ack in acks[self._read :]:
            self.seen += 1
            if ack.start < ack.behind:
                raise self.broken(
                    f"{ack.by} made a batch when {ack.place} was acknowledged up to {ack.behind}, "
                    f"and it is at {ack.start}"
                )
        self._read = len(acks)

    def at_end(self) -> None:
        self.after_event()
