"""The cores of a client redial, ask again and open again what they had open. As long as no
fault has struck they have no reason to; a node that gives them one would be hidden by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker
from hocket.sim.client import REPAIRS

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class ClientsMendNothingBeforeAnythingFails(Checker):
    name = "clients_mend_nothing_before_anything_fails"
    sentence = "Before the first fault no client has anything to mend."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def after_event(self) -> None:
        cluster = self._cluster
        if cluster.faults.counts:
            return
        if cluster.links.faults and self._are_nodes_needed_together():
            return  # what is lost or late brings about elections, and feeds that are refused
        self.seen += 1
        for client in self._cluster.workload.clients:
            for kind in REPAIRS:
                if client.mended[kind] and not self._has_gone_home():
                    raise self.broken(f"{client.name}: {kind} {client.mended[kind]} times")

    def _are_nodes_needed_together(self) -> bool:
        clients = self._cluster.workload.clients
        return bool(self._cluster.options.replicas) or any(each.feeds for each in clients)

    def _has_gone_home(self) -> bool:
        """A group whose home heard of it late is handed over to it, and clients follow."""
        return any(len(each.leaders) > 1 for each in self._cluster.copies.stories.values())

    def at_end(self) -> None:
        self.after_event()
