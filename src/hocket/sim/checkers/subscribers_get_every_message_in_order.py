"""C1: a subscription with an own index hands out offset after offset, however often it is opened
again at another node. A subscriber that was killed goes on between what it was told is acknowledged
for good and what it had acknowledged at all; nothing before comes again, and nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import PartitionId
from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.subscribers import Subscriber, Taken


class SubscribersGetEveryMessageInOrder(Checker):
    name = "subscribers_get_every_message_in_order"
    sentence = "A subscriber is handed message after message, from where it has acknowledged."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read: dict[str, int] = {}  # by subscriber: entries of its diary
        self._next: dict[tuple[str, int, int], int] = {}  # by subscriber, life and partition
        self._first: dict[tuple[str, int], int] = {}  # by subscriber and partition

    def after_event(self) -> None:
        for subscriber in self._cluster.workload.subscribers:
            read = self._read.get(subscriber.name, 0)
            for taken in subscriber.diary[read:]:
                self.seen += 1
                self._look(subscriber, taken)
            self._read[subscriber.name] = len(subscriber.diary)

    def _look(self, subscriber: Subscriber, taken: Taken) -> None:
        key = subscriber.name, taken.life, taken.partition
        begins_at_least, begins_at_most = (
            each.get(taken.partition, 0) for each in subscriber.begins[taken.life]
        )
        expected = self._next.get(key)
        self._next[key] = taken.offset + 1
        first = self._first.setdefault((subscriber.name, taken.partition), taken.offset)
        if first == taken.offset and not begins_at_most:
            # Its index was not there yet, and held nothing back: older records may have gone.
            begins_at_most = self._start_of(subscriber.topic, taken.partition)
        if expected is None and not begins_at_least <= taken.offset <= begins_at_most:
            raise self.broken(
                f"{subscriber.name} began its life {taken.life} in partition {taken.partition} at "
                f"{taken.offset}, and not between {begins_at_least} and {begins_at_most}"
            )
        if expected is not None and taken.offset != expected:
            raise self.broken(
                f"{subscriber.name} was handed offset {taken.offset} of partition "
                f"{taken.partition} where {expected} is next"
            )

    def _start_of(self, topic: str, partition: int) -> int:
        """The oldest record that may still be read, as the committed entries say."""
        if self._cluster.options.kept_bytes is None:
            return 0
        story = self._cluster.copies.story_of(PartitionId(topic, partition))
        return 0 if story is None else story.log_start

    def at_end(self) -> None:
        self.after_event()
        for subscriber in self._cluster.workload.subscribers:
            given: dict[tuple[int, int], bytes] = {}
            for taken in subscriber.diary:
                if given.setdefault(taken[1:3], taken.value) != taken.value:
                    raise self.broken(f"{subscriber.name} was handed two records for {taken[1:3]}")
            for partition in range(self._cluster.options.partitions):
                place = PartitionId(subscriber.topic, partition)
                if place in self._cluster.workload.given_up:
                    continue
                published = self._cluster.committed(place)
                first = self._first.get((subscriber.name, partition), 0)
                for offset, value in published.items():
                    if offset >= first and given.get((partition, offset)) != value:
                        raise self.broken(
                            f"{subscriber.name} was handed {given.get((partition, offset))!r} at "
                            f"offset {offset} of partition {partition}, and {value!r} is there"
                        )
