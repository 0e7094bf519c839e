"""The body of an entry of kind STAGE: a batch, and the transaction that it is staged for.

The batch's own body stands at the end, unchanged. In front of it stands what the batch's header
will need when the batch is published:

    number of the transaction 8 | latest timestamp 8 | body crc 4 | count of records 4 | flags 2 |
    codec 1 | length of the transaction's id 1 | reserved 4 | the id | zeros to a multiple of 8
"""

from __future__ import annotations

from typing import NamedTuple

from hocket.wire.entry import Header, padded
from hocket.wire.layout import Layout

LAYOUT = Layout(
    "QQIIHBBI",
    (
        "number", "max_timestamp", "body_crc", "records", "flags", "codec", "name_length",
        "reserved",
    ),
)  # fmt: skip
_FIXED = LAYOUT.struct
assert _FIXED.size == 32


class StagedBatch(NamedTuple):
    transaction: str
    number: int
    max_timestamp: int
    body_crc: int
    records: int
    flags: int
    codec: int
    body: memoryview


def stage_prelude(transaction: str, number: int, header: Header) -> bytes:
    """What stands in front of the body of the batch with this header."""
    name = transaction.encode()
    fixed = _FIXED.pack(
        number, header.max_timestamp, header.body_crc, header.count, header.flags, header.codec,
        len(name), 0,
    )  # fmt: skip
    return (fixed + name).ljust(padded(_FIXED.size + len(name)), b"\0")


def open_stage(body: memoryview) -> StagedBatch:
    """Open the body of an entry from our own log; the batch's body is a view of it."""
    number, max_timestamp, body_crc, records, flags, codec, length, _ = _FIXED.unpack_from(body)
    name = bytes(body[_FIXED.size : _FIXED.size + length]).decode()
    start = padded(_FIXED.size + length)
    return StagedBatch(name, number, max_timestamp, body_crc, records, flags, codec, body[start:])
