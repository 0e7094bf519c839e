"""The consumers at this node, and the lane by which those far behind get what they want."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hocket.core.relay.events import Deliver
from hocket.core.relay.messages import Piece
from hocket.core.relay.window import size_of


@dataclass(slots=True)
class Consumer:
    """Credit is counted in bytes of batches as they lie in the log."""

    number: int
    next_offset: int
    credit_bytes: int  # below 0: one batch was larger than all of it, which has to be made good
    taking_bytes: int = 0  # delivered, and no credit given for it yet
    needed_bytes: int = 0  # the size of the next batch, if that is known not to fit just now

    @property
    def is_eager(self) -> bool:
        if self.credit_bytes <= 0:
            return False
        return self.taking_bytes == 0 or self.credit_bytes >= self.needed_bytes

    def credit(self, count_bytes: int) -> None:
        self.credit_bytes += count_bytes
        self.taking_bytes = max(0, self.taking_bytes - count_bytes)

    def fits(self, pieces: tuple[Piece, ...]) -> bool:
        """A batch larger than the credit comes alone, when the consumer has nothing else to do."""
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


class Lane:
    """One question to the owner at a time, for one consumer that wants what is older than the
    window; the consumers take turns. Two fetches at most are out: this one, and the parent's."""

    __slots__ = ("consumer", "offset", "request", "resting", "silent")

    def __init__(self) -> None:
        self.consumer = 0  # whom the last question was for
        self.offset = 0
        self.request = 0  # 0: none is out
        self.silent = 0  # ticks since the owner should have answered, however often it was asked
        self.resting = False  # there was nothing: not before the next tick

    def choose(self, consumers: Iterable[Consumer], before: int) -> Consumer | None:
        """The next one in turn of those that have credit, and go on before this offset."""
        behind = [each for each in consumers if each.is_eager and each.next_offset < before]
        if not behind:
            return None
        return min(behind, key=lambda each: (each.number <= self.consumer, each.number))

    def asked(self, consumer: Consumer, request: int) -> None:
        self.consumer = consumer.number
        self.offset = consumer.next_offset
        self.request = request

    def ended(self, *, resting: bool = False) -> None:
        self.request = 0
        self.silent = 0
        self.resting = resting
