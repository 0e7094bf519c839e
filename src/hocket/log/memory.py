"""The memory tier of one group: its newest entries, in slabs.

The memory tier always holds the end of the log, without a gap: reads at or behind `start_offset`
are answered here, all others from segment files. An entry may leave memory only when it is in a
segment file.
"""

from __future__ import annotations

from bisect import bisect_right

from hocket.log.model import RawEntries, ReadResult
from hocket.log.slab import Slab
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES

_BATCH = int(EntryKind.BATCH)


class MemoryTier:
    __slots__ = ("bytes", "slabs")

    def __init__(self) -> None:
        self.slabs: list[Slab] = []
        self.bytes = 0  # of the entries that have not left memory

    @property
    def start_offset(self) -> int | None:
        """The base offset of the oldest entry in memory; None when memory is empty."""
        if not self.slabs:
            return None
        slab = self.slabs[0]
        return slab.bases[slab.live]

    def capacity_for(self, size: int, *, least: int, most: int) -> int:
        """Of the next slab: as much as memory holds now, so a group has at most twice its need."""
        capacity = min(max(self.bytes, least), most)
        return max(size, capacity)

    def read(self, offset: int, *, bytes_max: int, end_offset: int) -> ReadResult:
        """Batches from the one that holds `offset`, which must be in memory."""
        at = bisect_right(self.slabs, offset, key=_base_of) - 1
        number = bisect_right(self.slabs[at].bases, offset) - 1
        start = self.slabs[at].bases[number]
        slices: list[memoryview] = []
        total, end, goes_on = 0, offset, True
        while goes_on and at < len(self.slabs):
            size, behind, goes_on = self.slabs[at].gather(
                slices, number, end_offset=end_offset, bytes_max=bytes_max - total
            )
            total += size
            end = behind or end
            at += 1
            number = 0
        return ReadResult(slices, start, end, total)

    def place(self, index: int) -> tuple[int, int] | None:
        """(Number of the slab, number in it) of this entry; None if it is not in memory."""
        at = bisect_right(self.slabs, index, key=_first_index_of) - 1
        if at < 0 or index - self.slabs[at].first_index >= len(self.slabs[at]):
            return None
        return at, index - self.slabs[at].first_index

    def entry(self, index: int) -> memoryview | None:
        """The body of this entry; None if it is not in memory."""
        place = self.place(index)
        if place is None or place[1] < self.slabs[place[0]].live:
            return None
        slab, number = self.slabs[place[0]], place[1]
        start = slab.positions[number] + HEADER_BYTES
        return slab.view[start : start + slab.header(number).length]

    def read_raw(self, at: int, number: int, *, end_index: int, bytes_max: int) -> RawEntries:
        """Entries of all kinds from this place on, one at least, as long as none is missing."""
        slab = self.slabs[at]
        first = slab.header(number)
        term = slab.previous_term if number == 0 else slab.header(number - 1).term
        found = RawEntries([], first.index, first.index, term, first.previous_crc, 0)
        for slab in self.slabs[at:]:
            if slab.first_index + number != found.end_index:
                break  # the entries between the two are lost
            stop = min(end_index - slab.first_index, len(slab))
            start = slab.position_of(number)
            if slab.position_of(stop) - start > bytes_max - found.bytes:
                fitting = bisect_right(slab.positions, start + bytes_max - found.bytes) - 1
                stop = min(max(fitting, number + (not found.bytes)), stop)
            if stop <= number:
                break
            found.slices.append(slab.view[start : slab.position_of(stop)])
            found.bytes += len(found.slices[-1])
            found.end_index = slab.first_index + stop
            if stop < len(slab):
                break
            number = 0
        return found

    def offset_at_time(self, timestamp_us: int, *, from_offset: int) -> int | None:
        """The first offset from `from_offset` on whose batch reaches this time."""
        for slab in self.slabs:
            if slab.end_offset <= from_offset:
                continue
            for number in range(slab.live, len(slab)):
                header = slab.header(number)
                if header.kind != _BATCH or header.end_offset <= from_offset:
                    continue
                if header.max_timestamp >= timestamp_us:
                    return max(header.base_offset, from_offset)
        return None

    def lets_go(self, appended_until_us: int, bytes_max: int) -> bool:
        """Whether `evict` would find something too old, or too much."""
        if not self.slabs:
            return False
        if self.bytes > bytes_max:
            return True
        slab = self.slabs[0]
        times, live = slab.times, slab.live  # there is a time for each entry
        return live >= len(times) or times[live] <= appended_until_us

    def evict(self, *, appended_until_us: int, bytes_max: int) -> bool:
        """Let go of what is too old or too much.

        True if more would have to go, but is not in a segment file yet.
        """
        while self.slabs:
            slab = self.slabs[0]
            due = bisect_right(slab.times, appended_until_us, slab.live)
            if self.bytes > bytes_max:
                surplus = slab.position_of(slab.live) + self.bytes - bytes_max
                due = max(due, slab.number_at(surplus))
            if due <= slab.live:
                return False
            may_go = min(due, slab.number_at(slab.written))
            if may_go > slab.live:
                self.bytes -= slab.position_of(may_go) - slab.position_of(slab.live)
                slab.live = may_go
            if slab.live < len(slab):
                return may_go < due
            del self.slabs[0]
        return False


def _base_of(slab: Slab) -> int:
    return slab.bases[0]


def _first_index_of(slab: Slab) -> int:
    return slab.first_index
