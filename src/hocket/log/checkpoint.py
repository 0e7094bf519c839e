"""The checkpoint: one file that says what the segments hold and where the WAL goes on from there.

The checkpoint is written whole, under another name, synced, and renamed; so there is always one.
The same image stands in the file twice, each with its CRC: a bad spot in one leaves the other.

    magic 8 | format version 4 | CRC of the rest 4 | length of the body 8 | body | zeros to 512

Everything that the checkpoint says about a group is in its `GroupRecord`. The bytes of a record are
kept with it, so a checkpoint costs little for groups that have not changed.

Version 2 has an extension behind each record: the group's term and vote, what was cut off its log,
and what it owes. A checkpoint in which no group has any of these is written as version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from crc32c import crc32c

from hocket.errors import CorruptData, NewerFormat
from hocket.log.model import Damage, HardState, LogEnd, Truncation
from hocket.log.segment import SegmentRecord
from hocket.ports import Disk
from hocket.wire.layout import Layout

PATH = "checkpoint"
_NEW_PATH = "checkpoint.new"
VERSION = 2

HEAD_LAYOUT = Layout("8sIIQ", ("magic", "version", "crc", "length"))
_HEAD = HEAD_LAYOUT.struct
_MAGIC = b"HKTCKPT1"
_VERSION_AND_LENGTH = struct.Struct("<IQ")
_BODY = Layout("QQQII", ("lsn", "durable_through", "generation", "groups", "deleted_groups"))
_DELETED = Layout("QQ", ("group", "last_lsn"))
_GROUP = Layout(
    "QQQQQIQIII",
    (
        "group", "next_index", "next_offset", "term", "snapshot_index", "last_crc", "log_start",
        "segments", "damages", "snapshot_bytes",
    ),
)  # fmt: skip
_SEGMENT = Layout("QQQQQQ", SegmentRecord._fields)
_DAMAGE = Layout("QQBH", ("start", "end", "flags", "words_bytes"))
_DAMAGED_ENTRIES = Layout("QQ", ("first_index", "end_index"))  # behind the words, if flagged
_EXTENSION = Layout("QQIH", ("term", "owed", "truncations", "vote_bytes"))  # of a group
_TRUNCATION = Layout("QQQIQQ", ("next_index", "next_offset", "term", "last_crc", "lsn", "told"))
_IS_ACCEPTED, _HAS_ENTRIES = 1, 2  # flags of a damage
_NO_END = (1 << 64) - 1
_IMAGE_ALIGNMENT = 512


@dataclass(frozen=True)
class GroupRecord:
    """A group as its segments and its snapshot have it."""

    group: int
    end: LogEnd = field(default_factory=LogEnd)  # of what is in its segments
    snapshot_index: int = 0
    snapshot: bytes = b""
    log_start: int = 0
    segments: tuple[SegmentRecord, ...] = ()
    damage: tuple[Damage, ...] = ()
    state: HardState = field(default_factory=HardState)
    truncations: tuple[Truncation, ...] = ()  # that the WAL has to be read with
    owed: int = 0  # see `GroupLog.owed`

    @property
    def version(self) -> int:
        """The first version of the checkpoint that can say all this."""
        return 2 if self.truncations or self.owed or self.state != HardState() else 1

    @cached_property
    def extension(self) -> bytes:
        vote = self.state.vote.encode()
        head = _EXTENSION.struct.pack(self.state.term, self.owed, len(self.truncations), len(vote))
        truncations = (
            _TRUNCATION.struct.pack(
                end.next_index, end.next_offset, end.term, end.last_crc, lsn, told
            )
            for end, lsn, told in self.truncations
        )
        return head + b"".join(truncations) + vote

    @cached_property
    def encoded(self) -> bytes:
        parts = [
            _GROUP.struct.pack(
                self.group, self.end.next_index, self.end.next_offset, self.end.term,
                self.snapshot_index, self.end.last_crc, self.log_start,
                len(self.segments), len(self.damage), len(self.snapshot),
            )
        ]  # fmt: skip
        parts += (_SEGMENT.struct.pack(*segment) for segment in self.segments)
        for damage in self.damage:
            words = damage.what.encode()[:500]
            end = _NO_END if damage.end is None else damage.end
            flags = _IS_ACCEPTED if damage.accepted else 0
            entries = b""
            if damage.first_index:
                flags |= _HAS_ENTRIES
                entries = _DAMAGED_ENTRIES.struct.pack(damage.first_index, damage.end_index)
            head = _DAMAGE.struct.pack(damage.start, end, flags, len(words))
            parts.append(head + words + entries)
        parts.append(self.snapshot)
        return b"".join(parts)


@dataclass(slots=True)
class Checkpoint:
    lsn: int = 1  # the WAL is needed from here on
    durable_through: int = 0  # the last LSN that was durable when this was written
    generation: int = 0  # WAL files with lower numbers are not needed
    groups: dict[int, GroupRecord] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)  # group -> the last LSN that mentions it

    @property
    def version(self) -> int:
        return max((record.version for record in self.groups.values()), default=1)


class Reader:
    """Takes the parts of a body off its front."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: Layout) -> tuple[int, ...]:
        values = layout.struct.unpack_from(self._data, self._position)
        self._position += layout.struct.size
        return values

    def bytes(self, length: int, _what: str) -> bytes:
        start, self._position = self._position, self._position + length
        return bytes(self._data[start : self._position])


def encode(checkpoint: Checkpoint) -> bytes:
    version = checkpoint.version
    body = list(_body_parts(checkpoint, version))
    length = sum(map(len, body))
    crc = crc32c(_VERSION_AND_LENGTH.pack(version, length))
    for part in body:
        crc = crc32c(part, crc)
    head = _HEAD.pack(_MAGIC, version, crc, length)
    # The parts may be large (a million delayed messages), and the node waits while they are copied.
    image = [head, *body, bytes(-(_HEAD.size + length) % _IMAGE_ALIGNMENT)]
    return b"".join(image * 2)


def size(checkpoint: Checkpoint) -> int:
    """About the bytes that `encode` makes of it: its states, in both images."""
    return 2 * sum(len(record.snapshot) for record in checkpoint.groups.values())


def _crc(version: int, body: bytes | memoryview) -> int:
    return crc32c(body, crc32c(_VERSION_AND_LENGTH.pack(version, len(body))))


def _body_parts(checkpoint: Checkpoint, version: int) -> Iterable[bytes]:
    yield _BODY.struct.pack(
        checkpoint.lsn, checkpoint.durable_through, checkpoint.generation,
        len(checkpoint.groups), len(checkpoint.deleted),
    )  # fmt: skip
    for group, lsn in checkpoint.deleted.items():
        yield _DELETED.struct.pack(group, lsn)
    for record in checkpoint.groups.values():
        yield record.encoded
        if version >= 2:
            yield record.extension


def decode(data: bytes) -> Checkpoint:
    """Raises CorruptData if neither image is whole, NewerFormat if it is from a later version."""
    start = 0
    while start >= 0:
        image = _image_at(data, start)
        if image is not None:
            version, body = image
            return decode_body(Reader(body), version)
        start = data.find(_MAGIC, start + 1)
    raise CorruptData(
        f"{PATH} does not match its checksum, in neither of its two copies; put back a copy of the "
        "data directory, or start with an empty one"
    )


def _image_at(data: bytes, start: int) -> tuple[int, memoryview] | None:
    if len(data) - start < _HEAD.size:
        return None
    magic, version, crc, length = _HEAD.unpack_from(data, start)
    body = memoryview(data)[start + _HEAD.size : start + _HEAD.size + length]
    if magic != _MAGIC or len(body) != length or _crc(version, body) != crc:
        return None
    if version > VERSION:
        raise NewerFormat(f"{PATH} has format {version}; this version of Hocket reads {VERSION}")
    return version, body


def decode_body(reader: Reader, version: int) -> Checkpoint:
    lsn, durable_through, generation, groups, deleted = reader.unpack(_BODY)
    checkpoint = Checkpoint(lsn, durable_through, generation)
    for _ in range(deleted):
        group, last_lsn = reader.unpack(_DELETED)
        checkpoint.deleted[group] = last_lsn
    for _ in range(groups):
        record = _decode_group(reader)
        if version >= 2:
            record = _extended(reader, record)
        checkpoint.groups[record.group] = record
    return checkpoint


def _decode_group(reader: Reader) -> GroupRecord:
    (
        group, next_index, next_offset, term, snapshot_index, last_crc, log_start,
        segment_count, damage_count, snapshot_bytes,
    ) = reader.unpack(_GROUP)  # fmt: skip
    segments = tuple(SegmentRecord._make(reader.unpack(_SEGMENT)) for _ in range(segment_count))
    damage = tuple(_decode_damage(reader) for _ in range(damage_count))
    return GroupRecord(
        group, LogEnd(next_index, next_offset, last_crc, term), snapshot_index,
        reader.bytes(snapshot_bytes, "snapshot"), log_start, segments, damage,
    )  # fmt: skip


def _extended(reader: Reader, record: GroupRecord) -> GroupRecord:
    term, owed, truncation_count, vote_bytes = reader.unpack(_EXTENSION)
    truncations: list[Truncation] = []
    for _ in range(truncation_count):
        next_index, next_offset, its_term, last_crc, lsn, told = reader.unpack(_TRUNCATION)
        truncations.append(
            Truncation(LogEnd(next_index, next_offset, last_crc, its_term), lsn, told)
        )
    vote = reader.bytes(vote_bytes, "vote").decode()
    return replace(record, state=HardState(term, vote), truncations=tuple(truncations), owed=owed)


def _decode_damage(reader: Reader) -> Damage:
    start, end, flags, length = reader.unpack(_DAMAGE)
    words = reader.bytes(length, "words").decode("utf-8", "replace")
    first, behind = reader.unpack(_DAMAGED_ENTRIES) if flags & _HAS_ENTRIES else (0, 0)
    return Damage(
        start, None if end == _NO_END else end, words, bool(flags & _IS_ACCEPTED),
        first_index=first, end_index=behind,
    )  # fmt: skip


def read(disk: Disk) -> Checkpoint:
    file = disk.open(PATH)
    try:
        return decode(file.read(file.size(), 0))
    finally:
        file.close()


def publish(disk: Disk, image: bytes) -> None:
    """Make `image` the checkpoint, durably. After an error the old checkpoint is still there."""
    file = disk.open(_NEW_PATH, create=True)
    try:
        file.truncate(0)
        file.write([image], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(_NEW_PATH, PATH)
    disk.sync_directory("")
