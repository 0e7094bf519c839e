"""What the tests of record batches share: records to make them of, and a way to forge them."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from hocket.wire.batch import Batch, encode
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
