"""T2: no relay has more children than it may have, and no cycle outlives a repair.

A cycle cannot be excluded, since news of a move takes time. Its nodes notice it by the ancestors
that every answer names, or at the latest by getting nothing for some time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker
from hocket.sim.tree_view import RelayWithChildren, cycles_in

if TYPE_CHECKING:
    from hocket.model import PartitionId
    from hocket.sim.cluster import Cluster

REPAIR_US_MAX = 6_000_000  # the wait for a silent parent, and a step further up


class ChildrenAreBoundedAndTreesHaveNoCycle(Checker):
    name = "children_are_bounded_and_trees_have_no_cycle"
    sentence = "No relay has more children than it may have, and no cycle outlives a repair."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._acyclic: dict[PartitionId, dict[str, str]] = {}  # trees that are known to be such
        self._cycles: dict[tuple[PartitionId, tuple[str, ...]], int] = {}  # and since when

    def after_event(self) -> None:
        trees: dict[PartitionId, dict[str, str]] = {}  # the parents in each
        for machine in self._cluster.machines:
            if machine.node is not None:
                for partition_id, relay in machine.node.relays.cores.items():
                    parents = trees.setdefault(partition_id, {})
                    self._count_children(relay)
                    if not relay.is_owner and relay.parent is not None:
                        parents[relay.me.node] = relay.parent.node
        cycles, now_us = {}, self._cluster.now_us
        for partition_id, parents in trees.items():
            self.seen += 1
            if parents == self._acyclic.get(partition_id):
                continue
            found = cycles_in(parents)
            for cycle in found:
                since_us = self._cycles.get((partition_id, cycle), now_us)
                cycles[partition_id, cycle] = since_us
                if now_us - since_us > REPAIR_US_MAX:
                    raise self.broken(f"{' -> '.join(cycle)} for {now_us - since_us} us")
            if not found:
                self._acyclic[partition_id] = parents
        self._cycles = cycles

    def _count_children(self, relay: RelayWithChildren) -> None:
        if len(relay.children) > relay.settings.children_max:
            children = " ".join(contact.node for contact in relay.children.contacts)
            raise self.broken(f"{relay.me.node} has {children}")
