"""C3: what one of the workers of a shared index has acknowledged, and was told is durable, goes to
no worker again; and every message that was published goes to one of them at least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import PartitionId
from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.subscribers import Entry, Office, Place


class WhatIsAckedForGoodIsNotHandedOutAgain(Checker):
    name = "what_is_acked_for_good_is_not_handed_out_again"
    sentence = "A message that was acknowledged for good goes to no worker again."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read: dict[str, int] = {}  # by topic: entries of its workers' diary
        self._given: dict[tuple[str, Place], bytes] = {}
        self._done: dict[tuple[str, Place], str] = {}  # who has acknowledged it

    def after_event(self) -> None:
        for office in self._cluster.workload.offices:
            for entry in office.diary[self._read.get(office.topic, 0) :]:
                self._look(office, entry)
            self._read[office.topic] = len(office.diary)

    def _look(self, office: Office, entry: Entry) -> None:
        key = office.topic, entry.place
        if entry.value is None:
            self.seen += 1
            self._done[key] = entry.worker
        elif key in self._done:
            raise self.broken(
                f"{entry.worker} was handed {entry.place}, and {self._done[key]} had acknowledged "
                "it for good"
            )
        elif self._given.setdefault(key, entry.value) != entry.value:
            raise self.broken(f"{entry.worker} was handed another record at {entry.place}")

    def at_end(self) -> None:
        self.after_event()
        workload = self._cluster.workload
        for office in workload.offices:
            if workload.has_lost_letters(office):
                continue  # what is behind a message that dies waits for its dead letter
            for partition in range(self._cluster.options.partitions):
                place = PartitionId(office.topic, partition)
                if place in workload.given_up:
                    continue
                published = self._cluster.committed(place)
                for offset, value in published.items():
                    given = self._given.get((office.topic, (partition, offset)))
                    if given != value:
                        raise self.broken(
                            f"the workers of {office.topic} were handed {given!r} at offset "
                            f"{offset} of partition {partition}, and {value!r} is there"
                        )
