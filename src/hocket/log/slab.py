"""A slab: a piece of the memory tier with some entries of one group, as in their segment file.

The bytes are written once and never moved: the WAL, the segment file and the network all take
memoryviews of them, on other threads too, while later entries are added behind. A slab lies within
one segment, and its indexes are consecutive: a position in the slab, plus `start`, is a position
in the file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from hocket.log.model import LogEnd
from hocket.model import EntryKind
from hocket.wire.entry import HEADER, HEADER_BYTES, Header

if TYPE_CHECKING:
    from hocket.log.segment import Segment

_BATCH = int(EntryKind.BATCH)


class Slab:
    """Invariant: 0 <= written <= sent <= used <= capacity; the first three lie between entries."""

    __slots__ = (
        "bases", "capacity", "data", "end_offset", "first_index", "live", "others", "positions",
        "previous_term", "segment", "sent", "stamp", "start", "times", "used", "view", "written",
    )  # fmt: skip

    def __init__(
        self, capacity: int, segment: Segment, *, start: int, first_index: int, previous_term: int
    ) -> None:
        self.capacity = capacity
        self.data = memoryview(bytearray(capacity))
        self.view = self.data.toreadonly()
        self.segment = segment
        self.start = start  # where in the segment the slab begins
        self.first_index = first_index
        self.previous_term = previous_term  # of the entry before the first one here
        self.stamp = segment.max_timestamp  # of the batches before the slab in its segment
        self.end_offset = 0
        self.used = 0
        self.sent = 0  # bytes given to the WAL
        self.written = 0  # bytes that are in the segment file
        self.live = 0  # the number of the first entry that has not left memory
        self.positions = array("Q")  # of each entry: where it begins,
        self.bases = array("Q")  # its base offset,
        self.times = array("Q")  # and when it was appended, in microseconds
        self.others = array("L")  # the numbers of the entries that are not batches

    def put(self, header: bytes, body: memoryview, *, kind: int) -> int:
        """Add an entry, for which there must be room. Returns its position."""
        length = len(body)
        position = self.used
        body_start = position + HEADER_BYTES
        self.data[position:body_start] = header
        self.data[body_start : body_start + length] = body
        if kind != _BATCH:
            self.others.append(len(self.positions))
        self.positions.append(position)
        self.used = body_start + ((length + 7) & ~7)
        return position

    def cut(self, number: int, end_offset: int) -> None:
        """Let go of entry `number` and those behind it. Nothing is put into the slab any more.

        Their bytes stay as they are: the WAL and the network may be sending them.
        """
        self.used = self.capacity = self.positions[number]
        self.sent = min(self.sent, self.used)
        self.end_offset = end_offset
        del self.positions[number:]
        del self.bases[number:]
        del self.times[number:]
        del self.others[bisect_left(self.others, number) :]

    def latest_stamp(self) -> int:
        """The latest timestamp of all batches in the segment up to the end of the slab."""
        return max(self.stamp, *(self.header(each).max_timestamp for each in range(len(self))))

    def __len__(self) -> int:
        return len(self.positions)

    def position_of(self, number: int) -> int:
        """Where entry `number` begins; the end of the slab for the one that comes next."""
        return self.positions[number] if number < len(self.positions) else self.used

    def number_at(self, position: int) -> int:
        """How many entries begin before `position`."""
        return bisect_left(self.positions, position)

    def number_of_index(self, index: int) -> int:
        """How many entries have an index below `index`."""
        return min(max(index - self.first_index, 0), len(self.positions))

    def header(self, number: int) -> Header:
        return Header._make(HEADER.unpack_from(self.data, self.positions[number]))

    def end_after(self, number: int) -> LogEnd:
        """How the log would end if entry `number` were its last."""
        header = self.header(number)
        return LogEnd(header.index + 1, header.end_offset, header.crc, header.term)

    def gather(
        self, slices: list[memoryview], number: int, *, end_offset: int, bytes_max: int
    ) -> tuple[int, int, bool]:
        """Add batches from entry `number` on, below `end_offset`, in as few slices as possible.

        If there are no slices yet, one batch is taken even if it is larger than `bytes_max`.
        Returns (their bytes, the offset behind them or 0, whether the slab was used up).
        """
        total = end = 0
        stop = bisect_left(self.bases, end_offset, number)
        while number < stop:
            run_end = self._run_end(number, stop)
            if run_end == number:
                number += 1
                continue
            position = self.positions[number]
            taken = self._taken(number, run_end, position + bytes_max - total)
            if taken == number:
                if slices:
                    return total, end, False
                taken = number + 1
            slices.append(self.view[position : self.position_of(taken)])
            total += len(slices[-1])
            end = self.bases[taken] if taken < len(self.bases) else self.end_offset
            if taken < run_end:
                return total, end, False
            number = taken
        return total, end, stop == len(self.bases)

    def _run_end(self, number: int, stop: int) -> int:
        """The number behind the last of the batches that follow each other from `number` on."""
        at = bisect_left(self.others, number)
        return min(self.others[at], stop) if at < len(self.others) else stop

    def _taken(self, number: int, run_end: int, position_max: int) -> int:
        """The number behind the last batch of [number, run_end) that ends by `position_max`."""
        if self.position_of(run_end) <= position_max:
            return run_end
        if position_max < self.positions[number]:
            return number
        return max(bisect_right(self.positions, position_max, number, run_end) - 1, number)
