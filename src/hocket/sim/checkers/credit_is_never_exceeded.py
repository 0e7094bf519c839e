"""No consumer is sent more bytes than it gave credit for. A batch that is larger than all of the
credit is sent alone, when everything before it has been taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker
from hocket.wire import batch as batches

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster

RECORDS_MAX = 4  # of a batch, as the workload makes them
NAME_BYTES_MAX = 48  # that a record has besides what is chosen
STORED_BYTES_MAX = 64  # that a batch gains on its way into the log


class CreditIsNeverExceeded(Checker):
    name = "credit_is_never_exceeded"
    sentence = "No consumer is given more bytes than its credit, but for one large batch alone."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._deliveries: dict[int, int] = {}  # by consumer
        record = bytes(cluster.options.record_bytes_max + NAME_BYTES_MAX)
        largest = batches.encode(
            [record] * RECORDS_MAX,
            timestamps=cluster.now_us,
            producer_id=bytes(16),
            sequence=0,
            keys=[b"k"] * RECORDS_MAX if cluster.options.keyed else None,
        )
        self._batch_bytes_max = len(largest) + STORED_BYTES_MAX

    def after_event(self) -> None:
        for consumer in self._cluster.consumers:
            if consumer.deliveries == self._deliveries.get(consumer.number, 0):
                continue
            self._deliveries[consumer.number] = consumer.deliveries
            self.seen += 1
            if consumer.outstanding_bytes > max(consumer.credit_bytes, self._batch_bytes_max):
                raise self.broken(
                    f"consumer {consumer.number} has been given {consumer.outstanding_bytes} bytes"
                    f" for a credit of {consumer.credit_bytes}"
                )
