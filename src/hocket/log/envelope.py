"""The envelope: how one group commit stands in the WAL.

    header, 64 bytes | the same header again | table | notes | sections | zeros up to 512

A section is (group, length, CRC of these two) and entries of that group back to back. The header
stands there twice, so that one bad spot does not hide a whole commit. Its CRC begins with a salt
of the store's own, so that a WAL file of another store, or one that was sent as a message, is never
taken for ours.

The table says where groups ended when `durable_through` had become durable: the groups that the
previous envelope touched or, if the table is complete, all that were touched since the last
checkpoint. The table makes it possible to say exactly which records a lost envelope held.

The notes tell of groups that several nodes keep: a term and a vote, and where a log was cut back.
They hold from this envelope on, and stand in the next one again; those of an envelope with a
complete table tell all that the last checkpoint does not know. So one bad envelope hides none.
A note says no more than its group knew when it was written, whether the envelope was torn or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from hocket.log.model import VOTE_BYTES_MAX, HardState, LogEnd, Truncation
from hocket.wire.layout import Layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

ALIGNMENT = 512  # a sector: a write never touches a sector that holds something durable
MAGIC = b"HKTWAL1\n"

SECTION_LAYOUT = Layout("QII", ("group", "length", "crc"))
_SECTION = SECTION_LAYOUT.struct
SECTION_BYTES = _SECTION.size
ROW_LAYOUT = Layout("QQQQQ", ("group", "next_index", "next_offset", "term", "last_crc"))
_ROW = ROW_LAYOUT.struct
ROW_BYTES = _ROW.size

NOTE_LAYOUT = Layout("QQ", ("group", "kind"))
_NOTE = NOTE_LAYOUT.struct
STATE, TRUNCATION = 1, 2  # kinds of notes, and what stands behind the head of each
NOTE_LAYOUTS = {
    STATE: Layout(f"Q{VOTE_BYTES_MAX}s", ("term", "vote")),
    TRUNCATION: Layout("QQQQQQ", ("next_index", "next_offset", "term", "last_crc", "lsn", "told")),
}

_COMPLETE = 1  # flag: the table names every group touched since the last checkpoint
_JOIN_BELOW_BYTES = 2048  # copying less is cheaper than one more buffer in the system call


class EnvelopeHeader(NamedTuple):
    magic: bytes
    generation: int  # the number of its file; files are used again, numbers never
    lsn: int  # consecutive over the whole log
    durable_through: int  # the LSN that was durable before this envelope was written
    content_bytes: int  # of the sections
    content_crc: int
    table_crc: int
    table_count: int
    flags: int
    notes_bytes: int  # 0 in all that format 1 has
    crc: int

    @property
    def table_is_complete(self) -> bool:
        return bool(self.flags & _COMPLETE)

    @property
    def content_start(self) -> int:
        return HEADERS_BYTES + self.table_count * ROW_BYTES + self.notes_bytes

    @property
    def size(self) -> int:
        """Bytes in the file, zeros at the end included."""
        return aligned(self.content_start + self.content_bytes)


HEADER_LAYOUT = Layout("8sQQQQIIIIII", EnvelopeHeader._fields)
HEADER_COPIES = 2
_HEADER = HEADER_LAYOUT.struct
_UNCHECKED_BYTES = _HEADER.size - 4
HEADERS_BYTES = HEADER_COPIES * _HEADER.size
assert HEADERS_BYTES == 128


@dataclass(slots=True)
class Draft:
    """An envelope about to be written. Built on the node's thread, encoded by the job."""

    generation: int
    lsn: int
    durable_through: int
    rows: list[tuple[int, LogEnd]]
    table_is_complete: bool
    sections: list[tuple[int, memoryview]]
    notes: bytes = b""

    @property
    def size(self) -> int:
        content = sum(SECTION_BYTES + len(view) for _, view in self.sections)
        return envelope_bytes(len(self.rows), content + len(self.notes))


def aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)


def envelope_bytes(rows: int, content_bytes: int) -> int:
    return aligned(HEADERS_BYTES + rows * ROW_BYTES + content_bytes)


def encode(draft: Draft, salt: int) -> list[Buffer]:
    """The buffers to write, in order; together they are `draft.size` bytes."""
    table = b"".join(
        _ROW.pack(group, end.next_index, end.next_offset, end.term, end.last_crc)
        for group, end in draft.rows
    )
    table += draft.notes
    content = _joined(_section_buffers(draft.sections))
    content_crc = content_bytes = 0
    for buffer in content:
        content_crc = crc32c(buffer, content_crc)
        content_bytes += len(buffer)
    unchecked = _HEADER.pack(
        MAGIC, draft.generation, draft.lsn, draft.durable_through, content_bytes, content_crc,
        crc32c(table), len(draft.rows), _COMPLETE if draft.table_is_complete else 0,
        len(draft.notes), 0,
    )[:_UNCHECKED_BYTES]  # fmt: skip
    header = unchecked + crc32c(unchecked, salt).to_bytes(4, "little")
    size = HEADERS_BYTES + len(table) + content_bytes
    return [header + header + table, *content, bytes(aligned(size) - size)]


def _section_buffers(sections: Sequence[tuple[int, memoryview]]) -> Iterable[bytes | memoryview]:
    for group, view in sections:
        unchecked = _SECTION.pack(group, len(view), 0)[:12]
        yield unchecked + crc32c(unchecked).to_bytes(4, "little")
        yield view


def _joined(buffers: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """The same bytes, with small neighbours joined into one buffer."""
    joined: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for buffer in buffers:
        if len(buffer) < _JOIN_BELOW_BYTES:
            small.append(buffer)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(buffer)
    if small:
        joined.append(b"".join(small))
    return joined


def decode_header(data: memoryview, position: int, *, generation: int, salt: int) -> (
    EnvelopeHeader | None
):  # fmt: skip
    """The header of the envelope at `position`, from either copy; None if neither is whole."""
    for start in (position, position + _HEADER.size):
        if start + _HEADER.size > len(data):
            return None
        header = EnvelopeHeader._make(_HEADER.unpack_from(data, start))
        if header.magic != MAGIC or header.generation != generation:
            continue
        if crc32c(data[start : start + _UNCHECKED_BYTES], salt) == header.crc:
            return header
    return None


def is_foreign(head: memoryview, salt: int) -> bool:
    """Whether a file that begins like this holds envelopes which are not this store's.

    A header lies within one sector, which is written as a whole or not at all. So a header that
    does not match its CRC is another store's, or damaged; it was never cut short.
    """
    found = False
    for start in (0, _HEADER.size):
        if start + _HEADER.size <= len(head):
            header = EnvelopeHeader._make(_HEADER.unpack_from(head, start))
            if crc32c(head[start : start + _UNCHECKED_BYTES], salt) == header.crc:
                return False
            found |= header.magic == MAGIC
    return found


def next_header(data: bytes, position: int, *, generation: int, salt: int) -> int:
    """The position of the next envelope at or behind `position`; -1 if there is none."""
    pattern = MAGIC + generation.to_bytes(8, "little")
    view = memoryview(data)
    found = data.find(pattern, position)
    while found >= 0:
        start = found & ~(ALIGNMENT - 1)
        within = found - start in (0, _HEADER.size) and start >= position
        if within and decode_header(view, start, generation=generation, salt=salt):
            return start
        found = data.find(pattern, found + 1)
    return -1


def encode_notes(group: int, state: HardState, truncations: Iterable[Truncation]) -> bytes:
    notes = b""
    if state != HardState():
        body = NOTE_LAYOUTS[STATE].struct.pack(state.term, state.vote.encode())
        notes = _NOTE.pack(group, STATE) + body
    for end, lsn, told in truncations:
        notes += _NOTE.pack(group, TRUNCATION) + NOTE_LAYOUTS[TRUNCATION].struct.pack(
            end.next_index, end.next_offset, end.term, end.last_crc, lsn, told
        )
    return notes


def decode_table(
    envelope: memoryview, header: EnvelopeHeader
) -> tuple[list[tuple[int, LogEnd]], list[tuple[int, HardState | Truncation]]] | None:
    """The rows of the table, and the notes; None if they do not match their CRC."""
    table = envelope[HEADERS_BYTES : header.content_start]
    rows_bytes = header.table_count * ROW_BYTES
    if len(table) != rows_bytes + header.notes_bytes or crc32c(table) != header.table_crc:
        return None
    rows = [
        (group, LogEnd(next_index, next_offset, last_crc, term))
        for group, next_index, next_offset, term, last_crc in _ROW.iter_unpack(table[:rows_bytes])
    ]
    return rows, list(_decode_notes(table[rows_bytes:]))


def _decode_notes(notes: memoryview) -> Iterator[tuple[int, HardState | Truncation]]:
    position = 0
    while position < len(notes):
        group, kind = _NOTE.unpack_from(notes, position)
        body = NOTE_LAYOUTS[kind].struct
        values = body.unpack_from(notes, position + _NOTE.size)
        position += _NOTE.size + body.size
        if kind == STATE:
            term, vote = values
            yield group, HardState(term, vote.rstrip(b"\0").decode())
        else:
            next_index, next_offset, term, last_crc, lsn, told = values
            yield group, Truncation(LogEnd(next_index, next_offset, last_crc, term), lsn, told)


def content_of(envelope: memoryview, header: EnvelopeHeader) -> memoryview | None:
    """The sections; None if they are cut short or do not match their CRC."""
    content = envelope[header.content_start : header.content_start + header.content_bytes]
    if len(content) != header.content_bytes or crc32c(content) != header.content_crc:
        return None
    return content


def decode_section(data: memoryview, position: int) -> tuple[int, int] | None:
    """(group, length) of the section that begins at `position`; None if there is none."""
    if position + SECTION_BYTES > len(data):
        return None
    group, length, crc = _SECTION.unpack_from(data, position)
    if crc32c(data[position : position + 12]) != crc:
        return None
    return group, length
