"""The consumers at this node, their credit, and what they are given.

Rule: a consumer gets batches in order, without a gap, and within its credit. A batch that is larger
than the credit comes alone, when the consumer has taken all that it was given before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hocket.core.relay.committed import Committed
from hocket.core.relay.events import Deliver, Lost
from hocket.core.relay.messages import Piece
from hocket.core.relay.outbox import Outbox
from hocket.core.relay.recent import RecentBatches, size_of


@dataclass(slots=True)
class Consumer:
    """Credit is counted in bytes of batches as they lie in the log."""

    number: int
    next_offset: int
    credit_bytes: int  # below 0: a batch was larger than the credit, and the rest is owed
    taking_bytes: int = 0  # bytes that were delivered, and for which no credit came back yet
    needed_bytes: int = 0  # the size of the next batch, if that batch is known not to fit yet

    @property
    def is_eager(self) -> bool:
        if self.credit_bytes <= 0:
            return False
        return self.taking_bytes == 0 or self.credit_bytes >= self.needed_bytes

    def credit(self, count_bytes: int) -> None:
        self.credit_bytes += count_bytes
        self.taking_bytes = max(0, self.taking_bytes - count_bytes)

    def fits(self, pieces: tuple[Piece, ...]) -> bool:
        """A batch larger than the credit fits only if the consumer has nothing else to take."""
        size = size_of(pieces)
        if size <= self.credit_bytes or self.taking_bytes == 0:
            return True
        self.needed_bytes = size
        return False

    def take(self, pieces: tuple[Piece, ...], end: int) -> Deliver:
        size = size_of(pieces)
        self.credit_bytes -= size
        self.taking_bytes += size
        self.needed_bytes = 0
        self.next_offset = pieces[-1].end
        return Deliver(self.number, pieces, max(end, self.next_offset))


class Consumers:
    """The consumers by their number; only this class gives them something."""

    __slots__ = ("_by_number", "_committed", "_outbox", "_recent", "given_bytes")

    def __init__(self, outbox: Outbox, recent: RecentBatches, committed: Committed) -> None:
        self._outbox = outbox
        self._recent = recent
        self._committed = committed
        self._by_number: dict[int, Consumer] = {}
        self.given_bytes = 0  # of batches, to all that are or were here

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Consumer | None:
        return self._by_number.get(number)

    def put(self, consumer: Consumer) -> None:
        self._by_number[consumer.number] = consumer

    def drop(self, number: int) -> None:
        self._by_number.pop(number, None)

    def serve(self) -> None:
        """Give every consumer what it wants of the recent batches."""
        for consumer in self._by_number.values():
            self.serve_one(consumer)

    def serve_one(self, consumer: Consumer) -> None:
        recent = self._recent
        # Offsets are compared first: most consumers have all that there is.
        while recent.start <= consumer.next_offset < recent.end and consumer.is_eager:
            self.give(consumer, recent.take(consumer.next_offset, consumer.credit_bytes))

    def give(self, consumer: Consumer, pieces: tuple[Piece, ...]) -> None:
        """Deliver the pieces, if they fit."""
        if consumer.fits(pieces):
            self.given_bytes += size_of(pieces)
            self._outbox.effects.append(consumer.take(pieces, self._committed.end))

    def lose(self, consumer: Consumer, first: int) -> None:
        """What the consumer wants next is gone: it goes on at offset `first`."""
        self._outbox.effects.append(Lost(consumer.number, first))
        consumer.next_offset = first
