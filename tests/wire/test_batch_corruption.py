"""Batches that were damaged, cut short, or forged by a hostile producer with CRCs that match.

Whatever the bytes are, a reader gets CorruptData or what was meant: no other error, no crash, and
no memory beyond the limits.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import lz4.block
import pyarrow
import pytest
import zstandard
from hypothesis import given, strategies as st

from hocket.errors import CorruptData
from hocket.wire.arrow import to_arrow
from hocket.wire.batch import PRELUDE, PRELUDE_BYTES, check_entries, encode, iterate_entries, parse
from hocket.wire.columns import FLAG_HEADER_NULLS, FLAG_HEADERS, FLAG_KEY_HASHES, FLAG_KEYS
from hocket.wire.entry import HEADER_BYTES, unpack_header
from tests.support.wire.batches import (
    CODECS,
    body_of,
    contents,
    entry_with_everything,
    prelude,
    sealed,
)


def looked_at(entry: bytes) -> tuple[Any, ...]:
    """Everything that can be read of it, also by way of Arrow, which must agree."""
    check_entries(entry)
    batch = parse(entry)
    seen = contents(batch)
    table: pyarrow.RecordBatch = to_arrow(batch, "topic", 0, headers=True)
    assert table["value"].to_pylist() == batch.values()
    assert table["key"].to_pylist() == batch.keys()
    table["headers"].to_pylist()
    return seen


@pytest.mark.parametrize("codec", CODECS)
def test_no_flipped_byte_goes_unseen(codec: str) -> None:
    entry = entry_with_everything(codec)
    meant = looked_at(entry)
    end = HEADER_BYTES + unpack_header(entry).length
    for at in range(len(entry)):
        damaged = bytearray(entry)
        damaged[at] ^= 0x41
        if at < end:
            with pytest.raises(CorruptData):
                parse(damaged)
            with pytest.raises(CorruptData):
                check_entries(damaged)
        else:
            assert looked_at(bytes(damaged)) == meant  # padding means nothing


@pytest.mark.parametrize("codec", CODECS)
def test_cut_short_anywhere(codec: str) -> None:
    entry = entry_with_everything(codec)
    for length in range(len(entry)):
        with pytest.raises(CorruptData):
            parse(entry[:length])
        with pytest.raises(CorruptData):
            check_entries(entry + entry[:length] if length else entry[:-1])
        with pytest.raises(CorruptData):
            list(iterate_entries(entry + entry[:length] if length else entry[:-1]))


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_forged_does_no_harm(codec: str) -> None:
    entry = entry_with_everything(codec)
    body = body_of(entry)
    refused = 0
    for at in range(len(body)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            forged = bytearray(body)
            forged[at] = value
            try:
                looked_at(sealed(entry, bytes(forged)))
            except CorruptData:
                refused += 1
    assert refused > 100


@given(data=st.data(), codec=st.sampled_from(CODECS))
def test_anything_forged_does_no_harm(data: st.DataObject, codec: str) -> None:
    entry = entry_with_everything(codec)
    body = bytearray(body_of(entry))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + 4] = data.draw(st.binary(max_size=8))
    changes = {
        "flags": data.draw(st.sampled_from([unpack_header(entry).flags, *range(33)])),
        "count": data.draw(st.sampled_from([3, 0, 1, 2, 4, 2**32 - 1])),
        "codec": data.draw(st.sampled_from([unpack_header(entry).codec, 0, 1, 2, 3])),
    }
    try:
        looked_at(sealed(entry, bytes(body), **changes))
    except CorruptData:
        return


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("raw_length", [0, 8, 100, 160 << 20, 2**31, 2**32 - 1])
def test_a_forged_raw_length_allocates_nothing(codec: str, raw_length: int) -> None:
    entry = encode([b"some value"] * 100, timestamps=0, codec=codec)
    forged = sealed(entry, prelude(entry, raw_length=raw_length))
    tracemalloc.start()
    try:
        for look in (check_entries, parse):
            with pytest.raises(CorruptData, match=f"columns of {raw_length} bytes"):
                look(forged)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("by", [-8, 8])
def test_columns_that_decompress_to_another_length(codec: str, by: int) -> None:
    entry = encode([b"some value"] * 100, timestamps=0, codec=codec)
    raw_length = PRELUDE.unpack_from(body_of(entry))[2]
    batch = parse(sealed(entry, prelude(entry, raw_length=raw_length + by)))
    with pytest.raises(CorruptData, match="offsets 0 to 100"):  # which are gone is said
        batch.values()


def zstd_frame_declaring(length: int) -> bytes:
    """One segment of `length` bytes, with nothing in it but an empty last block."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", length) + b"\x01\x00\x00"


@pytest.mark.parametrize(
    "packed",
    [
        zstd_frame_declaring(1 << 40),
        zstd_frame_declaring(2**64 - 3),
        zstd_frame_declaring(4096),
        zstandard.compress(bytes(64 << 20)),
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20)),
        zstandard.compress(bytes(4096)) + b"more",
        b"",
        b"not zstd at all",
    ],
    ids=["1 TiB", "2**64", "empty", "bomb", "bomb of no size", "more behind it", "none", "text"],
)
def test_a_hostile_zstd_frame_allocates_nothing(packed: bytes) -> None:
    entry = encode([bytes(3000)], timestamps=0, codec="zstd")
    head = prelude(entry, raw_length=4096)[:PRELUDE_BYTES]
    batch = parse(sealed(entry, head + packed))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=r"zstd"):
            batch.values()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0},
        {"count": 2},
        {"count": 2**32 - 1},
        {"codec": 3},
        {"codec": 254},
        {"flags": 32},
        {"flags": FLAG_KEYS},
        {"flags": FLAG_KEY_HASHES},
        {"flags": FLAG_HEADER_NULLS},
        {"flags": FLAG_HEADERS},
        {"kind": 2},
        {"max_timestamp": 2**63},
        {"base_offset": 2**63 - 3},
        {"base_offset": 2**64 - 1},
        {"length": 39},
        {"length": 0},
        {"length": 2**32 - 1},
    ],
    ids=str,
)
def test_headers_that_cannot_be(changes: dict[str, int]) -> None:
    entry = encode([b"a", b"b", b"c"], timestamps=0)
    forged = sealed(entry, body_of(entry), **changes)
    with pytest.raises(CorruptData):
        parse(forged, verify=False)


def test_columns_that_do_not_begin_with_the_name_of_their_codec() -> None:
    entry = encode([b"a", b"b", b"c"], timestamps=0)
    forged = sealed(entry, body_of(entry), codec=255)
    with pytest.raises(CorruptData, match="do not begin with the name of their codec"):
        parse(forged, verify=False).values()


def test_reserved_means_reserved() -> None:
    entry = encode([b"a"], timestamps=0)
    with pytest.raises(CorruptData):
        parse(sealed(entry, prelude(entry, reserved=1)))


def offsets_at(entry: bytes, wanted: list[int]) -> int:
    """Where in the entry these offsets stand; they must be there once."""
    column = struct.pack(f"<{len(wanted)}i", *wanted)
    assert entry.count(column) == 1
    return entry.index(column) - HEADER_BYTES


COLUMNS: list[tuple[list[int], Callable[[Any], object]]] = [
    ([0, 11, 11, 56], lambda batch: batch.values()),
    ([0, 3, 3, 3], lambda batch: batch.keys()),
    ([0, 2, 2, 3], lambda batch: batch.headers()),
    ([0, 1, 4, 5], lambda batch: batch.headers()),
    ([0, 1, 1, 1], lambda batch: batch.headers()),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("at", "offset"),
    [(0, 1), (0, -1), (1, -1), (1, 2**31 - 1), (1, 99), (2, -(2**31)), (3, -1), (3, 2**31 - 1)],
)
@pytest.mark.parametrize(("offsets", "read"), COLUMNS, ids=lambda each: str(each)[:15])
def test_offsets_that_fall_or_leave_their_column(
    offsets: list[int], read: Callable[[Any], object], at: int, offset: int, codec: str
) -> None:
    entry = entry_with_everything()
    body = bytearray(body_of(entry))
    struct.pack_into("<i", body, offsets_at(entry, offsets) + 4 * at, offset)
    raw_at = PRELUDE_BYTES + 8 * 3
    stored = bytes(body[raw_at:])
    number = CODECS.index(codec)
    if codec == "lz4":
        stored = lz4.block.compress(stored, store_size=False)
    elif codec == "zstd":
        stored = zstandard.compress(stored)
    forged = sealed(entry, bytes(body[:raw_at]) + stored, codec=number)
    with pytest.raises(CorruptData, match="offsets"):
        read(parse(forged))
    with pytest.raises(CorruptData):
        to_arrow(parse(forged), "topic", 0, headers=True)


@pytest.mark.parametrize(("offset", "start", "end"), [(99, 0, 1), (-1, 1, 2)])
def test_bad_offsets_are_seen_from_a_part_of_the_batch_too(
    offset: int, start: int, end: int
) -> None:
    entry = entry_with_everything()
    body = bytearray(body_of(entry))
    struct.pack_into("<i", body, offsets_at(entry, [0, 11, 11, 56]) + 4, offset)
    batch = parse(sealed(entry, bytes(body)))
    with pytest.raises(CorruptData, match=f"offsets of items {start} to {end}"):
        batch.values(start, end)
    assert batch.values(2, 3) == [b"third" * 9]  # these are as they were


@pytest.mark.parametrize("codec", CODECS)
def test_bodies_too_short_for_what_every_batch_has(codec: str) -> None:
    entry = entry_with_everything(codec)
    for length in range(PRELUDE_BYTES + 8 * 3):
        forged = sealed(entry, body_of(entry)[:length])
        for look in (check_entries, parse):
            with pytest.raises(CorruptData, match=f"{length} bytes cannot hold 3 records"):
                look(forged)


def test_a_bad_column_does_not_spoil_the_others() -> None:
    entry = entry_with_everything()
    body = bytearray(body_of(entry))
    struct.pack_into("<i", body, offsets_at(entry, [0, 3, 3, 3]) + 4, 99)
    batch = parse(sealed(entry, bytes(body)))
    assert batch.values() == parse(entry).values()
    with pytest.raises(CorruptData):
        batch.keys()


def test_header_names_that_are_not_text() -> None:
    entry = encode([b"a"], timestamps=0, headers=[{"name": b"v"}])
    forged = sealed(entry, body_of(entry).replace(b"name", b"n\xffme"))
    with pytest.raises(CorruptData, match="UTF-8"):
        parse(forged).headers()
    with pytest.raises(CorruptData, match="UTF8"):
        to_arrow(parse(forged), "topic", 0, headers=True)


def test_columns_that_end_early_or_late() -> None:
    entry = encode([b"a" * 8], timestamps=0)
    body = body_of(entry)
    raw_length = len(body) - PRELUDE_BYTES
    for changed in (body + bytes(8), body[:-8]):
        longer = raw_length + len(changed) - len(body)
        with pytest.raises(CorruptData):
            parse(sealed(entry, prelude(sealed(entry, changed), raw_length=longer)))


def test_compressed_columns_are_opened_only_when_they_are_read() -> None:
    entry = encode([b"some value"] * 100, timestamps=0, codec="lz4", keys=[b"key"] * 100)
    body = bytearray(body_of(entry))
    body[PRELUDE_BYTES + 800 :] = random.Random(1).randbytes(len(body) - PRELUDE_BYTES - 800)
    batch = parse(sealed(entry, bytes(body)))
    assert batch.count == 100
    assert batch.key_hashes is not None
    with pytest.raises(CorruptData, match="lz4 columns do not decompress"):
        batch.values()


def test_without_verifying_damage_shows_where_it_can() -> None:
    entry = encode([b"value"], timestamps=0)
    damaged = entry.replace(b"value", b"vaLue")
    with pytest.raises(CorruptData, match="body does not match its checksum"):
        check_entries(damaged)
    assert check_entries(damaged, verify=False)[0].header.count == 1
    assert parse(damaged, verify=False).values() == [b"vaLue"]
