"""Record batches: what goes in comes out, the bytes never drift, and mistakes are named."""

from __future__ import annotations

import tracemalloc
from array import array
from typing import Any

import lz4.block
import pytest
import zstandard
from hypothesis import given, strategies as st

from hocket.errors import BadName, CorruptData, MessageTooLarge, OutOfRange, WrongType
from hocket.model import EntryKind, partition_of
from hocket.wire.batch import (
    PRELUDE_BYTES,
    check_entries,
    encode,
    first_key_hash,
    iterate_entries,
    parse,
)
from hocket.wire.columns import (
    FLAG_HEADER_NULLS,
    FLAG_HEADERS,
    FLAG_KEY_HASHES,
    FLAG_KEY_NULLS,
    FLAG_KEYS,
)
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header
from tests.support.threads import noise
from tests.support.wire.batches import (
    CODECS,
    PRODUCER,
    binary,
    body_of,
    entry_with_everything,
    records,
)


@given(rows=records, codec=st.sampled_from(CODECS), data=st.data())
def test_what_goes_in_comes_out(rows: list[Any], codec: str, data: st.DataObject) -> None:
    values, keys, headers, stamps = map(list, zip(*rows, strict=True))
    entry = encode(values, timestamps=stamps, keys=keys, headers=headers, codec=codec)
    batch = parse(entry)
    assert (batch.values(), batch.keys()) == (values, keys)
    assert (batch.timestamps(), batch.headers()) == (stamps, headers)
    assert batch.count == len(rows)
    assert batch.header.max_timestamp == max(stamps)
    assert batch.header.size == len(entry)
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    assert batch.values(start, end) == values[start:end]
    assert batch.keys(start, end) == keys[start:end]
    assert batch.timestamps(start, end) == stamps[start:end]
    assert batch.headers(start, end) == headers[start:end]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 100_000])
def test_few_and_many(count: int, codec: str) -> None:
    values = [b"value %d" % number for number in range(count)]
    keys = [b"key %d" % number if number % 3 else None for number in range(count)]
    batch = parse(encode(values, timestamps=5, keys=keys if count > 1 else None, codec=codec))
    assert batch.values() == values
    assert batch.keys() == (keys if count > 1 else [None])
    assert batch.timestamps() == [5] * count
    assert batch.headers() == [{}] * count


def test_values_of_no_bytes_only() -> None:
    assert parse(encode([b""] * 3, timestamps=0)).values() == [b""] * 3


def test_one_timestamp_is_for_all() -> None:
    entry = encode([b"a", b"b"], timestamps=123)
    assert entry == encode([b"a", b"b"], timestamps=[123, 123])
    assert unpack_header(entry).max_timestamp == 123


def test_who_sent_it_stands_in_the_prelude() -> None:
    batch = parse(encode([b"a"], timestamps=0, producer_id=PRODUCER, epoch=2**32 - 1, sequence=5))
    assert (batch.producer_id, batch.epoch, batch.sequence) == (PRODUCER, 2**32 - 1, 5)


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        memoryview(b"_1_2_3_4_5_6_7_8")[1::2],
        array("H", b"12345678"),
        memoryview(array("Q", b"12345678")),
        type("Bytes", (bytes,), {"__len__": lambda self: 3})(b"12345678"),
    ],
    ids=["bytearray", "view", "view with gaps", "array", "view of wide items", "lying length"],
)
def test_any_bytes_like_object_counts_by_its_bytes(value: Any) -> None:
    entry = encode([b"x", value], timestamps=0, keys=[value, None], headers=[{"h": value}, None])
    plain = b"12345678"
    assert entry == encode(
        [b"x", plain], timestamps=0, keys=[plain, None], headers=[{"h": plain}, None]
    )


@pytest.mark.parametrize(
    ("keys", "headers", "flags"),
    [
        (None, None, 0),
        ([None, None], [None, {}], 0),
        ([b"k", b""], None, FLAG_KEYS | FLAG_KEY_HASHES),
        ([b"k", None], None, FLAG_KEYS | FLAG_KEY_HASHES | FLAG_KEY_NULLS),
        (None, [{"h": b""}, None], FLAG_HEADERS),
        (None, [{"h": None}, None], FLAG_HEADERS | FLAG_HEADER_NULLS),
    ],
)
def test_only_columns_with_something_in_them_are_stored(
    keys: Any, headers: Any, flags: int
) -> None:
    entry = encode([b"a", b"b"], timestamps=0, keys=keys, headers=headers)
    assert unpack_header(entry).flags == flags


def test_headers_may_be_pairs_and_of_a_repeated_name_the_last_is_read() -> None:
    pairs = [("name", b"1"), ("other", None), ("name", b"2")]
    batch = parse(encode([b"a"], timestamps=0, headers=[pairs]))
    assert batch.headers() == [{"name": b"2", "other": None}]


def test_the_golden_bytes() -> None:
    """The format is for ever: if this fails, the code is wrong, not the test."""
    entry = encode(
        [b"value", b""],
        timestamps=[0x0102030405060708, 1],
        keys=[None, b"key"],
        headers=[{"\u00e9": None, "b": b"\xff"}, None],
        producer_id=PRODUCER,
        epoch=0x11121314,
        sequence=0x2122232425262728,
    )
    assert entry == golden(
        "df cc 93 88  c8 00 00 00  01 00 1f 00  02 00 00 00",  # CRC, length, kind codec flags, n
        "00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00",  # term, index
        "00 00 00 00 00 00 00 00  00 00 00 00  26 25 af e7",  # base offset, previous CRC, CRC
        "08 07 06 05 04 03 02 01",  # latest timestamp
        "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f",  # producer id
        "14 13 12 11  90 00 00 00  28 27 26 25 24 23 22 21",  # epoch, raw length, sequence
        "00 00 00 00 00 00 00 00",  # reserved
        "00 00 00 00 00 00 00 00  e3 65 51 a0 63 0d ea bb",  # key hashes
        "08 07 06 05 04 03 02 01  01 00 00 00 00 00 00 00",  # timestamps
        "00 00 00 00  05 00 00 00  05 00 00 00  00 00 00 00",  # value offsets
        "76 61 6c 75 65  00 00 00",  # values
        "02  00 00 00 00 00 00 00",  # key validity
        "00 00 00 00  00 00 00 00  03 00 00 00  00 00 00 00",  # key offsets
        "6b 65 79  00 00 00 00 00",  # keys
        "00 00 00 00  02 00 00 00  02 00 00 00  00 00 00 00",  # header list offsets
        "00 00 00 00  02 00 00 00  03 00 00 00  00 00 00 00",  # header name offsets
        "c3 a9 62  00 00 00 00 00",  # header names
        "02  00 00 00 00 00 00 00",  # header value validity
        "00 00 00 00  00 00 00 00  01 00 00 00  00 00 00 00",  # header value offsets
        "ff  00 00 00 00 00 00 00",  # header values
    )


def golden(*lines: str) -> bytes:
    return bytes.fromhex(" ".join(lines))


@pytest.mark.parametrize(("codec", "number"), [("lz4", 1), ("zstd", 2)])
def test_compressed_columns_are_the_plain_ones(codec: str, number: int) -> None:
    values = [b"the same again and again"] * 50
    plain, packed = (
        encode(values, timestamps=0, keys=values, codec=each) for each in ("none", codec)
    )
    header = unpack_header(packed)
    assert (header.codec, unpack_header(plain).codec) == (number, 0)
    assert len(packed) < len(plain) / 2
    outside = PRELUDE_BYTES + 8 * len(values)
    assert body_of(packed)[:outside] == body_of(plain)[:outside]  # the hashes are readable
    stored, raw = body_of(packed)[outside:], body_of(plain)[outside:]
    if codec == "lz4":
        assert lz4.block.decompress(stored, uncompressed_size=len(raw)) == raw
    else:
        assert zstandard.decompress(stored) == raw


@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_shrink_is_stored_as_it_is(codec: str) -> None:
    entry = encode([noise(1000)], timestamps=2**62 + 12345, codec=codec)
    assert unpack_header(entry).codec == 0
    assert parse(entry).values() == [noise(1000)]


@given(keys=st.lists(st.none() | binary, min_size=1, max_size=20))
def test_key_hashes_choose_partitions(keys: list[bytes | None]) -> None:
    entry = encode([b""] * len(keys), timestamps=0, keys=keys)
    batch, [info] = parse(entry), check_entries(entry)
    if not any(key is not None for key in keys):
        assert batch.key_hashes is None
        assert first_key_hash(entry, info) is None
        return
    assert batch.key_hashes is not None
    for key, key_hash in zip(keys, batch.key_hashes, strict=True):
        if key is None:
            assert key_hash == 0
        else:
            assert key_hash % 4096 == partition_of(key, 4096)
    assert first_key_hash(entry, info) == (batch.key_hashes[0] or None)


GOOD: dict[str, Any] = {"values": [b"a", b"b"], "timestamps": 0}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"values": []}, OutOfRange, "at least one"),
        ({"values": [b"a", "b"]}, WrongType, r"values\[1\].*not str; encode it first"),
        ({"values": [b"a", 5]}, WrongType, r"values\[1\].*not int"),
        ({"values": [b"a", None]}, WrongType, r"values\[1\].*not NoneType"),
        ({"values": b"ab"}, WrongType, "values must be a sequence.*not bytes"),
        ({"values": "ab"}, WrongType, "values must be a sequence.*not str"),
        ({"values": iter([b"a", b"b"])}, WrongType, "values must be a sequence"),
        ({"keys": [b"a", "b"]}, WrongType, r"keys\[1\].*not str; encode it first"),
        ({"keys": [None, 1]}, WrongType, r"keys\[1\].*not int"),
        ({"keys": [b"a"]}, OutOfRange, "1 keys for 2 values"),
        ({"keys": b"ab"}, WrongType, "keys must be a sequence"),
        ({"timestamps": [1]}, OutOfRange, "1 timestamps for 2 values"),
        ({"timestamps": [1, 2.0]}, WrongType, r"timestamps\[1\].*not float"),
        ({"timestamps": 1.5}, WrongType, "timestamps must be a sequence.*not float"),
        ({"timestamps": None}, WrongType, "timestamps must be"),
        ({"timestamps": -1}, OutOfRange, r"timestamps\[0\].*not -1"),
        ({"timestamps": [5, -3]}, OutOfRange, r"timestamps\[1\].*not -3"),
        ({"timestamps": [5, 2**63]}, OutOfRange, r"timestamps\[1\].*not 9223372036854775808"),
        ({"headers": [{}]}, OutOfRange, "1 headers for 2 values"),
        ({"headers": [None, {"n": "v"}]}, WrongType, "header 'n' of record 1.*not str; encode"),
        ({"headers": [None, {b"n": b"v"}]}, WrongType, "name of header b'n' of record 1.*bytes"),
        ({"headers": [None, {"\ud800": b""}]}, BadName, "record 1 cannot be written as UTF-8"),
        ({"headers": [None, 7]}, WrongType, r"headers\[1\] must be.*not 7"),
        ({"headers": [None, ["name"]]}, WrongType, r"headers\[1\] must be"),
        ({"codec": "gzip"}, OutOfRange, "none, lz4, zstd, not 'gzip'"),
        ({"producer_id": b"short"}, OutOfRange, "16 bytes, not 5"),
        ({"epoch": 2**32}, OutOfRange, "epoch.*4294967296"),
        ({"sequence": -1}, OutOfRange, "sequence.*-1"),
        ({"raw_bytes_max": 1}, MessageTooLarge, "values of this batch are 2 bytes, more than"),
        ({"raw_bytes_max": 39}, MessageTooLarge, "columns of this batch are 40 bytes, more than"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        encode(**{**GOOD, **arguments})


@pytest.mark.parametrize("raw_bytes_max", [128 << 20, 2**40], ids=["by the limit", "by int32"])
@pytest.mark.parametrize("column", ["values", "keys", "headers"])
def test_too_much_for_one_batch_is_refused_before_it_is_copied(
    column: str, raw_bytes_max: int
) -> None:
    big = bytes(1 << 20)
    many = [big] * 2048
    rows: dict[str, Any] = {"values": [b""] * len(many), column: many}
    if column == "headers":
        rows["headers"] = [{"h": big}] * len(many)
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="2147483648 bytes"):
            encode(**rows, timestamps=0, raw_bytes_max=raw_bytes_max)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_entries_in_a_row() -> None:
    batches = [
        encode([b"v"] * count, timestamps=count, sequence=count, codec=codec, producer_id=PRODUCER)
        for count, codec in enumerate(CODECS, 1)
    ]
    buffer = memoryview(bytearray(b"".join(batches)))
    infos = check_entries(buffer)
    assert [info.header.count for info in infos] == [1, 2, 3]
    assert [info.sequence for info in infos] == [1, 2, 3]
    assert {info.producer_id for info in infos} == {PRODUCER}
    assert [info.size for info in infos] == [len(each) for each in batches]
    assert [info.position for info in infos] == [
        0, len(batches[0]), len(batches[0]) + len(batches[1])
    ]  # fmt: skip
    assert list(iterate_entries(buffer)) == [(info.position, info.header) for info in infos]
    for info in infos:
        assert parse(buffer, info.position).values() == [b"v"] * info.header.count
    assert check_entries(b"") == []


def test_other_kinds_of_entries_are_walked_over_but_are_no_batches() -> None:
    noop = pack_header(length=0, kind=EntryKind.NOOP, body_crc=0)
    buffer = noop + encode([b"v"], timestamps=0)
    assert [header.kind for _, header in iterate_entries(buffer)] == [
        EntryKind.NOOP,
        EntryKind.BATCH,
    ]
    for look in (check_entries, parse):
        with pytest.raises(CorruptData, match="kind 0"):
            look(buffer)
    assert parse(buffer, HEADER_BYTES).values() == [b"v"]


def test_offsets_are_those_that_the_broker_stamped() -> None:
    entry = encode([b"a", b"b"], timestamps=0)
    header = unpack_header(entry)._asdict() | {"base_offset": 40, "term": 3, "index": 8}
    del header["crc"]
    stamped = pack_header(**header) + entry[HEADER_BYTES:]
    batch = parse(stamped)
    assert (batch.base_offset, batch.end_offset, batch.header.index) == (40, 42, 8)
    assert "40 to 42" in repr(batch)
    assert check_entries(stamped)[0].header == batch.header


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 4), (4, None)])
def test_ranges_outside_the_batch_are_refused(start: int, end: int | None) -> None:
    batch = parse(entry_with_everything())
    plain = parse(encode([b""] * 3, timestamps=0))
    for read in (batch.values, batch.keys, batch.timestamps, batch.headers):
        with pytest.raises(OutOfRange, match="of a batch of 3"):
            read(start, end)
    for read_absent in (plain.keys, plain.headers):
        with pytest.raises(OutOfRange, match="of a batch of 3"):
            read_absent(start, end)
