"""The entry: what a log consists of, on disk, in memory and on the wire alike.

An entry is a header of 56 bytes and a body, padded with zeros to a multiple of 8. Producers send
whole entries. The broker stamps term, index, base offset and previous CRC into the header, and
never touches the body: the body's CRC-32C is the producer's own, checked end to end.

`index` counts the entries of a group (a partition's log), `base_offset` counts records. Both stand
in every header, so offsets are dense although not every entry holds records.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from hocket.errors import CorruptData
from hocket.wire.layout import Layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

_UNCHECKED = struct.Struct("<IBBHIQQQIIQ")  # the header without the CRC that covers it


class Header(NamedTuple):
    crc: int  # CRC-32C of the 52 bytes that follow it
    length: int  # of the body, without the padding
    kind: int  # an EntryKind
    codec: int  # see wire.batch
    flags: int  # see wire.batch
    count: int  # type: ignore[assignment]  # of records; 0 if it holds none (hides tuple.count)
    term: int
    index: int  # type: ignore[assignment]  # (hides tuple.index)
    base_offset: int  # of the first record, or of the next one if it holds none
    previous_crc: int  # the `crc` of the entry before it in its group; 0 for the first
    body_crc: int
    max_timestamp: int  # of its records, microseconds

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def size(self) -> int:
        """Bytes of the whole entry, padding included."""
        return HEADER_BYTES + padded(self.length)


HEADER_LAYOUT = Layout("IIBBHIQQQIIQ", Header._fields)
HEADER = HEADER_LAYOUT.struct
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 56


def padded(length: int) -> int:
    return (length + 7) & ~7


def pack_header(
    *,
    length: int,
    kind: int,
    codec: int = 0,
    flags: int = 0,
    count: int = 0,
    term: int = 0,
    index: int = 0,
    base_offset: int = 0,
    previous_crc: int = 0,
    body_crc: int,
    max_timestamp: int = 0,
) -> bytes:
    rest = _UNCHECKED.pack(
        length, kind, codec, flags, count, term, index, base_offset, previous_crc, body_crc,
        max_timestamp,
    )  # fmt: skip
    return crc32c(rest).to_bytes(4, "little") + rest


def unpack_header(buffer: Buffer, position: int = 0) -> Header:
    """Raises CorruptData if the header is cut short or does not match its own CRC."""
    view = memoryview(buffer)[position : position + HEADER_BYTES]
    if len(view) < HEADER_BYTES:
        raise CorruptData(f"an entry header of {len(view)} bytes instead of {HEADER_BYTES}")
    header = Header._make(HEADER.unpack(view))
    if crc32c(view[4:]) != header.crc:
        raise CorruptData(f"an entry header at {position} does not match its checksum")
    return header
