"""C4: a message that a worker has rejected for good is among the dead letters once, whoever died
meanwhile of those that lead its partition, or that of the dead letters; and nothing else is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hocket.model import DEAD_LETTERS, PartitionId
from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.subscribers import Office, Place


class EachMessageThatDiesHasOneDeadLetter(Checker):
    name = "each_message_that_dies_has_one_dead_letter"
    sentence = "A message that was rejected for good has one dead letter, and no other has one."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def at_end(self) -> None:
        for office in self._cluster.workload.offices:
            if office.rejects:
                self._look(office)

    def _look(self, office: Office) -> None:
        letters: Counter[Place] = Counter()
        for partition in range(self._cluster.options.partitions):
            story = self._cluster.copies.story_of(
                PartitionId(office.topic + DEAD_LETTERS, partition)
            )
            for stored in story.entries.values() if story is not None else ():
                for headers in stored.headers:
                    source = headers["hocket-dlq-partition"], headers["hocket-dlq-offset"]
                    letters[int(source[0] or b""), int(source[1] or b"")] += 1
        is_lost = self._cluster.workload.is_held_up(office)
        for place, is_sure in office.rejected.items():
            self.seen += is_sure
            if is_sure and not letters[place] and not is_lost:
                raise self.broken(f"{place} of {office.topic} was rejected, and has no dead letter")
        for place, count in letters.items():
            if count > 1 or place not in office.rejected:
                raise self.broken(f"{place} of {office.topic} has {count} dead letters")
