"""G2: after the loss of a majority for good, nothing is acknowledged any more: the group stops, and
never lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.model import PartitionId
    from hocket.sim.cluster import Cluster

UNDER_WAY_US = 50_000  # an answer that was sent before may arrive so much later


class NothingIsAcknowledgedWithoutAMajority(Checker):
    name = "nothing_is_acknowledged_without_a_majority"
    sentence = "A group that has lost its majority for good acknowledges nothing."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read = 0
        self._lost_us: dict[PartitionId, int] = {}

    def after_event(self) -> None:
        ledger, now_us = self._cluster.workload.ledger, self._cluster.now_us
        for place in self._cluster.workload.silent:
            lost_us = self._lost_us.setdefault(place, now_us)
            self.seen += 1
            for ack in ledger.acks[self._read :]:
                if ack.place == place and now_us > lost_us + UNDER_WAY_US:
                    raise self.broken(f"{ack.by} was told of {place} at {ack.start}")
        self._read = len(ledger.acks)

    def at_end(self) -> None:
        self.after_event()
        for place in self._cluster.workload.silent:
            story = self._cluster.copies.story_of(place)
            if story is not None and any(each.serves for each in story.copies.values()):
                raise self.broken(f"{place} is served, and a majority of its copies is gone")
