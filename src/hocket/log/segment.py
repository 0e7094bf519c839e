"""A segment: a stretch of one group's log in one file, and its sparse index.

The file holds entries back to back and nothing else. It is named by the offset and the index of
its first entry, so the names alone are the map of the log. The sparse index has a point about
every 64 KiB. It is kept in memory while the segment grows, written beside the segment (`.index`)
when that is full, and rebuilt by a scan if its file is missing or does not match its checksum.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from hocket.wire.layout import Layout

INDEX_LAYOUT = Layout("8sII", ("magic", "crc", "points"))  # the CRC is of what follows it
INDEX_COLUMNS = ("offsets", "positions", "stamps")
_HEAD = INDEX_LAYOUT.struct
_MAGIC = b"HKTINDX1"


class Location(NamedTuple):
    """Where an entry begins in a segment, and its base offset."""

    position: int
    offset: int


class Points:
    """A sparse index: some of the entries of a segment, in order, and where each begins.

    `stamps[i]` is the latest timestamp of all batches before point i; so the first batch that
    reaches a time t lies between the last point whose stamp is below t and the next one.
    """

    __slots__ = INDEX_COLUMNS

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.positions = array("Q")
        self.stamps = array("Q")

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, offset: int, position: int, stamp: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.stamps.append(stamp)

    def copy(self) -> Points:
        copy = Points()
        for name in INDEX_COLUMNS:
            getattr(copy, name).extend(getattr(self, name))
        return copy

    def cut(self, size: int) -> None:
        """The segment ends at `size` now."""
        number = bisect_left(self.positions, size)
        for name in INDEX_COLUMNS:
            del getattr(self, name)[number:]

    def before_offset(self, offset: int) -> Location | None:
        """Where to read from in order to meet the batch that holds `offset`."""
        return self._location(bisect_right(self.offsets, offset) - 1)

    def before_index(self, offset: int) -> Location | None:
        """Where to read from in order to meet every entry of this base offset."""
        return self._location(bisect_left(self.offsets, offset) - 1)

    def before_time(self, timestamp_us: int) -> Location | None:
        """Where to read from in order to meet the first batch that reaches this time."""
        return self._location(bisect_left(self.stamps, timestamp_us) - 1)

    def _location(self, number: int) -> Location | None:
        """The location of point `number`; None for the beginning of the segment."""
        if number < 0:
            return None
        return Location(self.positions[number], self.offsets[number])

    def encode(self) -> bytes:
        columns = b"".join(getattr(self, name).tobytes() for name in INDEX_COLUMNS)
        count = len(self).to_bytes(4, "little")
        return _HEAD.pack(_MAGIC, crc32c(count + columns), len(self)) + columns

    @staticmethod
    def decode(data: bytes) -> Points | None:
        """None if `data` is not a whole index."""
        if len(data) < _HEAD.size:
            return None
        magic, crc, count = _HEAD.unpack_from(data)
        columns = data[_HEAD.size :]
        if magic != _MAGIC or len(columns) != len(INDEX_COLUMNS) * 8 * count:
            return None
        if crc != crc32c(count.to_bytes(4, "little") + columns):
            return None
        points = Points()
        for number, name in enumerate(INDEX_COLUMNS):
            column: array[int] = getattr(points, name)
            column.frombytes(columns[number * 8 * count : (number + 1) * 8 * count])
        return points


class SegmentRecord(NamedTuple):
    """A segment as a checkpoint knows it."""

    base_offset: int
    first_index: int
    end_offset: int
    end_index: int  # the index behind that of its last entry
    size: int
    max_timestamp: int


@dataclass(slots=True, eq=False)
class Segment:
    """A segment of a live store. Invariant: written <= size; the file is not shorter than that."""

    group: int
    base_offset: int
    first_index: int
    end_offset: int
    end_index: int
    size: int = 0  # with the entries that are still only in memory
    written: int = 0  # bytes that are in the file, synced
    max_timestamp: int = 0
    points: Points | None = None  # None: not in memory (the store was reopened, or it is full)
    full: bool = False  # no entry will be added
    file_is_clean: bool = False  # in this run, the file has no bytes behind `written`
    index_is_written: bool = False
    away: bool = False  # in a storage tier: the file is not here

    @staticmethod
    def of(group: int, record: SegmentRecord) -> Segment:
        return Segment(
            group, record.base_offset, record.first_index, record.end_offset, record.end_index,
            record.size, record.size, record.max_timestamp,
        )  # fmt: skip

    @property
    def path(self) -> str:
        return segment_path(self.group, self.base_offset, self.first_index)

    def added(
        self, size: int, *, base_offset: int, end_offset: int, timestamp: int, interval: int
    ) -> None:
        """An entry of `size` bytes was appended; add it to the sparse index if one is due."""
        points = self.points
        if points is not None and (
            not points.positions or self.size - points.positions[-1] >= interval
        ):
            points.add(base_offset, self.size, self.max_timestamp)
        self.size += size
        self.end_offset = end_offset
        self.end_index += 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def cut(self, size: int, *, end_offset: int, end_index: int, max_timestamp: int) -> None:
        """Let go of the entries behind `size`, of which the file has none."""
        assert size >= self.written, f"{self.path}: cut at {size}, written to {self.written}"
        self.size, self.end_offset, self.end_index = size, end_offset, end_index
        self.max_timestamp = max_timestamp
        if self.points is not None:
            self.points.cut(size)


def group_directory(group: int) -> str:
    return f"groups/{group}"


def segment_path(group: int, base_offset: int, first_index: int) -> str:
    return f"groups/{group}/{base_offset:020}-{first_index:020}.log"


def index_path(path: str) -> str:
    return path.removesuffix(".log") + ".index"
