"""C5: of an index that is shared by key, the messages of a key go to workers in their order.

Whoever gets them: of two messages of a key in one partition, the first is handed out for the first
time before the second is, also if their leader, or the worker that had them, has died between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.subscribers import Entry, Office, Place


class MessagesOfAKeyAreHandedOutInOrder(Checker):
    name = "messages_of_a_key_are_handed_out_in_order"
    sentence = "Messages of a key are handed out, for the first time, in their order."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read: dict[str, int] = {}  # by topic: entries of its workers' diary
        self._given: set[tuple[str, Place]] = set()
        self._last: dict[tuple[str, int, bytes], int] = {}  # topic, partition, key -> offset

    def after_event(self) -> None:
        for office in self._cluster.workload.offices:
            if office.mode == "key_shared":
                for entry in office.diary[self._read.get(office.topic, 0) :]:
                    self._look(office, entry)
                self._read[office.topic] = len(office.diary)

    def _look(self, office: Office, entry: Entry) -> None:
        partition, offset = entry.place
        if not entry.key or (office.topic, entry.place) in self._given:
            return
        self.seen += 1
        self._given.add((office.topic, entry.place))
        key = office.topic, partition, entry.key
        if offset < self._last.get(key, 0):
            raise self.broken(
                f"{entry.worker} was handed {offset} of {office.topic}/{partition}, and "
                f"{self._last[key]}, of the same key {entry.key!r}, was handed out before"
            )
        self._last[key] = offset

    def at_end(self) -> None:
        self.after_event()
