"""Relays and consumers that are not needed any more leave nothing behind.

A node that kept them would work for a tree that it has no part in, for as long as it lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.model import PartitionId
    from hocket.sim.cluster import Cluster

TICKS_MORE = 4  # the last one that was counted, their jitter, and an event in which we look


class WhoIsNotNeededIsForgotten(Checker):
    name = "who_is_not_needed_is_forgotten"
    sentence = "A relay that serves nobody goes, and a consumer that has stopped is forgotten."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._idle: dict[tuple[str, PartitionId], int] = {}  # who serves nobody, and since when

    def after_event(self) -> None:
        idle, now_us = {}, self._cluster.now_us
        for machine in self._cluster.machines:
            if machine.node is None:
                continue
            for partition_id, relay in machine.node.relays.cores.items():
                if not (relay.is_leader or relay.consumers or len(relay.children)):
                    idle[machine.name, partition_id] = self._idle.get(
                        (machine.name, partition_id), now_us
                    )
        self._idle = idle

    def at_end(self) -> None:
        self.after_event()
        for machine in self._cluster.machines:
            if machine.node is None:
                continue
            cores = machine.node.relays.cores
            known = sum(len(relay.consumers) for relay in cores.values())
            here = sum(consumer.machine is machine for consumer in self._cluster.consumers)
            here += sum(each.fed_at(machine) for each in self._cluster.workload.subscribers)
            self.seen += len(cores)
            if known > here:
                raise self.broken(f"{machine.name} has {known} consumers where there are {here}")
        for (name, partition_id), since_us in self._idle.items():
            settings = self._cluster.options.relay()
            patience_us = settings.idle_us + TICKS_MORE * settings.tick_us
            if self._cluster.now_us - since_us > patience_us:
                raise self.broken(f"{name} serves nobody of {partition_id} since {since_us} us")
