"""O6 for the tree: nothing at or beyond the owner's committed end is ever delivered.

What is not committed may still be lost in a crash of the owner, and replaced by something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class OnlyCommittedBatchesAreRelayed(Checker):
    name = "only_committed_batches_are_relayed"
    sentence = "Nothing is given to a consumer before its owner has committed it."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._next: dict[int, int] = {}  # by consumer

    def after_event(self) -> None:
        for consumer in self._cluster.consumers:
            if consumer.next_offset > self._next.get(consumer.number, 0):
                self._next[consumer.number] = consumer.next_offset
                self.seen += 1
                end = self._cluster.committed_end(consumer.partition_id)
                if consumer.next_offset > end:
                    raise self.broken(
                        f"consumer {consumer.number} of {consumer.partition_id} was given offset"
                        f" {consumer.next_offset - 1}; committed up to {end}"
                    )
