"""Reads segment files: jobs of the worker `read`, with no state but what they are given.

Every entry that leaves here was verified, header and body. Where an entry does not match its
checksum, its offsets are named. The entry behind a bad spot is found again, because entries lie at
multiples of 8 and their headers have a checksum.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from hocket.errors import CorruptData
from hocket.log.model import Damage, RawEntries, ReadResult
from hocket.log.segment import Location, Points, SegmentRecord, index_path, segment_path
from hocket.model import EntryKind
from hocket.ports import Disk, File
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header

CHUNK_BYTES = 256 << 10  # of a scan
READ_BYTES_MAX = 16 << 20  # of one read of the file, unless a single entry is larger
_BATCH = int(EntryKind.BATCH)
_NO_BODIES = 1 << 64  # an offset beyond all others, for `bodies_from`: no body is checked
_HEADER_WORDS = "the header does not match its checksum, in {}"
_BODY_WORDS = "does not match its checksum, in {}"


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What a job needs to know of a segment."""

    group: int
    record: SegmentRecord  # as far as the segment is written
    interval: int  # between two points of a sparse index
    fetched: str = ""  # the file to read instead of the segment's own, which is away

    @property
    def path(self) -> str:
        return self.fetched or self.own_path

    @property
    def own_path(self) -> str:
        return segment_path(self.group, self.record.base_offset, self.record.first_index)

    @property
    def start(self) -> Location:
        return Location(0, self.record.base_offset)


class Met(NamedTuple):
    """An entry of a segment, or a bad spot."""

    position: int
    header: Header | None  # None: a bad spot
    data: memoryview  # the excerpt of the file that holds the entry,
    start: int  # and where the entry begins in it
    damage: Damage | None  # with a header, the body is damaged; without one, the header


@dataclass(slots=True)
class SegmentRead:
    """What a reading job brings back."""

    result: ReadResult | None = None
    raw: RawEntries | None = None
    offset: int | None = None  # of a search by time
    damage: list[Damage] = field(default_factory=list)
    points: Points | None = None  # the sparse index, if it had to be fetched


class _Excerpt:
    """An excerpt of the file in memory, which moves along as a reader goes on."""

    def __init__(self, file: File, size: int, chunk: int) -> None:
        self._file = file
        self.size = min(size, file.size())  # smaller only if the file was cut by somebody else
        self._chunk = max(chunk, HEADER_BYTES)
        self.data = memoryview(b"")
        self.start = 0  # where `data` begins in the file

    def at(self, position: int, length: int) -> memoryview:
        """`length` bytes from `position`, fewer at the end of the segment."""
        length = min(length, self.size - position)
        within = position - self.start
        if within < 0 or within + length > len(self.data):
            wanted = min(max(length, self._chunk), self.size - position)
            self.data = memoryview(self._file.read(wanted, position))
            self.start = position
            within = 0
        return self.data[within : within + length]

    def drop_cache(self, position: int) -> None:
        self._file.drop_cache(position, self.start + len(self.data) - position)


def walk(
    view: SegmentView, excerpt: _Excerpt, location: Location, *, bodies_from: int = 0
) -> Iterator[Met]:
    """The entries from `location` on. A body is checked if its entry ends at or behind
    `bodies_from`."""
    size = view.record.size
    position, expected = location
    while position < size:
        header = _header_at(excerpt, position, view)
        if header is None:
            after, found = _behind(excerpt, position + 8, view)
            end = found.base_offset if found else view.record.end_offset
            words = _HEADER_WORDS.format(view.path)
            damage = Damage(expected, end, words, is_lasting=False)
            yield Met(position, None, excerpt.data, 0, damage)
            position, expected = after, end
            continue
        bad = header.end_offset >= bodies_from and not _body_is_whole(excerpt, position, header)
        damage_or_none = None
        if bad:
            words = _BODY_WORDS.format(view.path)
            damage_or_none = Damage(header.base_offset, header.end_offset, words, is_lasting=False)
        yield Met(position, header, excerpt.data, position - excerpt.start, damage_or_none)
        position += header.size
        expected = header.end_offset


def _body_is_whole(excerpt: _Excerpt, position: int, header: Header) -> bool:
    entry = excerpt.at(position, header.size)
    return crc32c(entry[HEADER_BYTES : HEADER_BYTES + header.length]) == header.body_crc


def _header_at(excerpt: _Excerpt, position: int, view: SegmentView) -> Header | None:
    if position + HEADER_BYTES > excerpt.size:
        return None
    try:
        header = unpack_header(excerpt.at(position, HEADER_BYTES))
    except CorruptData:
        return None
    record = view.record
    belongs = record.first_index <= header.index < record.end_index
    return header if belongs and position + header.size <= excerpt.size else None


def _behind(excerpt: _Excerpt, position: int, view: SegmentView) -> tuple[int, Header | None]:
    """The next entry behind a bad spot; the end of the segment if there is none."""
    while position + HEADER_BYTES <= excerpt.size:
        header = _header_at(excerpt, position, view)
        if header is not None:
            return position, header
        position += 8
    return view.record.size, None


# --- the jobs --------------------------------------------------------------------------------


def read_batches(
    disk: Disk,
    view: SegmentView,
    location: Location | None,
    offset: int,
    *,
    bytes_max: int,
    end_offset: int,
) -> SegmentRead:
    """Batches from the one that holds `offset`: as many as fit, at least one, up to damage.

    `location` is where to begin; None if the sparse index has to be fetched first.
    """
    read = SegmentRead()
    file = disk.open(view.path)
    try:
        if location is None:
            location = _fetch_points(disk, view, file, read).before_offset(offset) or view.start
        chunk = min(max(bytes_max, 0) + view.interval, READ_BYTES_MAX)
        excerpt = _Excerpt(file, view.record.size, chunk)
        entries = walk(view, excerpt, location, bodies_from=offset + 1)
        _collect(read, entries, offset, bytes_max, end_offset)
        excerpt.drop_cache(location.position)
    finally:
        file.close()
    return read


def _collect(
    read: SegmentRead, entries: Iterator[Met], offset: int, bytes_max: int, end_offset: int
) -> None:
    pieces = _Pieces()
    start = end = offset
    for met in entries:
        if met.damage is not None and (met.damage.end or 0) > offset:
            read.damage.append(met.damage)
            break
        header = met.header
        if header is None or header.kind != _BATCH or header.end_offset <= offset:
            continue
        too_much = pieces.bytes > 0 and pieces.bytes + header.size > bytes_max
        if header.base_offset >= end_offset or too_much:
            break
        if not pieces.bytes:
            start = header.base_offset
        pieces.add(met.data, met.start, met.start + header.size)
        end = header.end_offset
    if pieces.bytes or not read.damage:
        read.result = ReadResult(pieces.slices(), start, end, pieces.bytes)


class _Pieces:
    """Gathers neighbouring entries into as few slices as possible."""

    def __init__(self) -> None:
        self._runs: list[tuple[memoryview, int, int]] = []
        self.bytes = 0

    def add(self, data: memoryview, start: int, end: int) -> None:
        self.bytes += end - start
        if self._runs:
            last, run_start, run_end = self._runs[-1]
            if last is data and run_end == start:
                self._runs[-1] = (data, run_start, end)
                return
        self._runs.append((data, start, end))

    def slices(self) -> list[memoryview]:
        return [data[start:end] for data, start, end in self._runs]


def find_time(
    disk: Disk, view: SegmentView, location: Location | None, timestamp_us: int, *, from_offset: int
) -> SegmentRead:
    """The first offset from `from_offset` on whose batch reaches this time; None if none does."""
    read = SegmentRead()
    file = disk.open(view.path)
    try:
        if location is None:
            location = _fetch_points(disk, view, file, read).before_time(timestamp_us) or view.start
        excerpt = _Excerpt(file, view.record.size, view.interval)
        for met in walk(view, excerpt, location, bodies_from=view.record.end_offset + 1):
            header = met.header
            if header is None or header.kind != _BATCH or header.end_offset <= from_offset:
                continue
            if header.max_timestamp >= timestamp_us:
                read.offset = max(header.base_offset, from_offset)
                break
        excerpt.drop_cache(location.position)
    finally:
        file.close()
    return read


def read_entries(
    disk: Disk, view: SegmentView, location: Location, wanted: Sequence[int]
) -> tuple[dict[int, memoryview], list[Damage]]:
    """The bodies of these entries, of any kind, by index, without those that are damaged."""
    bodies: dict[int, memoryview] = {}
    damage: list[Damage] = []
    left = set(wanted)
    file = disk.open(view.path)
    try:
        excerpt = _Excerpt(file, view.record.size, CHUNK_BYTES)
        for met in walk(view, excerpt, location, bodies_from=_NO_BODIES):
            header = met.header
            if header is None or header.index not in left:
                damage += [met.damage] if met.damage else []
                continue
            entry = excerpt.at(met.position, header.size)
            body = entry[HEADER_BYTES : HEADER_BYTES + header.length]
            if crc32c(body) == header.body_crc:
                bodies[header.index] = body
            else:
                words = _BODY_WORDS.format(view.path)
                damage.append(
                    Damage(header.base_offset, header.end_offset, words, is_lasting=False)
                )
            left.discard(header.index)
            if not left:
                break
        excerpt.drop_cache(location.position)
    finally:
        file.close()
    return bodies, damage


def read_raw(
    disk: Disk, view: SegmentView, points: Points | None, first: int, *,
    end_index: int, bytes_max: int, before: SegmentView | None,
) -> SegmentRead:  # fmt: skip
    """Entries of all kinds from `first` on: as many as fit, at least one, up to damage.

    `before` is the segment that ends with the entry before the first, if that is another one.
    """
    read = SegmentRead()
    term = _last_term(disk, before) if before is not None else None
    file = disk.open(view.path)
    try:
        points = points or _fetch_points(disk, view, file, read)
        # The entry before the first is met, too, if this segment has it.
        location = _before_entry(file, view, points, first - 1)
        chunk = min(max(bytes_max, 0) + view.interval, READ_BYTES_MAX)
        excerpt = _Excerpt(file, view.record.size, chunk)
        pieces = _Pieces()
        found: RawEntries | None = None
        for met in walk(view, excerpt, location):
            header = met.header
            if header is not None and header.index < first:
                term = header.term if header.index == first - 1 else None
                continue
            if met.damage is not None:
                read.damage.append(met.damage)
                if header is None and found is None:
                    continue  # it may be one before the first
                break
            assert header is not None
            if found is None and header.index == first:
                read.damage.clear()
                found = RawEntries([], first, first, term, header.previous_crc, 0)
            is_next = found is not None and header.index == found.end_index < end_index
            if found is None or not is_next:
                break
            if pieces.bytes and pieces.bytes + header.size > bytes_max:
                break
            pieces.add(met.data, met.start, met.start + header.size)
            found.end_index, found.bytes = header.index + 1, pieces.bytes
        if found is not None:
            found.slices = pieces.slices()
            read.raw = found
        excerpt.drop_cache(location.position)
    finally:
        file.close()
    return read


def _before_entry(file: File, view: SegmentView, points: Points, index: int) -> Location:
    """Where to read from in order to meet this entry. Points name offsets; entries name both."""

    def index_at(position: int) -> int:
        header = _header_at(_Excerpt(file, view.record.size, HEADER_BYTES), position, view)
        return view.record.first_index if header is None else header.index

    written = bisect_left(points.positions, view.record.size)
    number = bisect_right(points.positions, index, hi=written, key=index_at) - 1
    if number < 0:
        return view.start
    return Location(points.positions[number], points.offsets[number])


def _last_term(disk: Disk, view: SegmentView) -> int | None:
    read = SegmentRead()
    file = disk.open(view.path)
    try:
        points = _fetch_points(disk, view, file, read)
        location = _before_entry(file, view, points, view.record.end_index - 1)
        excerpt = _Excerpt(file, view.record.size, CHUNK_BYTES)
        for met in walk(view, excerpt, location, bodies_from=_NO_BODIES):
            if met.header is not None and met.header.index == view.record.end_index - 1:
                return met.header.term
    finally:
        file.close()
    return None


def verify_segment(
    disk: Disk, view: SegmentView, location: Location, bytes_max: int
) -> tuple[Location | None, int, list[Damage]]:
    """Check entries from `location` on, about `bytes_max` of them.

    Returns (where to go on, or None at the end; how many entries; what is damaged).
    """
    damage: list[Damage] = []
    count = 0
    behind: Location | None = None
    offset = location.offset
    file = disk.open(view.path)
    try:
        excerpt = _Excerpt(file, view.record.size, CHUNK_BYTES)
        for met in walk(view, excerpt, location):
            if met.position >= location.position + bytes_max:
                behind = Location(met.position, offset)
                break
            count += met.header is not None
            if met.damage is not None:
                damage.append(met.damage)
            offset = met.header.end_offset if met.header else (met.damage and met.damage.end) or 0
        excerpt.drop_cache(location.position)
    finally:
        file.close()
    return behind, count, damage


def walk_segment(disk: Disk, view: SegmentView) -> Iterator[Met]:
    """Every entry of a segment, checked."""
    file = disk.open(view.path)
    try:
        yield from walk(view, _Excerpt(file, view.record.size, CHUNK_BYTES), view.start)
    finally:
        file.close()


def _fetch_points(disk: Disk, view: SegmentView, file: File, read: SegmentRead) -> Points:
    """Get the sparse index from its file, or else by a scan of the segment."""
    points: Points | None = None
    if disk.exists(index_path(view.own_path)):
        sidecar = disk.open(index_path(view.own_path))
        try:
            points = Points.decode(sidecar.read(sidecar.size(), 0))
        finally:
            sidecar.close()
    read.points = points or _scan_points(view, file)
    return read.points


def _scan_points(view: SegmentView, file: File) -> Points:
    points = Points()
    latest = 0
    excerpt = _Excerpt(file, view.record.size, CHUNK_BYTES)
    for met in walk(view, excerpt, view.start, bodies_from=view.record.end_offset + 1):
        header = met.header
        if header is None:
            continue
        if not len(points) or met.position - points.positions[-1] >= view.interval:
            points.add(header.base_offset, met.position, latest)
        if header.kind == _BATCH:
            latest = max(latest, header.max_timestamp)
    return points
