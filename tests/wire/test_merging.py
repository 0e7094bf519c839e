"""Small batches merged: the same records, in the same order, as each batch has them alone."""

from __future__ import annotations

import struct

from crc32c import crc32c
from hypothesis import given, strategies as st

from hocket.wire import merging
from hocket.wire.batch import encode, iterate_entries, parse
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, unpack_header
from hocket.wire.merging import SMALL, merged

records = st.lists(
    st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=9), st.integers(0, 2**60)),
    min_size=1,
    max_size=SMALL + 2,
)


def stamped(entry: bytes, base: int) -> bytes:
    """As the broker stores it."""
    header = unpack_header(entry)
    fields = header._replace(base_offset=base)._asdict()
    fields.pop("crc")
    return pack_header(**fields) + entry[HEADER_BYTES:]


def stored(batches: list[bytes], base: int = 7) -> list[tuple[memoryview, int, Header]]:
    found = []
    for entry in batches:
        payload = memoryview(stamped(entry, base))
        ((position, header),) = iterate_entries(payload)
        found.append((payload, position, header))
        base = header.end_offset
    return found


def of(each: list[tuple[bytes, bytes | None, int]], *, codec: str = "none") -> bytes:
    values, keys, stamps = zip(*each, strict=True)
    return encode(values, keys=keys, timestamps=stamps, codec=codec)


def one(number: int, key: bytes | None = b"k") -> bytes:
    return of([(b"%d" % number, key, number)])


def contents(
    entries: list[tuple[memoryview, int, Header]],
) -> list[tuple[int, bytes, bytes | None, int]]:
    found = []
    for payload, position, header in entries:
        batch = parse(payload, position, header=header)
        offsets = range(batch.base_offset, batch.end_offset)
        found += zip(offsets, batch.values(), batch.keys(), batch.timestamps(), strict=True)
    return found


@given(st.lists(records, min_size=1, max_size=8))
def test_the_same_records_as_each_batch_alone(
    batches: list[list[tuple[bytes, bytes, int]]],
) -> None:
    entries = stored([of(each) for each in batches])
    found = merged(entries)
    if found is None:
        assert len(batches) == 1 or any(not is_simple(each) for each in batches[:2])
        return
    batch, number = found
    assert number == len(batches) or not is_simple(batches[number])
    offsets = range(batch.base_offset, batch.end_offset)
    read = list(zip(offsets, batch.values(), batch.keys(), batch.timestamps(), strict=True))
    assert read == contents(entries[:number])


def is_simple(batch: list[tuple[bytes, bytes | None, int]]) -> bool:
    keys = {key is None for _, key, _ in batch}
    return len(batch) <= SMALL and len(keys) == 1


def test_what_is_not_simple_ends_it() -> None:
    small = [one(number) for number in range(3)]
    headed = encode([b"v"], timestamps=1, headers=[{"a": b"b"}])
    packed = of([(bytes(500), b"k", 1)], codec="zstd")
    for other in (headed, packed):
        found = merged(stored([*small, other, *small]))
        assert found is not None
        assert found[1] == 3
        assert merged(stored([other, *small])) is None
        assert merged(stored([small[0], other])) is None


def test_what_is_damaged_is_left_to_whoever_reads_it_alone() -> None:
    entries = stored([one(number) for number in range(4)])
    for at in range(HEADER_BYTES, len(entries[2][0])):
        payload, position, header = entries[2]
        damaged = bytearray(payload)
        damaged[at] ^= 0x40
        found = merged([*entries[:2], (memoryview(bytes(damaged)), position, header), entries[3]])
        assert found is not None
        assert found[1] == (2 if at < HEADER_BYTES + header.length else 4)


def test_a_gap_ends_it() -> None:
    entries = stored([one(1), one(2)]) + stored([one(3)], base=100)
    found = merged(entries)
    assert found is not None
    assert found[1] == 2


def test_it_has_bounds() -> None:
    many = stored([one(number) for number in range(merging.RECORDS_MAX + 5)])
    found = merged(many)
    assert found is not None
    assert found[1] == merging.RECORDS_MAX
    large = stored([of([(bytes(merging.BYTES_MAX // 4), None, 1)]) for _ in range(9)])
    found = merged(large)
    assert found is not None
    assert found[1] == 3


def test_what_is_large_stays_alone() -> None:
    """Of two batches that are as large as a batch may be no batch can be made."""
    large = of([(bytes(merging.BYTES_MAX), None, 1)])
    assert merged(stored([one(1), large])) is None
    assert merged(stored([large, one(1), one(2)])) is None
    found = merged(stored([one(1), one(2), large]))
    assert found is not None
    assert found[1] == 2


def test_nonsense_under_a_right_checksum_is_never_merged_unlike_it_is_read() -> None:
    good = one(3, b"key")
    (length,) = struct.unpack_from("<I", good, 4)
    for at in range(HEADER_BYTES, HEADER_BYTES + length):
        for flip in (0x01, 0x80):
            body = bytearray(good[HEADER_BYTES:])
            body[at - HEADER_BYTES] ^= flip
            fields = unpack_header(good)._asdict()
            fields |= {"body_crc": crc32c(body[:length]), "base_offset": 8}
            fields.pop("crc")
            payload = memoryview(pack_header(**fields) + body)
            ((position, header),) = iterate_entries(payload)
            found = merged([*stored([one(2)]), (payload, position, header)])
            if found is None:
                continue
            read = found[0]
            alone = parse(payload, position, header=header)  # which does not raise
            assert (read.values(1), read.keys(1), read.timestamps(1)) == (
                alone.values(),
                alone.keys(),
                alone.timestamps(),
            )
