"""O6, and what the readers of a partition may see at all: committed records, as they were written.

What is not committed may yet be replaced by something else. A record that nobody wrote, or that
stands at another offset, is found here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import PartitionId
from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class NothingBeyondTheHighWatermarkIsDelivered(Checker):
    name = "nothing_beyond_the_high_watermark_is_delivered"
    sentence = "Readers are handed committed records only, as they were committed."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read: dict[str, int] = {}  # by subscriber: entries of its diary

    def after_event(self) -> None:
        for subscriber in self._cluster.workload.subscribers:
            read = self._read.get(subscriber.name, 0)
            self._read[subscriber.name] = len(subscriber.diary)
            for taken in subscriber.diary[read:]:
                place = PartitionId(subscriber.topic, taken.partition)
                story = self._cluster.copies.story_of(place)
                if story is None:
                    continue  # it has one replica
                self.seen += 1
                if story.values.get(taken.offset) != taken.value:
                    raise self.broken(
                        f"{subscriber.name} was handed {taken.value!r} at {taken.offset} of "
                        f"{story.where}; committed up to {story.end} is "
                        f"{story.values.get(taken.offset)!r}"
                    )

    def at_end(self) -> None:
        self.after_event()
