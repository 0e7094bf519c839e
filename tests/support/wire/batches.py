"""What the tests of record batches share: records to make them of, and a way to forge them."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from hocket.wire.batch import PRELUDE, PRELUDE_BYTES, Batch, encode
from hocket.wire.entry import HEADER_BYTES, pack_header, padded, unpack_header

CODECS = ("none", "lz4", "zstd")
PRODUCER = bytes(range(16))

binary = st.binary(max_size=30)
header_lists = st.dictionaries(st.text(max_size=6), st.none() | binary, max_size=3)
records = st.lists(
    st.tuples(binary, st.none() | binary, header_lists, st.integers(0, 2**63 - 1)),
    min_size=1,
    max_size=40,
)


def entry_with_everything(codec: str = "none") -> bytes:
    """Small, and with every buffer that the format knows."""
    return encode(
        [b"first value", b"", b"third" * 9],
        timestamps=[1_000, 3_000, 2_000],
        keys=[b"key", None, b""],
        headers=[{"a": b"1", "né": None}, None, [("a", b"")]],
        codec=codec,
        producer_id=PRODUCER,
        epoch=7,
        sequence=9,
    )


def body_of(entry: bytes) -> bytes:
    return entry[HEADER_BYTES : HEADER_BYTES + unpack_header(entry).length]


def sealed(entry: bytes, body: bytes, **changes: Any) -> bytes:
    """An entry with the header of another, but for these changes, and with CRCs that match."""
    header = unpack_header(entry)._asdict() | {"length": len(body), "body_crc": crc32c(body)}
    del header["crc"]
    return pack_header(**header | changes) + body + bytes(padded(len(body)) - len(body))


def contents(batch: Batch) -> tuple[Any, ...]:
    """All that a reader gets to see."""
    hashes = None if batch.key_hashes is None else batch.key_hashes.tolist()
    return (
        batch.producer_id, batch.epoch, batch.sequence, batch.base_offset, batch.end_offset, hashes,
        batch.values(), batch.keys(), batch.timestamps(), batch.headers(),
    )  # fmt: skip


# --- nonsense under a right checksum -------------------------------------------------------------


def prelude(entry: bytes, **changes: int) -> bytes:
    """The body with this changed in its prelude."""
    body = body_of(entry)
    fields = ("producer_id", "epoch", "raw_length", "sequence", "reserved")
    values = dict(zip(fields, PRELUDE.unpack_from(body), strict=True)) | changes
    return PRELUDE.pack(*values.values()) + body[PRELUDE_BYTES:]


def with_false_raw_length(
    values: list[bytes], *, codec: str = "lz4", by: int = 8, **more: Any
) -> bytes:
    """A batch that nobody can open. With lz4, beyond OPENED_BYTES_MAX, the broker cannot tell."""
    entry = encode(values, codec=codec, **{"timestamps": 1, **more})
    raw_length = PRELUDE.unpack_from(body_of(entry))[2]
    return sealed(entry, prelude(entry, raw_length=raw_length + by))


def with_fallen_offset(values: list[bytes], *, at: int, **more: Any) -> bytes:
    """A batch whose value number `at` ends before it begins; all the others can be read."""
    assert 0 < at < len(values) - 1
    entry = encode(values, **{"timestamps": 1, **more})
    body = bytearray(body_of(entry))
    columns = len(body) - PRELUDE.unpack_from(body)[2]
    ends = columns + 8 * len(values)  # where the offsets of the values begin
    (start,) = struct.unpack_from("<i", body, ends + 4 * at)
    struct.pack_into("<i", body, ends + 4 * (at + 1), start - 1)
    return sealed(entry, bytes(body))


def with_foreign_name(values: list[bytes], *, at: int, **more: Any) -> bytes:
    """A batch of which the record `at` has a header whose name is not UTF-8."""
    headers = [{"name": b"x"} if each == at else {"word": b"x"} for each in range(len(values))]
    entry = encode(values, headers=headers, **{"timestamps": 1, **more})
    return sealed(entry, body_of(entry).replace(b"name", b"n\xff\xfee", 1))
