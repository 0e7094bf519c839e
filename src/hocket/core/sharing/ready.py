"""The consumers of a shared index that have credit, in the order in which they are served."""

from __future__ import annotations

from bisect import bisect_left, insort

from hocket.core.sharing.consumer import Consumer


class Ready:
    """A consumer is taken out before its rank or its credit changes, and put back behind that."""

    __slots__ = ("ranks",)

    def __init__(self) -> None:
        self.ranks: list[tuple[bool, int, int]] = []  # sorted; see Consumer.rank

    def add(self, consumer: Consumer) -> None:
        """Put the consumer among those that are ready, if it has credit."""
        if consumer.bytes_left > 0 and consumer.messages_left > 0 and not consumer.sated_until_us:
            insort(self.ranks, consumer.rank)

    def remove(self, consumer: Consumer) -> None:
        at = bisect_left(self.ranks, consumer.rank)
        if at < len(self.ranks) and self.ranks[at] == consumer.rank:
            del self.ranks[at]
