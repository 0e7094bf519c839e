"""The nouns of the log that its users see.

A group is one log, named by a number; group 0 holds the metadata. The first entry of a group has
index 1 and offset 0, unless the group was installed (`LogStore.install`).
Numbers of groups are never used again, not even after `delete_group`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hocket.errors import CorruptData, HocketError, StoreStopped
from hocket.model import DECISIONS
from hocket.wire.entry import Header

if TYPE_CHECKING:
    from typing_extensions import Buffer

FIRST_INDEX = 1
# The group that nothing is served without. Its entries go first, so that no other keeps a full disk
# from being tidied.
METADATA = 0
# Without these groups nothing is served: with damage in one of them a store is not opened.
VITAL = (METADATA, DECISIONS)


class Purpose(IntEnum):
    """What an entry is for, which decides how much of the room that is left it may take."""

    RECORDS = 0  # takes no room that is kept aside
    PROGRESS = 1  # how far consumers have come, and rights taken away: takes half of it
    TIDYING = 2  # makes room: takes all of it


class LogEnd(NamedTuple):
    """Where a group's log ends, and what the next entry must know of the last one."""

    next_index: int = FIRST_INDEX
    next_offset: int = 0
    last_crc: int = 0
    term: int = 0


class HardState(NamedTuple):
    """What a voter of a group must never forget: its term, and whom it has voted for in it."""

    term: int = 0
    vote: str = ""  # a store id; empty: nobody yet

    def may_become(self, other: HardState) -> bool:
        """Terms never fall, and in one term there is one vote."""
        if other.term != self.term:
            return other.term > self.term
        return self.vote in ("", other.vote)


VOTE_BYTES_MAX = 40


class Truncation(NamedTuple):
    """The log was cut back to `end`: what is behind it in envelopes before `lsn` does not count."""

    end: LogEnd
    lsn: int
    told: int  # where groups ended before this LSN was durable tells of the log before the cut

    def includes(self, other: Truncation) -> bool:
        is_lower = self.end.next_index <= other.end.next_index
        return is_lower and self.lsn >= other.lsn and self.told >= other.told

    def covers(self, index: int, lsn: int) -> bool:
        return index >= self.end.next_index and lsn < self.lsn

    def covers_end(self, end: LogEnd, lsn: int) -> bool:
        return end.next_index > self.end.next_index and lsn < self.told


@dataclass(slots=True)
class NewEntry:
    """An entry to append. The store adds the previous CRC and the header's own."""

    kind: int
    codec: int
    flags: int
    count: int  # of records: at least 1 in a batch, 0 in everything else
    term: int
    index: int
    base_offset: int
    body_crc: int
    max_timestamp: int
    body: Buffer


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that are missing, or do not match their checksum: [start, end)."""

    start: int
    end: int | None  # None: it is not known what followed `start`, if anything did
    what: str = ""  # in words, for people
    accepted: bool = False  # the operator knows: reads skip the records, reports leave them out
    is_lasting: bool = True  # False: bytes in a segment file, which may become readable again
    # The entries that are lost: [first_index, end_index). Many of them may stand at one offset. 0:
    # not known (bytes in a segment file, and what older versions have written down).
    first_index: int = 0
    end_index: int = 0

    def covers(self, other: Damage) -> bool:
        is_indexed = bool(self.first_index and other.first_index)
        if self.end is None or other.end is None:
            same = (self.start, self.end) == (other.start, other.end)
            return same and (not is_indexed or self.first_index == other.first_index)
        if is_indexed:
            return self.first_index <= other.first_index and other.end_index <= self.end_index
        return self.start <= other.start and other.end <= self.end

    @property
    def place(self) -> tuple[int, int | None, int, int]:
        return self.start, self.end, self.first_index, self.end_index

    def __str__(self) -> str:
        if self.end is None:
            return f"what followed offset {self.start} ({self.what})"
        if self.end == self.start:
            return f"entries without records at offset {self.start} ({self.what})"
        return f"offsets {self.start} to {self.end - 1} ({self.what})"

    def as_error(self, group: int) -> CorruptData:
        return CorruptData(f"group {group}: {self} cannot be read", start=self.start, end=self.end)


class FileUnreadable(CorruptData):
    """The disk did not hand a file of the log out. Unlike damage, that may pass.

    `start` and `end` are all that the file holds from the offset on that was asked for.
    """


class SegmentAway(FileUnreadable):
    """A storage tier did not hand a segment out.

    That is no damage of this copy: the copies of other nodes may be away just as well.
    """


def is_damage(error: object) -> bool:
    """Whether records cannot be read here, and may be readable at another node."""
    return isinstance(error, CorruptData) and not isinstance(error, SegmentAway)


class DoesNotFollow(HocketError):
    """Entries of another node are not those that follow the end of the log; nothing was taken."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Entries [first_index, end_index) that were durable once and are not there, or are damaged.

    A replica with a fault must not lead. It must not vote either, since it may lack what was
    committed with its help; unless all of that is known to its state (`is_applied`). Then it was
    committed, and the replica knows how its log ends: that is what a vote depends on.
    """

    first_index: int  # 0: not known (bytes in a segment file)
    end_index: int
    what: str
    accepted: bool = False  # the operator goes on without them, on this node
    loses_vote: bool = False  # nobody knows what followed: the term and the vote may be lost, too
    is_applied: bool = False  # the state of the group knows these entries, all of them


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a group behind the entry `index`, to be installed on another node."""

    end: LogEnd  # of a log whose last entry is that one
    log_start: int
    state: bytes

    @property
    def index(self) -> int:
        return self.end.next_index - 1

    @property
    def term(self) -> int:
        return self.end.term


@dataclass(slots=True)
class RawEntries:
    """Whole entries of all kinds, back to back, as they stand in the log."""

    slices: list[memoryview]
    first_index: int
    end_index: int
    previous_term: int | None  # of the entry before the first; None: it is not in the log here
    previous_crc: int
    bytes: int


class Loss(NamedTuple):
    """Entries that recovery found to be lost: behind them the group goes on like this.

    With `next_index` equal to `first_index` it is not known what is lost: anything that followed.
    """

    first_index: int
    next_index: int
    next_offset: int


@dataclass(slots=True)
class RecoveredGroup:
    """One group as `open` found it. `entries` are those behind the snapshot, in order.

    Where there is damage the entries have a gap, which `losses` tells. Damage that an older
    checkpoint knows is in `damage` alone: the snapshot was made in the knowledge of it.
    """

    snapshot: bytes = b""
    snapshot_index: int = 0  # the last entry that the snapshot includes; 0: there is no snapshot
    snapshot_term: int = 0  # the term of that entry
    entries: list[tuple[Header, memoryview]] = field(default_factory=list)
    log_start: int = 0
    next_index: int = FIRST_INDEX
    next_offset: int = 0
    last_crc: int = 0
    term: int = 0
    damage: tuple[Damage, ...] = ()
    losses: list[Loss] = field(default_factory=list)  # by index
    state: HardState = field(default_factory=HardState)


@dataclass(slots=True)
class ReadResult:
    """Whole batch entries, header and padding included, in order, as they stand in the log.

    The first batch may begin before the offset that was asked for. `start_offset` lies behind that
    offset only where an accepted loss was skipped.
    """

    slices: list[memoryview]
    start_offset: int  # of the first record; the offset asked for if there is no record
    end_offset: int  # the next offset to read
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    base_offset: int
    end_offset: int
    bytes: int
    max_timestamp: int


@dataclass(slots=True)
class GroupStats:
    start: int
    memory_start: int  # reads from here on are answered by memory; the end if memory is empty
    memory_bytes: int
    disk_bytes: int
    tier_bytes: int  # in a storage tier, and not on the disk
    memory_reads: int
    disk_reads: int
    problem: str  # in words; empty when all is well
    waiting_bytes: int = 0  # durable, and not applied when the last checkpoint asked
    kept_lsns: int = 0  # of how many envelopes the write-ahead log is kept for this group


@dataclass(slots=True)
class Report:
    """What a scrub or an offline check found."""

    store_id: str = ""
    groups: int = 0
    entries: int = 0
    bytes: int = 0
    away_segments: int = 0  # in a storage tier; they were not read
    away_bytes: int = 0
    damage: list[tuple[int, Damage]] = field(default_factory=list)  # (group, what is damaged)
    remarks: list[str] = field(default_factory=list)  # odd but harmless findings

    @property
    def ok(self) -> bool:
        return all(damage.accepted for _, damage in self.damage)


ReadDone = Callable[[ReadResult | HocketError], None]
OffsetDone = Callable[[int | HocketError], None]
RawDone = Callable[[RawEntries | HocketError], None]
EntriesDone = Callable[[dict[int, memoryview] | HocketError], None]  # bodies, by index


class LogObserver(Protocol):
    """The user of the store: the node. Called on the node's thread only."""

    def log_durable(self, through: dict[int, int]) -> None:
        """Entries have become durable: group -> index of its last durable entry."""

    def log_stopped(self, error: StoreStopped) -> None:
        """The disk failed: nothing more will become durable. Called once."""

    def log_room(self) -> None:
        """The store is no longer congested, or its disk has room again."""

    def snapshot(self, group: int) -> tuple[int, bytes]:
        """(applied index, state) of a group, for a checkpoint. The log does not read the bytes.

        The state must follow from the entries up to that index alone.
        """
