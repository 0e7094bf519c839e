"""The newest committed batches of a partition, in memory.

The recent batches move on whether everybody has read them or not, so one slow reader cannot hold up
the others. A reader that wants a batch that has fallen out takes it from the owner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from hocket.core.relay.messages import Piece

_START = attrgetter("start")
_COMPACT_AT = 256  # pieces that have fallen out before the list is made shorter


class RecentBatches:
    """Invariant: pieces follow on each other without a gap, from `start` to `end`.

    If there are none, `start` equals `end`, which is the offset that has to come next.
    """

    __slots__ = ("_bytes_max", "_first", "_pieces", "bytes", "end", "start")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[Piece] = []
        self._first = 0  # the index of the first piece that has not fallen out
        self.bytes = 0
        self.start = 0
        self.end = 0

    def __len__(self) -> int:
        return len(self._pieces) - self._first

    @property
    def is_empty(self) -> bool:
        return self._first == len(self._pieces)

    def reset(self, offset: int) -> None:
        """Forget all; go on at this offset."""
        self._pieces = []
        self._first = 0
        self.bytes = 0
        self.start = self.end = offset

    def accepts(self, pieces: Sequence[Piece]) -> bool:
        """The pieces follow on what is here, without a gap among them. A batch is whole everywhere,
        so only the first one of all may begin before the offset that was wanted."""
        if not follow(pieces, self.end):
            return False
        return self.is_empty or pieces[0].start == self.end

    def add(self, pieces: Sequence[Piece]) -> None:
        assert self.accepts(pieces)
        if self.is_empty:
            self.start = pieces[0].start
        self._pieces.extend(pieces)
        self.end = pieces[-1].end
        self.bytes += size_of(pieces)
        self.shrink(self._bytes_max)

    def shrink(self, bytes_max: int) -> None:
        """Let the oldest go until no more than so many bytes are left, or one piece."""
        while self.bytes > bytes_max and len(self) > 1:
            dropped = self._pieces[self._first]
            self.bytes -= len(dropped.data)
            self._first += 1
            self.start = dropped.end
        if self._first >= _COMPACT_AT and 2 * self._first >= len(self._pieces):
            del self._pieces[: self._first]
            self._first = 0

    def take(self, offset: int, credit_bytes: int) -> tuple[Piece, ...]:
        """The pieces from the one that holds `offset` on, within the credit; one at least."""
        assert self.start <= offset < self.end
        first = bisect_right(self._pieces, offset, self._first, key=_START) - 1
        return fitting(self._pieces, credit_bytes, first)


def follow(pieces: Sequence[Piece], offset: int) -> bool:
    """The first piece holds `offset`, and each other piece begins where the one before it ends."""
    if not pieces or not pieces[0].start <= offset < pieces[0].end:
        return False
    end = pieces[0].start
    for piece in pieces:
        if piece.start != end or piece.end <= piece.start:
            return False
        end = piece.end
    return True


def begin_behind(pieces: Sequence[Piece], offset: int) -> bool:
    """The log was read at `offset`, and what was there is lost: an operator has accepted that."""
    return bool(pieces) and pieces[0].start > offset


def within(pieces: Sequence[Piece], end: int) -> tuple[Piece, ...]:
    """The pieces that lie before `end`: what is at `end` or past it is not committed."""
    return tuple(piece for piece in pieces if piece.end <= end)


def fitting(pieces: Sequence[Piece], credit_bytes: int, first: int = 0) -> tuple[Piece, ...]:
    """As many pieces as the credit allows, from index `first` on; one at least."""
    left = credit_bytes - len(pieces[first].data)
    last = first + 1
    while last < len(pieces):
        left -= len(pieces[last].data)
        if left < 0:
            break
        last += 1
    return tuple(pieces[first:last])


def size_of(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.data) for piece in pieces)
