"""One group of a live store: where its log ends, and which of its entries are where.

Three ends follow one another: `written` (in segment files) <= `durable` (in the WAL) <= `end`
(appended). Every entry behind `written` is in memory; some entries before it may be, too. What is
behind `written` may be cut off again (`truncate`); what is before it was applied, and never is.
All of this is touched by the node's thread only; jobs get views and plain values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hocket.log.checkpoint import GroupRecord
from hocket.log.envelope import SECTION_BYTES, encode_notes
from hocket.log.memory import MemoryTier
from hocket.log.model import Damage, Fault, GroupStats, LogEnd, NewEntry, Truncation
from hocket.log.segment import Points, Segment, SegmentRecord
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.slab import Slab
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, padded

if TYPE_CHECKING:
    from typing_extensions import Buffer

UNKNOWN = (1 << 64) - 1  # an index: nobody knows which
_BATCH = int(EntryKind.BATCH)


@dataclass(slots=True)
class Taken:
    """What a commit took from a group."""

    views: list[memoryview] = field(default_factory=list)
    content_bytes: int = 0  # of the entries and of the heads of their sections
    end: LogEnd | None = None  # how the log ends with what was taken; None: nothing was taken
    all: bool = True  # whether everything was taken


@dataclass(slots=True)
class Truncated:
    """What was cut off a group's log."""

    unwritten_bytes: int = 0
    unsent_bytes: int = 0  # of those, the bytes that no commit had taken
    was_sent: bool = False  # the WAL has some of it, or will have it soon
    waiting_bytes: int = 0  # by how much less waits


@dataclass(slots=True)
class Carried:
    begin: LogEnd  # of what was in segments when it began ...
    through: int  # ... and the last index that was appended then
    commits: deque[tuple[int, int]] = field(default_factory=deque)


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
        "applied", "carried", "commits", "damage", "deleted", "disk_reads", "durable", "end",
        "has_directory", "held_index", "id", "leaves", "limits", "log_start", "memory",
        "memory_reads", "owed", "record", "reserved_bytes", "rewritten", "segments", "settings",
        "state", "truncations", "unsent", "unwritten", "unwritten_bytes", "waiting_bytes",
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
        # While the entries that are in no segment are written to the WAL once more (`carry`): the
        # commits that have them, which will take the place of `commits`.
        self.carried: Carried | None = None
        self.rewritten: Truncation | None = None  # where the WAL begins with what was carried
        self.truncations = list(
            self.record.truncations
        )  # that the WAL has to be read with; both parts grow
        self.state = self.record.state
        # Entries up to here were durable, and were cut off because some of them are lost: until the
        # log has as many again they are missed. 0: none; UNKNOWN: nobody knows how many there were.
        self.owed = self.record.owed
        self.applied = 0  # as the last checkpoint that was begun has it; set when recovery is over
        self.waiting_bytes = 0  # durable and not applied, when that checkpoint was begun
        self.has_directory = False  # in this run it was made, and strangers in it removed
        self.deleted = False
        self.leaves = False  # it is deleted, or another log is about to take its place
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
        slab = Slab(
            capacity, segment, start=segment.size, first_index=self.end.next_index,
            previous_term=self.end.term,
        )  # fmt: skip
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

    def append_raw(self, header: Header, packed: memoryview, body: memoryview, now_us: int) -> None:
        """Put an entry of another node at the end, as it is. It was checked that it follows."""
        slab = self._slab_for(header.size)
        if slab.sent == slab.used:
            self.unsent.append(slab)
        slab.put(bytes(packed), body, kind=header.kind)
        self._placed(
            slab, header.size, header.end_offset, header.base_offset, header.max_timestamp, now_us
        )
        self.end = LogEnd(header.index + 1, header.end_offset, header.crc, header.term)

    # --- cutting back ----------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """The first entry that can be read."""
        if self.segments:
            return self.segments[0].first_index
        return self.end.next_index

    def end_at(self, index: int) -> LogEnd | None:
        """How the log ended when this was its last entry; None if only a segment can tell."""
        for end in (self.end, self.written):
            if index == end.next_index - 1:
                return end
        place = self.memory.place(index)
        return None if place is None else self.memory.slabs[place[0]].end_after(place[1])

    def truncate(self, end: LogEnd) -> Truncated:
        """Cut off all entries behind `end`. None of them was applied, so no segment has any."""
        after = end.next_index - 1
        assert after >= self.written.next_index - 1, f"cut behind {after}, written: {self.written}"
        assert after >= self.applied, f"cut behind {after}, applied: {self.applied}"
        is_carried = self.carried is not None  # else what was sent can be told from the slabs
        cut = Truncated(was_sent=is_carried or self.durable.next_index > end.next_index)
        slabs = self.memory.slabs
        first_cut: Slab | None = None
        while slabs and slabs[-1].first_index > after:
            first_cut = slabs.pop()
            self._let_go(first_cut, 0, cut)
        if slabs and slabs[-1].first_index + len(slabs[-1]) > after + 1:
            slab = slabs[-1]
            number = after + 1 - slab.first_index
            self._let_go(slab, number, cut)
            slab.cut(number, end.next_offset)
            slab.segment.cut(
                slab.start + slab.used, end_offset=end.next_offset, end_index=end.next_index,
                max_timestamp=slab.latest_stamp(),
            )  # fmt: skip
            first_cut = None
            if slab.live == number:
                slabs.pop()
        while self.segments and self.segments[-1].first_index > after:
            gone = self.segments.pop()
            assert not gone.written, f"{gone.path} has entries that were never applied"
        if first_cut is not None and self.segments and self.segments[-1] is first_cut.segment:
            first_cut.segment.cut(
                first_cut.start, end_offset=end.next_offset, end_index=end.next_index,
                max_timestamp=first_cut.stamp,
            )  # fmt: skip
        self._cut_commits(self.commits, after)
        if self.carried is not None:
            self._cut_commits(self.carried.commits, after)
            self.carried.through = min(self.carried.through, after)
        self._cut_damage(end)
        self.end = end
        if self.durable.next_index > end.next_index:
            self.durable = end
        return cut

    def _let_go(self, slab: Slab, number: int, cut: Truncated) -> None:
        """Account for what is cut off a slab, from entry `number` on."""
        position = slab.position_of(number)
        self.memory.bytes -= slab.used - position
        self.unwritten_bytes -= slab.used - position
        cut.waiting_bytes += max(self.waiting_bytes - self.unwritten_bytes, 0)
        self.waiting_bytes = min(self.waiting_bytes, self.unwritten_bytes)
        cut.unwritten_bytes += slab.used - position
        cut.unsent_bytes += slab.used - max(slab.sent, position)
        cut.was_sent |= slab.sent > position
        if self.unsent and self.unsent[-1] is slab and slab.sent >= position:
            self.unsent.pop()
        if self.unwritten and self.unwritten[-1] is slab and slab.written >= position:
            self.unwritten.pop()

    def _cut_commits(self, commits: deque[tuple[int, int]], after: int) -> None:
        while commits and commits[-1][1] > after:
            before = commits[-2][1] if len(commits) > 1 else self.record.end.next_index - 1
            lsn, _ = commits.pop()
            if before < after:
                commits.append((lsn, after))

    def _cut_damage(self, end: LogEnd) -> None:
        """What was lost behind the end is not part of the log any more; but it is missed.

        So is what is whole behind it and cut off with it: others may have committed it, since it
        was durable here.
        """
        kept: list[Damage] = []
        for damage in self.damage:
            is_behind = damage.first_index >= end.next_index
            if not is_behind and damage.end_index <= end.next_index:
                kept.append(damage)
                continue
            if not damage.accepted:
                last = UNKNOWN if damage.end is None else self.end.next_index - 1
                self.owed = max(self.owed, last)
            if not is_behind:
                shorter = replace(damage, end=end.next_offset, end_index=end.next_index)
                kept.append(shorter)
        self.damage = kept

    def note_truncation(self, new: Truncation) -> None:
        if not any(each.includes(new) for each in self.truncations):
            self.truncations = [each for each in self.truncations if not new.includes(each)]
            self.truncations.append(new)

    def is_cut_off(self, index: int, lsn: int) -> bool:
        """Whether an entry with this index, in the envelope `lsn`, was cut off later."""
        return any(each.covers(index, lsn) for each in self.truncations)

    @property
    def has_notes(self) -> bool:
        """Whether there is something that the WAL tells beside entries, for recovery to know."""
        return bool(self.truncations) or self.state != self.record.state

    # --- faults ----------------------------------------------------------------------------------

    def faults(self) -> list[Fault]:
        found = [
            Fault(
                each.first_index,
                each.end_index,
                str(each),
                each.accepted,
                loses_vote=each.end is None,
                is_applied=self._has_applied(each),
            )
            for each in self.damage
        ]
        if self.owes:
            is_unknown = self.owed == UNKNOWN
            first = self.durable.next_index
            words = "entries that were lost to damage, and were cut off, have not come again"
            end = first if is_unknown else self.owed + 1
            found.append(Fault(first, end, words, loses_vote=is_unknown))
        return found

    def _has_applied(self, damage: Damage) -> bool:
        if damage.end is None:
            return False
        is_known = damage.first_index > 0 and damage.end_index - 1 <= self.applied
        return is_known or not damage.is_lasting  # segment files have applied entries only

    @property
    def owes(self) -> bool:
        if self.owed and self.owed != UNKNOWN and self.durable.next_index > self.owed:
            self.owed = 0
        return bool(self.owed)

    # --- the WAL -------------------------------------------------------------------------------

    @property
    def first_lsn(self) -> int | None:
        """The first envelope with an entry that no checkpoint has; None if there is none."""
        if self.commits:
            return self.commits[0][0]
        return self.carried.commits[0][0] if self.carried and self.carried.commits else None

    def carry(self) -> int:
        """Have all entries that are in no segment taken by commits again. Returns their bytes."""
        assert self.carried is None
        self.carried = Carried(self.written, self.end.next_index - 1)
        before = sum(slab.used - slab.sent for slab in self.unsent)
        self.unsent = deque(self.unwritten)
        for slab in self.unsent:
            slab.sent = slab.written
        return sum(slab.used - slab.sent for slab in self.unsent) - before

    def carried_through(self, index: int, lsn: int) -> None:
        """The commit `lsn` has made durable once more what is up to here."""
        carried = self.carried
        if carried is None or not carried.commits or lsn < carried.commits[0][0]:
            return  # a commit that was under way when it began
        if index >= carried.through:
            self.commits, self.carried = carried.commits, None
            # Older envelopes may still tell of these entries, after those that had them are gone.
            begin, commits = carried.begin, carried.commits
            self.rewritten = Truncation(begin, commits[0][0], lsn) if commits else None

    def truncations_between(self, lsn: int, next_lsn: int) -> tuple[Truncation, ...]:
        """Those that a checkpoint needs with which the WAL is read from the envelope `lsn` on.

        If the power fails, `next_lsn` may be the next envelope of all. So a checkpoint must not
        have a cut that was made while that one was on its way: the envelope behind it will tell.

        What was written once more counts as cut off and appended again. The envelope `lsn` itself
        may have been torn once, before the cut, and tell what was so then.
        """
        self.truncations = [each for each in self.truncations if each.told >= lsn]
        if self.rewritten is not None and self.rewritten.told < lsn:
            self.rewritten = None
        truncations = (each for each in self.truncations if each.lsn <= next_lsn)
        return (*truncations, self.rewritten) if self.rewritten else tuple(truncations)

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

    def is_applied(self, index: int) -> None:
        """The group's state is behind this entry; durable entries that it lacks have to wait."""
        self.applied = max(self.applied, index)
        self.waiting_bytes = 0
        if index < self.durable.next_index - 1:
            for slab in self.unwritten:
                start = slab.position_of(slab.number_of_index(index + 1))
                end = slab.position_of(slab.number_of_index(self.durable.next_index))
                self.waiting_bytes += max(end - max(start, slab.written), 0)

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

    def stats(self, next_lsn: int) -> GroupStats:
        memory_start = self.memory.start_offset
        if memory_start is None:
            memory_start = self.end.next_offset
        return GroupStats(
            start=self.log_start,
            memory_start=max(memory_start, self.log_start),
            memory_bytes=self.memory.bytes,
            disk_bytes=sum(segment.written for segment in self.segments if not segment.away),
            tier_bytes=sum(segment.written for segment in self.segments if segment.away),
            memory_reads=self.memory_reads,
            disk_reads=self.disk_reads,
            problem=self.problem,
            waiting_bytes=self.waiting_bytes,
            kept_lsns=next_lsn - (self.first_lsn or next_lsn),
        )

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


def notes_of(groups: Iterable[GroupLog]) -> bytes:
    """The notes of these groups, each once."""
    return b"".join(
        encode_notes(group.id, group.state, group.truncations)
        for group in dict.fromkeys(groups)
        if not group.deleted
    )
