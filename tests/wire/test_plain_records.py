"""Small and simple batches by the short way: the same records, and never what `parse` refuses."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from hocket.errors import CorruptData
from hocket.wire.batch import PLAIN_RECORDS_MAX, encode, iterate_entries, parse, plain_records
from hocket.wire.entry import HEADER_BYTES

Records = tuple[list[bytes], list[int]]


def shortly(entry: bytes) -> Records | None:
    ((position, header),) = iterate_entries(entry)
    found = plain_records(memoryview(entry), position, header)
    return None if found is None else (found[0], list(found[1]))


def at_length(entry: bytes) -> Records:
    batch = parse(entry)
    return batch.values(), batch.timestamps()


def with_right_checksums(entry: bytes) -> bytes:
    """The entry as if its producer had written it so."""
    (length,) = struct.unpack_from("<I", entry, 4)
    made = bytearray(entry)
    struct.pack_into("<I", made, 44, crc32c(entry[HEADER_BYTES : HEADER_BYTES + length]))
    struct.pack_into("<I", made, 0, crc32c(bytes(made[4:HEADER_BYTES])))
    return bytes(made)


@settings(max_examples=60)
@given(
    values=st.lists(st.binary(max_size=40), min_size=1, max_size=PLAIN_RECORDS_MAX + 2),
    start=st.integers(0, 2**62),
)
def test_the_records_are_those_of_the_long_way(values: list[bytes], start: int) -> None:
    stamps = [start + at for at in range(len(values))]
    entry = encode(values, timestamps=stamps)
    assert at_length(entry) == (values, stamps)
    few = len(values) <= PLAIN_RECORDS_MAX
    assert shortly(entry) == ((values, stamps) if few else None)


@pytest.mark.parametrize(
    "entry",
    [
        encode([b"a"], timestamps=1, keys=[b"k"]),
        encode([b"a"], timestamps=1, headers=[{"h": b"x"}]),
        encode([b"a" * 1000], timestamps=1, codec="lz4"),
    ],
)
def test_keys_headers_and_compression_take_the_long_way(entry: bytes) -> None:
    assert shortly(entry) is None
    assert at_length(entry)[0][0][:1] == b"a"


def test_whatever_byte_is_changed_nothing_is_read_that_the_long_way_refuses() -> None:
    entry = encode([b"one", b"", b"three"], timestamps=[7, 8, 9])
    assert struct.unpack_from("<I", entry, 44)[0] == crc32c(
        entry[HEADER_BYTES : HEADER_BYTES + 112]
    )
    looked_at = 0
    for at in range(4, len(entry)):
        for bit in (1, 0x40, 0x80):
            changed = entry[:at] + bytes([entry[at] ^ bit]) + entry[at + 1 :]
            for tried in (changed, with_right_checksums(changed)):
                looked_at += said_the_same(tried)
    assert looked_at > 50


def said_the_same(entry: bytes) -> bool:
    """Whether the short way has read it; then the long way reads the same."""
    try:
        found = shortly(entry)
    except CorruptData:  # its header, which both read by the same function
        return False
    if found is None:
        return False
    assert at_length(entry) == found
    return True
