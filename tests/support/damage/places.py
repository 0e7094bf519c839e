"""Every field of every file of a data directory, by name: where a store can be damaged.

The places follow from the format's own description: its layouts (`hocket.wire.layout`), and the
readers of the parts that have no fixed length. A new field of a layout, a new part of a checkpoint
and a new column of a batch are found by themselves. A new kind of entry is, too: its body is mapped
as JSON if it is JSON, and as one piece if it is not. The leaves of a file are all of its bytes,
without a gap; `mapped` sees to that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from hocket.log import checkpoint as checkpoints, wal_list
from hocket.log.checkpoint import Checkpoint
from hocket.log.directory import IDENTITY, WAL, salt_of
from hocket.log.envelope import (
    HEADER_COPIES,
    HEADER_LAYOUT as ENVELOPE_LAYOUT,
    HEADERS_BYTES,
    NOTE_LAYOUT,
    NOTE_LAYOUTS,
    ROW_BYTES,
    ROW_LAYOUT,
    SECTION_BYTES,
    SECTION_LAYOUT,
    decode_section,
)
from hocket.log.segment import INDEX_COLUMNS, INDEX_LAYOUT
from hocket.log.wal_files import number_of
from hocket.log.wal_scan import Found, envelopes
from hocket.model import EntryKind
from hocket.wire import codec as codecs
from hocket.wire.batch import PRELUDE_BYTES, PRELUDE_LAYOUT
from hocket.wire.columns import FLAG_KEY_HASHES, Cutter, cut_columns
from hocket.wire.entry import HEADER_BYTES, HEADER_LAYOUT, Header, padded, unpack_header
from hocket.wire.layout import Layout
from hocket.wire.stage import LAYOUT as STAGE_LAYOUT, open_stage

Files = Mapping[str, bytes]
_JSON_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_SEGMENT_NAME = re.compile(r"groups/(\d+)/(\d+)-(\d+)\.(log|index)\Z")


class Place(NamedTuple):
    """Bytes [start, end) of a file, and what they are, from the whole to the part."""

    path: str
    name: str
    start: int
    end: int

    @property
    def sort(self) -> str:
        """What it is, whichever of its kind it is: the name without numbers."""
        file = re.sub(r"\d+", "N", self.path)
        return f"{file}:{re.sub(r' [0-9]+', '', self.name)}"

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"


class Stored(NamedTuple):
    """An entry in a file."""

    path: str
    start: int  # of what is lost with it at most: its envelope, or the entry itself in a segment
    end: int
    group: int
    header: Header
    kind: str
    is_needed: bool  # it is in no segment yet, or this is the segment

    def overlaps(self, path: str, start: int, end: int) -> bool:
        return self.path == path and self.start < end and start < self.end


@dataclass
class Mapped:
    """The places of a store."""

    leaves: list[Place] = field(default_factory=list)
    wholes: list[Place] = field(default_factory=list)  # what leaves are parts of, files included
    entries: list[Stored] = field(default_factory=list)


class _FileMap:
    """Collects the places of one file."""

    def __init__(self, found: Mapped, path: str, data: bytes) -> None:
        self.found = found
        self.path = path
        self.data = data
        self.position = 0  # everything before it is in leaves
        self._names: list[str] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._names.append(name)
        start = self.position
        yield
        if self.position > start:
            place = Place(self.path, "/".join(self._names), start, self.position)
            self.found.wholes.append(place)
        self._names.pop()

    def leaf(self, name: str, end: int) -> None:
        assert self.position <= end <= len(self.data), (self.path, self._names, name, end)
        if end > self.position:
            names = "/".join([*self._names, name])
            self.found.leaves.append(Place(self.path, names, self.position, end))
            self.position = end

    def fields(self, layout: Layout) -> None:
        start = self.position
        for each in layout.fields:
            self.leaf(each.name, start + each.end)

    def zeros(self, end: int, name: str = "padding") -> None:
        here = self.data[self.position : end]
        assert not any(here), f"{self.path}: bytes at {self.position} that the map does not know"
        self.leaf(name, end)

    def json(self, end: int) -> None:
        """The values of a JSON text, and names among them, each with what stands before it."""
        start = self.position
        for number, match in enumerate(_JSON_VALUE.finditer(self.data, start, end)):
            self.leaf(f"value {number}", match.end())
        self.leaf("end", end)


def mapped(files: Files) -> Mapped:
    found = Mapped()
    store = _store_id(files)
    last = checkpoints.decode(files[checkpoints.PATH])
    for path, data in sorted(files.items()):
        file = _FileMap(found, path, data)
        if path.startswith(f"{WAL}/") and number_of(path.rpartition("/")[2]) is not None:
            _map_wal(file, salt_of(store), last)
        elif match := _SEGMENT_NAME.match(path):
            group, _, first_index, suffix = match.groups()
            if suffix == "index":
                _map_index(file)
            else:
                _map_segment(file, int(group), int(first_index), last)
        elif path == wal_list.PATH:
            _map_list(file)
        elif path == checkpoints.PATH:
            _map_checkpoint(file)
        elif _is_json(data):
            file.json(len(data))
        file.leaf("bytes", len(data))  # of a file without a format; or what is unused at its end
        found.wholes.append(Place(path, "all", 0, len(data)))
        assert file.position == len(data)
    return found


def _store_id(files: Files) -> str:
    return str(json.loads(files[IDENTITY])["store"])


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return bool(data.strip())


# --- the write-ahead log ---------------------------------------------------------------------


def _map_wal(file: _FileMap, salt: int, last: Checkpoint) -> None:
    number = number_of(file.path.rpartition("/")[2])
    assert number is not None
    for count, found in enumerate(envelopes(file.data, number, salt)):
        file.leaf("unused", found.position)
        with file.part(f"envelope {count}"):
            _map_envelope(file, found, needed=number >= last.generation and found.lsn >= last.lsn)
    file.leaf("unused", len(file.data))


def _map_envelope(file: _FileMap, found: Found, *, needed: bool) -> None:
    header, start = found.header, found.position
    if found.content is None:  # damaged before
        file.leaf("damaged", start + header.size)
        return
    with file.part("headers"):
        for copy in range(HEADER_COPIES):
            with file.part(f"header {copy}"):
                file.fields(ENVELOPE_LAYOUT)
    assert file.position == start + HEADERS_BYTES
    with file.part("table"):
        for row in range(header.table_count):
            with file.part(f"row {row}"):
                file.fields(ROW_LAYOUT)
    assert file.position == start + HEADERS_BYTES + header.table_count * ROW_BYTES
    notes_end = start + header.content_start
    with file.part("notes"):
        count = 0
        while file.position < notes_end:
            _, kind = NOTE_LAYOUT.struct.unpack_from(file.data, file.position)
            with file.part(f"note {count}"):
                file.fields(NOTE_LAYOUT)
                file.fields(NOTE_LAYOUTS[kind])
            count += 1
    assert file.position == notes_end
    end = file.position + header.content_bytes
    count = 0
    while file.position < end:
        section = decode_section(memoryview(file.data), file.position)
        assert section is not None
        group, length = section
        with file.part(f"section {count}"):
            section_end = file.position + SECTION_BYTES + length
            with file.part("head"):
                file.fields(SECTION_LAYOUT)
            _map_entries(file, group, section_end, (start, start + header.size), needed=needed)
        count += 1
    file.zeros(start + header.size)


def _map_list(file: _FileMap) -> None:
    for copy in range(len(file.data) // wal_list.BLOCK_BYTES):
        with file.part(f"block {copy}"):
            start = file.position
            count = wal_list.HEAD_LAYOUT.struct.unpack_from(file.data, start)[2]
            with file.part("head"):
                file.fields(wal_list.HEAD_LAYOUT)
            for number in range(count):
                with file.part(f"file {number}"):
                    file.fields(wal_list.FILE_LAYOUT)
            file.zeros(start + wal_list.BLOCK_BYTES)


# --- entries -----------------------------------------------------------------------------------


def _map_entries(
    file: _FileMap, group: int, end: int, around: tuple[int, int] | None, *, needed: bool
) -> None:
    number = 0
    while file.position < end:
        start = file.position
        header = unpack_header(file.data, start)
        kind = EntryKind(header.kind).name.lower()
        with file.part(f"{kind} {number} of log {group}"):
            with file.part("header"):
                file.fields(HEADER_LAYOUT)
            body_end = start + HEADER_BYTES + header.length
            with file.part("body"):
                _map_body(file, header, body_end)
            file.zeros(start + header.size)
        lost = around or (start, start + header.size)
        file.found.entries.append(Stored(file.path, *lost, group, header, kind, needed))
        number += 1
    assert file.position == end


def _map_body(file: _FileMap, header: Header, end: int) -> None:
    body = memoryview(file.data)[file.position : end]
    if header.kind == EntryKind.BATCH:
        _map_batch(file, header.count, header.flags, header.codec, end)
    elif header.kind == EntryKind.STAGE:
        staged = open_stage(body)
        file.fields(STAGE_LAYOUT)
        file.leaf("transaction", file.position + len(staged.transaction.encode()))
        file.zeros(end - len(staged.body))
        with file.part("batch"):
            _map_batch(file, staged.records, staged.flags, staged.codec, end)
    elif _is_json(bytes(body)):
        file.json(end)
    else:
        file.leaf("bytes", end)


def _map_batch(file: _FileMap, count: int, flags: int, codec: int, end: int) -> None:
    start = file.position
    file.fields(PRELUDE_LAYOUT)
    assert file.position == start + PRELUDE_BYTES
    if flags & FLAG_KEY_HASHES:
        file.leaf("key hashes", file.position + 8 * count)
    if codec != codecs.NONE:
        file.leaf("compressed columns", end)
        return
    columns = memoryview(file.data)[file.position : end]
    cut_columns(_MappingCutter(columns, file), count, flags)


class _MappingCutter(Cutter):
    """Maps the columns of a batch while the batch is opened."""

    def __init__(self, raw: memoryview, file: _FileMap) -> None:
        super().__init__(raw)
        self._file = file
        self._start = file.position

    def take(self, size: int, what: str) -> memoryview:
        taken = super().take(size, what)
        self._file.leaf(what, self._start + self.position - padded(size) + size)
        self._file.zeros(self._start + self.position, f"{what}, padding")
        return taken


# --- segments, their indexes, the checkpoint ---------------------------------------------------


def _map_segment(file: _FileMap, group: int, first_index: int, last: Checkpoint) -> None:
    segments = last.groups[group].segments if group in last.groups else ()
    sizes = [each.size for each in segments if each.first_index == first_index]
    if sizes:
        _map_entries(file, group, sizes[0], None, needed=True)
    file.leaf("unused", len(file.data))


def _map_index(file: _FileMap) -> None:
    points = INDEX_LAYOUT.struct.unpack_from(file.data)[-1]
    with file.part("head"):
        file.fields(INDEX_LAYOUT)
    for name in INDEX_COLUMNS:
        file.leaf(name, file.position + 8 * points)
    assert file.position == len(file.data)


def _map_checkpoint(file: _FileMap) -> None:
    image_bytes, copies = len(file.data) // 2, 2
    for copy in range(copies):
        with file.part(f"image {copy}"):
            start = file.position
            _, version, _, length = checkpoints.HEAD_LAYOUT.struct.unpack_from(file.data, start)
            with file.part("head"):
                file.fields(checkpoints.HEAD_LAYOUT)
            body = memoryview(file.data)[file.position : file.position + length]
            with file.part("body"):
                checkpoints.decode_body(_MappingReader(body, file), version)
            file.zeros(start + image_bytes)


class _MappingReader(checkpoints.Reader):
    """Maps the body of a checkpoint while the body is read."""

    def __init__(self, data: memoryview, file: _FileMap) -> None:
        super().__init__(data)
        self._file = file
        self._parts = 0

    def unpack(self, layout: Layout) -> tuple[int, ...]:
        with self._file.part(f"part {self._parts}"):
            self._file.fields(layout)
        self._parts += 1
        return super().unpack(layout)

    def bytes(self, length: int, what: str) -> bytes:
        self._file.leaf(f"{what} {self._parts}", self._file.position + length)
        return super().bytes(length, what)
