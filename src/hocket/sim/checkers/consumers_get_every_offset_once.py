"""T1: per consumer the tree yields exactly the offsets n, n + 1, and so on, whatever becomes of the
machines in between, and each with the record that was published there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.model import PartitionId
    from hocket.sim.cluster import Cluster
    from hocket.sim.workload import Consumer


class ConsumersGetEveryOffsetOnce(Checker):
    name = "consumers_get_every_offset_once"
    sentence = "Every consumer gets every offset once, in order, with the record of that offset."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read: dict[int, int] = {}  # by consumer: entries of its diary
        self._deliveries: dict[int, int] = {}
        self._values: dict[
            tuple[PartitionId, int], bytes
        ] = {}  # what the first who got it was given

    def after_event(self) -> None:
        for consumer in self._cluster.consumers:
            deliveries = self._deliveries.get(consumer.number, 0)
            if consumer.deliveries > deliveries:
                self._deliveries[consumer.number] = consumer.deliveries
                self._look(consumer, consumer.deliveries - deliveries)

    def at_end(self) -> None:
        self.after_event()
        for consumer in self._cluster.consumers:
            if consumer.partition_id in self._cluster.workload.given_up:
                continue
            published = self._cluster.committed(consumer.partition_id)
            for offset, value in published.items():
                given = self._values.get((consumer.partition_id, offset))
                if given is None or consumer.next_offset <= offset:
                    raise self.broken(f"consumer {consumer.number} has not got offset {offset}")
                if given != value:
                    raise self.broken(f"offset {offset} is {value!r}, and was given as {given!r}")

    def _look(self, consumer: Consumer, deliveries: int) -> None:
        read = self._read.get(consumer.number, 0)
        new = consumer.diary[read:]
        if len(new) < deliveries:
            raise self.broken(
                f"consumer {consumer.number}, at {consumer.next_offset}, was given what it had"
            )
        for offset, value in new:
            if offset != read:
                raise self.broken(
                    f"consumer {consumer.number} of {consumer.partition_id} was given"
                    f" offset {offset} where {read} is next"
                )
            if self._values.setdefault((consumer.partition_id, offset), value) != value:
                raise self.broken(
                    f"offset {offset} of {consumer.partition_id} is not the same for all"
                )
            self.seen += 1
            read += 1
        self._read[consumer.number] = read
