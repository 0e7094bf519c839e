"""What consumers had when their links broke.

Whatever is settled of these messages while a consumer is away, another one has settled.
"""

from __future__ import annotations

from collections.abc import Mapping

from hocket.core.sharing.consumer import Consumer
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.ranges import Range, without

ABSENT_MAX = 1_000  # consumers without a link of which is remembered what they had


class Absences:
    def __init__(self) -> None:
        self._had: dict[bytes, dict[int, list[Range]]] = {}  # identity -> partition -> messages

    def note(self, consumer: Consumer, partitions: Mapping[int, Leases]) -> None:
        """Its link broke."""
        lost = consumer.lost
        self._had.pop(consumer.identity, None)
        self._had[consumer.identity] = {
            number: [*lost.get(number, ()), *leases.leased_by(consumer.number)]
            for number, leases in partitions.items()
        }
        if len(self._had) > ABSENT_MAX:
            del self._had[next(iter(self._had))]

    def end(self, consumer: Consumer, partitions: Mapping[int, Leases]) -> dict[int, list[Range]]:
        """It has come (back): what it has lost meanwhile, of partitions where it was before."""
        return {
            number: without(had, partitions[number].leased_by(consumer.number))
            for number, had in self._had.pop(consumer.identity, {}).items()
        }

    def forget(self, partition: int) -> None:
        """Another node leads this partition: who comes back to it was not here before."""
        for had in self._had.values():
            had.pop(partition, None)
