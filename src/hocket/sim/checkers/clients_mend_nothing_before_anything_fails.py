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
        if cluster.faults.counts or (cluster.options.replicas and cluster.links.faults):
            return  # messages that are lost or late bring about elections, and leaders that go
        self.seen += 1
        for client in self._cluster.workload.clients:
            for kind in REPAIRS:
                if client.mended[kind]:
                    raise self.broken(f"{client.name}: {kind} {client.mended[kind]} times")

    def at_end(self) -> None:
        self.after_event()
