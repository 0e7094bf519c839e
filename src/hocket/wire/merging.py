"""Many small batches as one: for readers of columns, where records came one by one.

To open a batch takes some microseconds for each of its columns, however few records it has. Here
the records of many are put together first, and opened once: a tenth of the time. Whatever is not
small and simple, or is wrong, is left alone: `parse` looks at it, and says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise

from crc32c import crc32c

from hocket.model import EntryKind
from hocket.wire.batch import PRELUDE_BYTES, Batch, encode, parse
from hocket.wire.columns import FLAG_KEY_HASHES, FLAG_KEYS, TIMESTAMP_MAX
from hocket.wire.entry import HEADER_BYTES, Header, padded, unpack_header

SMALL = 16  # records at most of a batch that is merged
RECORDS_MAX = 4_096  # of what is merged: some 15 ms, in which an event loop stands still
BYTES_MAX = 1 << 20

_BATCH = int(EntryKind.BATCH)
_KEYED = FLAG_KEYS | FLAG_KEY_HASHES
_OFFSET_MAX = 2**63 - 1
_KEY_OFFSETS = [struct.Struct(f"<{count + 1}i") for count in range(SMALL + 1)]
# By records: the prelude's raw length and reserved word, timestamps, offsets of the values.
_PLAIN = [struct.Struct(f"<20xI8xQ{count}q{count + 1}i") for count in range(SMALL + 1)]
_HASHED = [struct.Struct(f"<20xI8xQ{8 * count}x{count}q{count + 1}i") for count in range(SMALL + 1)]

Records = tuple[list[bytes], list[bytes | None], list[int]]


def merged(entries: Iterable[tuple[memoryview, int, Header]]) -> tuple[Batch, int] | None:
    """The first of these entries as one batch, and how many they are; None: fewer than two.

    Each is a buffer, the position of the entry there, and its header, as of `iterate_entries`.
    """
    values: list[bytes] = []
    keys: list[bytes | None] = []
    stamps: list[int] = []
    number = size = base = end = 0
    for payload, position, header in entries:
        if not number:
            base = end = header.base_offset
        if header.base_offset != end or len(values) >= RECORDS_MAX:
            break
        if size + header.length > BYTES_MAX:  # a batch may be so large that nothing fits beside it
            break
        found = _records(payload, position, header)
        if found is None:
            break
        values += found[0]
        keys += found[1]
        stamps += found[2]
        number += 1
        size += header.length
        end += header.count
    if number < 2:
        return None
    entry = encode(values, timestamps=stamps, keys=keys)
    header = unpack_header(entry)._replace(base_offset=base)
    return parse(entry, header=header, verify=False), number


def _records(payload: memoryview, position: int, header: Header) -> Records | None:
    """Values, keys and timestamps of a batch that is small and simple and right, else None."""
    count, length, flags = header.count, header.length, header.flags
    if header.codec or header.kind != _BATCH or not 0 < count <= SMALL:
        return None
    if flags == _KEYED:
        layout, columns_start = _HASHED[count], PRELUDE_BYTES + 8 * count
    elif not flags:
        layout, columns_start = _PLAIN[count], PRELUDE_BYTES
    else:
        return None
    start = position + HEADER_BYTES
    body = payload[start : start + length]
    if length < layout.size or crc32c(body) != header.body_crc:
        return None
    raw_length, reserved, *numbers = layout.unpack_from(body)
    stamps, offsets = numbers[:count], numbers[count:]
    at = columns_start + ((12 * count + 11) & ~7)
    if (
        reserved
        or raw_length != length - columns_start
        or offsets[0]
        or min(stamps) < 0
        or header.max_timestamp > TIMESTAMP_MAX
        or header.base_offset + count > _OFFSET_MAX
        or (count > 1 and offsets != sorted(offsets))
        or offsets[count] < 0
    ):
        return None
    data = bytes(body[at : at + offsets[count]])
    values = [data] if count == 1 else [data[begin:end] for begin, end in pairwise(offsets)]
    at += padded(offsets[count])
    keys: list[bytes | None] = [None] * count
    if flags:
        found = _KEY_OFFSETS[count]
        if at + found.size > length:
            return None
        ends = found.unpack_from(body, at)
        at += padded(found.size)
        if ends[0] or ends[count] < 0 or (count > 1 and list(ends) != sorted(ends)):
            return None
        data = bytes(body[at : at + ends[count]])
        keys = [data] if count == 1 else [data[begin:end] for begin, end in pairwise(ends)]
        at += padded(ends[count])
    return (values, keys, stamps) if at == length else None
