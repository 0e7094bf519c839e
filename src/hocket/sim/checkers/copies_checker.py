"""What the checkers of replicated partitions share: each looks at the copies that an event moved.

Copies of topics that administrators make and delete are looked at like the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy


class CopiesChecker(Checker):
    looks_at = "copies"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._view = cluster.copies

    def after_event(self) -> None:
        for copy in self._view.moved:
            self.look(copy)

    def look(self, copy: Copy) -> None:
        """The copy has moved; `copy.was` is how it was before."""
