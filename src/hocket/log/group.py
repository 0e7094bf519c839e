"""One group of a live store: where its log ends, and which of its entries are where.

Three ends follow one another: `written` (in segment files) <= `durable` (in the WAL) <= `end`
(appended). Every entry behind `written` is in memory; some entries before it may be, too.
All of this is touched by the node's thread only; jobs get views and plain values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.log.checkpoint import GroupRecord
from hocket.log.envelope import SECTION_BYTES
from hocket.log.memory import MemoryTier
from hocket.log.model import Damage, LogEnd, NewEntry
from hocket.log.segment import Points, Segment, SegmentRecord
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.slab import Slab
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, padded

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BATCH = int(EntryKind.BATCH)


@dataclass(slots=True)
class Taken:
    """What a commit took from a group."""

    views: list[memoryview] = field(default_factory=list)
    content_bytes: int = 0  # of the entries and of the heads of their sections
    end: LogEnd | None = None  # how the log ends with what was taken; None: nothing was taken
    all: bool = True  # whether everything was taken


@dataclass(slots=True)
class SlabWrite:
    """A part of a slab that a checkpoint writes to its segment file."""

    slab: Slab
    until: int

    @property
    def view(self) -> memoryview:
        return self.slab.view[self.slab.written : self.until]


class GroupLog:
    __slots__ = (
        "commits", "damage", "deleted", "disk_reads", "durable", "end", "has_directory",
        "held_index", "id", "limits", "log_start", "memory", "memory_reads", "record",
        "reserved_bytes", "segments", "settings", "unsent", "unwritten", "unwritten_bytes",
        "written",
    )  # fmt: skip

    def __init__(self, number: int, limits: LogSettings, record: GroupRecord | None = None) -> None:
        self.id = number
        self.limits = limits
        self.settings = GroupSettings()
        self.record = record or GroupRecord(number)  # the group as the last checkpoint has it
        self.segments = [Segment.of(number, each) for each in self.record.segments]
        for segment in self.segments[:-1]:
            segment.full = segment.index_is_written = True
        if self.segments and self.segments[-1].end_index != self.record.end.next_index:
            self.segments[-1].full = True  # the entries behind it are lost
        self.memory = MemoryTier()
        self.end = self.durable = self.written = self.record.end
        self.log_start = self.record.log_start
        self.damage = list(self.record.damage)  # by offset
        self.unsent: deque[Slab] = deque()  # slabs with entries that no commit has taken yet
        self.unwritten: deque[Slab] = deque()  # slabs with entries that are in no segment file
        self.unwritten_bytes = 0
        # Commits with entries that are in no checkpoint yet: LSN, last index of this group in it.
        self.commits: deque[tuple[int, int]] = deque()
        self.has_directory = False  # in this run it was made, and strangers in it removed
        self.deleted = False
        self.held_index: int | None = None  # entries from here on are kept, even below log_start
        self.reserved_bytes = 0  # room on the disk that is kept for entries of this group
        self.memory_reads = 0
        self.disk_reads = 0

    # --- appending ---------------------------------------------------------------------------

    def append(self, entry: NewEntry, now_us: int) -> int:
        """Put a new entry at the end. Returns its size."""
        end = self.end
        body = memoryview(entry.body)
        if body.format != "B" or body.ndim != 1:
            body = body.cast("B")
        length = len(body)
        assert entry.index == end.next_index, f"index {entry.index} after {end}"
        assert entry.base_offset == end.next_offset, f"offset {entry.base_offset} after {end}"
        assert entry.term >= end.term, f"term {entry.term} after {end}"
        assert (entry.kind == _BATCH) == (entry.count > 0), f"a {entry.kind=} of {entry.count=}"
        packed = pack_header(
            length=length, kind=entry.kind, codec=entry.codec, flags=entry.flags,
            count=entry.count, term=entry.term, index=entry.index, base_offset=entry.base_offset,
            previous_crc=end.last_crc, body_crc=entry.body_crc, max_timestamp=entry.max_timestamp,
        )  # fmt: skip
        size = HEADER_BYTES + padded(length)
        slab = self._slab_for(size)
        if slab.sent == slab.used:
            self.unsent.append(slab)
        slab.put(packed, body, kind=entry.kind)
        end_offset = entry.base_offset + entry.count
        self._placed(slab, size, end_offset, entry.base_offset, entry.max_timestamp, now_us)
        crc = int.from_bytes(packed[:4], "little")
        self.end = LogEnd(entry.index + 1, end_offset, crc, entry.term)
        return size

    def replay(self, header: Header, packed: Buffer, body: memoryview, now_us: int) -> memoryview:
        """Put back an entry that the WAL holds, at the end. Returns its body, in memory."""
        slab = self._slab_for(header.size)
        position = slab.put(bytes(packed), body, kind=header.kind)
        slab.sent = slab.used
        self._placed(
            slab, header.size, header.end_offset, header.base_offset, header.max_timestamp, now_us
        )
        self.end = LogEnd(header.index + 1, header.end_offset, header.crc, header.term)
        return slab.view[position + HEADER_BYTES : position + HEADER_BYTES + header.length]

    def skip_to(self, end: LogEnd, damage: Damage) -> None:
        """Go on at `end`: the entries between the log's end and `end` are lost."""
        self.note(damage)
        self.end = end
        if self.segments:
            self.segments[-1].full = True  # indexes are consecutive within a segment

    def _slab_for(self, size: int) -> Slab:
        segment = self._segment_for(size)
        slabs = self.memory.slabs
        if slabs:
            slab = slabs[-1]
            if slab.segment is segment and slab.capacity - slab.used >= size:
                return slab
        capacity = self.memory.capacity_for(
            size, least=self.limits.slab_bytes_min, most=self.limits.slab_bytes
        )
        slab = Slab(capacity, segment, start=segment.size, first_index=self.end.next_index)
        slabs.append(slab)
        return slab

    def _segment_for(self, size: int) -> Segment:
        if self.segments:
            segment = self.segments[-1]
            if not segment.full and (
                segment.size == 0 or segment.size + size <= self.settings.segment_bytes_max
            ):
                return segment
            segment.full = True
        base, first = self.end.next_offset, self.end.next_index
        segment = Segment(self.id, base, first, base, first, points=Points())
        self.segments.append(segment)
        return segment

    def _placed(
        self, slab: Slab, size: int, end_offset: int, base: int, stamp: int, now_us: int
    ) -> None:
        times = slab.times
        slab.bases.append(base)
        times.append(now_us if not times or now_us > times[-1] else times[-1])
        slab.end_offset = end_offset
        slab.segment.added(
            size, base_offset=base, end_offset=end_offset, timestamp=stamp,
            interval=self.limits.index_interval_bytes,
        )  # fmt: skip
        if not self.unwritten or self.unwritten[-1] is not slab:
            self.unwritten.append(slab)
        self.memory.bytes += size
        self.unwritten_bytes += size

    # --- the WAL -------------------------------------------------------------------------------

    @property
    def first_unsent_bytes(self) -> int:
        """The size of the first entry that no commit has taken."""
        slab = self.unsent[0]
        return slab.position_of(slab.number_at(slab.sent) + 1) - slab.sent

    def take(self, bytes_max: int) -> Taken:
        """Entries for a commit, in order; `bytes_max` includes the heads of their sections."""
        taken = Taken()
        while self.unsent:
            slab = self.unsent[0]
            until = slab.used
            if SECTION_BYTES + until - slab.sent > bytes_max - taken.content_bytes:
                room = slab.sent + bytes_max - taken.content_bytes - SECTION_BYTES
                until = slab.position_of(max(slab.number_at(room + 1) - 1, 0))
                taken.all = False
                if until <= slab.sent:
                    return taken
            taken.views.append(slab.view[slab.sent : until])
            taken.content_bytes += SECTION_BYTES + until - slab.sent
            taken.end = slab.end_after(slab.number_at(until) - 1)
            slab.sent = until
            if not taken.all:
                return taken
            self.unsent.popleft()
        return taken

    # --- segments --------------------------------------------------------------------------------

    def slab_writes(self, last_index: int) -> tuple[list[SlabWrite], LogEnd]:
        """What to write so that the segments hold all entries up to `last_index` and no others."""
        writes: list[SlabWrite] = []
        end = self.written
        for slab in self.unwritten:
            number = slab.number_of_index(last_index + 1)
            until = slab.position_of(number)
            if until <= slab.written:
                break
            writes.append(SlabWrite(slab, until))
            end = slab.end_after(number - 1)
            if until < slab.used:
                break
        else:
            end = self.durable  # which may lie behind entries that are lost
        return writes, end

    def were_written(self, writes: list[SlabWrite], end: LogEnd) -> int:
        """These writes are in their files and synced. Returns how many bytes they were."""
        total = 0
        for write in writes:
            slab = write.slab
            total += write.until - slab.written
            slab.written = write.until
            slab.segment.written = slab.start + write.until
            slab.segment.file_is_clean = True
            if slab.written == slab.used and self.unwritten and self.unwritten[0] is slab:
                self.unwritten.popleft()
        self.written = end
        self.unwritten_bytes -= total
        return total

    def segment_record(self, segment: Segment) -> SegmentRecord:
        """The segment as far as it is written."""
        end_offset, end_index = segment.end_offset, segment.end_index
        if segment.written < segment.size:
            end_offset, end_index = self.written.next_offset, self.written.next_index
        return SegmentRecord(
            segment.base_offset, segment.first_index, end_offset, end_index, segment.written,
            segment.max_timestamp,
        )  # fmt: skip

    def segment_records(self) -> tuple[SegmentRecord, ...]:
        return tuple(self.segment_record(each) for each in self.segments if each.written)

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds this offset, which must have been written."""
        return self.segments[bisect_right(self.segments, offset, key=_base_of) - 1]

    def segment_of_index(self, index: int) -> Segment | None:
        """The segment whose file holds this entry; None if no file does."""
        number = bisect_right(self.segments, index, key=_first_index_of) - 1
        if number < 0 or index >= self.segment_record(self.segments[number]).end_index:
            return None
        return self.segments[number]

    # --- damage ----------------------------------------------------------------------------------

    def note(self, damage: Damage) -> None:
        for each in self.damage:
            if each.place == damage.place or (each.accepted and each.covers(damage)):
                return
        self.damage.append(damage)
        self.damage.sort(key=lambda each: each.start)

    @property
    def lasting_damage(self) -> tuple[Damage, ...]:
        return tuple(damage for damage in self.damage if damage.is_lasting)

    @property
    def is_changed(self) -> bool:
        """Whether the group has entries or damage that the last checkpoint does not know."""
        return self.end != self.record.end or self.lasting_damage != self.record.damage

    @property
    def tail_damage(self) -> Damage | None:
        for damage in self.damage:
            if damage.end is None and not damage.accepted:
                return damage
        return None

    def readable_from(self, offset: int) -> int:
        """`offset`, or the end of an accepted loss that it lies in. Raises CorruptData."""
        for damage in self.damage:
            if damage.end is None or not damage.start <= offset < damage.end:
                continue
            if not damage.accepted:
                raise damage.as_error(self.id)
            offset = damage.end
        return offset

    def readable_until(self, offset: int, end_offset: int) -> int:
        """The end of what can be read from `offset` on without running into damage."""
        for damage in self.damage:
            lies_ahead = offset < damage.start < end_offset
            if lies_ahead and damage.end is not None and damage.end > damage.start:
                return damage.start
        return end_offset

    @property
    def problem(self) -> str:
        return "; ".join(str(each) for each in self.damage if not each.accepted)


def _base_of(segment: Segment) -> int:
    return segment.base_offset


def _first_index_of(segment: Segment) -> int:
    return segment.first_index
