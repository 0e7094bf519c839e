"""What a broker sees of a batch before it stores it, and what can be told of one beyond that."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hocket.errors import CorruptData
from hocket.wire.batch import (
    CHECKED_ITEMS_MAX,
    OPENED_BYTES_MAX,
    PRELUDE_BYTES,
    check_content,
    encode,
    parse,
    whole_batches,
)
from tests.support.wire.batches import (
    CODECS,
    body_of,
    entry_with_everything,
    prelude,
    sealed,
    with_fallen_offset,
    with_false_raw_length,
    with_foreign_name,
)

MANY = CHECKED_ITEMS_MAX + 1
LARGE = [b"value %d, the same again and again" % number for number in range(200)]


def arrive(entry: bytes) -> None:
    for info in whole_batches(entry):
        check_content(entry, info)


def refused(entry: bytes, match: str) -> None:
    whole_batches(entry)  # the checksum is right
    with pytest.raises(CorruptData, match=match):
        arrive(entry)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, CHECKED_ITEMS_MAX, MANY, 1_000])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_good_batches_arrive(codec: str, count: int, size: int) -> None:
    values = [b"%d" % number * size for number in range(count)]
    arrive(encode(values, timestamps=1, codec=codec))
    keys = [None if number % 3 else b"%d" % number for number in range(count)]
    arrive(encode(values, timestamps=1, codec=codec, keys=keys, headers=[{"a": None}] * count))


@pytest.mark.parametrize("codec", CODECS)
def test_one_with_everything_arrives(codec: str) -> None:
    arrive(entry_with_everything(codec))


@pytest.mark.parametrize("by", [-8, 8])
@pytest.mark.parametrize("values", [LARGE[:20], LARGE], ids=["small", "large"])
def test_a_zstd_frame_says_its_length_whatever_its_size(values: list[bytes], by: int) -> None:
    refused(with_false_raw_length(values, codec="zstd", by=by), "declares")


def test_a_small_lz4_block_is_opened() -> None:
    for by in (-8, 8):
        refused(with_false_raw_length(LARGE[:20], by=by), "lz4|columns end")


@pytest.mark.parametrize("raw_length", [100 << 20, 6_000])
def test_a_large_lz4_block_has_bounds(raw_length: int) -> None:
    entry = encode(LARGE, timestamps=1, codec="lz4")
    if raw_length == 6_000:  # as if it had grown by more than it can
        entry = sealed(entry, body_of(entry) + bytes(7_000))
    refused(sealed(entry, prelude(entry, raw_length=raw_length)), "cannot stand for")


def test_what_is_no_zstd_frame_at_all_is_refused() -> None:
    entry = encode(LARGE, timestamps=1, codec="zstd")
    nonsense = bytes(len(body_of(entry)) - PRELUDE_BYTES)
    refused(sealed(entry, body_of(entry)[:PRELUDE_BYTES] + nonsense), "zstd")


def test_beyond_the_bound_a_false_length_of_lz4_is_for_the_consumer_to_find() -> None:
    forged = with_false_raw_length(LARGE)
    assert whole_batches(forged)[0].raw_length > OPENED_BYTES_MAX
    arrive(forged)
    with pytest.raises(CorruptData):
        parse(forged).values()


@pytest.mark.parametrize("keys", [None, [b"k"] * 20])
def test_columns_that_do_not_fit_are_refused(keys: Any) -> None:
    entry = encode([b"value"] * 20, timestamps=1, keys=keys)
    for at in range(PRELUDE_BYTES, len(body_of(entry))):
        body = bytearray(body_of(entry))
        body[at] ^= 0x81
        forged = sealed(entry, bytes(body))
        try:
            parse(forged).check(0, 20)
        except CorruptData:
            refused(forged, "offsets 0 to 20")
        else:
            arrive(forged)


@pytest.mark.parametrize("count", [3, CHECKED_ITEMS_MAX])
@pytest.mark.parametrize("keys", [False, True])
def test_an_offset_that_falls_is_seen_within_the_bound(count: int, keys: bool) -> None:
    more = {"keys": [b"k"] * count} if keys else {}
    refused(with_fallen_offset([b"value"] * count, at=1, **more), "not in order")
    arrive(with_fallen_offset([b"value"] * MANY, at=1))


def test_a_name_that_is_not_utf8_is_seen_within_the_bound() -> None:
    refused(with_foreign_name([b"value"] * (CHECKED_ITEMS_MAX // 2), at=3), "UTF-8")
    arrive(with_foreign_name([b"value"] * MANY, at=3))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"codec": 9}, "codec 9"),
        ({"flags": 2}, "flags 0x2"),
        ({"count": 0}, "0 records"),
        ({"count": 2**32 - 1}, "for 4294967295 records"),
        ({"flags": 5, "count": 2**31}, "cannot hold"),
        ({"max_timestamp": 2**63}, "latest at"),
    ],
    ids=str,
)
def test_a_header_that_cannot_be_is_refused(changes: dict[str, int], match: str) -> None:
    entry = encode([b"a", b"b"], timestamps=1)
    refused(sealed(entry, body_of(entry), **changes), match)


def test_a_prelude_that_cannot_be_is_refused() -> None:
    entry = encode([b"a", b"b"], timestamps=1)
    for changes in ({"reserved": 1}, {"raw_length": 2**32 - 1}, {"raw_length": 8}):
        refused(sealed(entry, prelude(entry, **changes)), "columns of")


def test_what_is_no_batch_is_not_whole() -> None:
    entry = encode([b"a"], timestamps=1)
    for changed in (
        sealed(entry, body_of(entry), kind=3, count=0),
        sealed(entry, body_of(entry)[:39]),
        entry[:-8] + b"12345678",
    ):
        with pytest.raises(CorruptData):
            whole_batches(changed)
    whole_batches(entry[:-8] + b"12345678", verify=False)


# --- what cannot be read, and what can -----------------------------------------------------------


def test_only_the_record_that_makes_no_sense_cannot_be_read() -> None:
    values = [b"value %d" % number for number in range(MANY)]
    batch = parse(with_fallen_offset(values, at=7, keys=[b"key"] * MANY))
    assert batch.unreadable(0, MANY) == [7]
    assert batch.unreadable(8, MANY) == []
    assert batch.unreadable_run(7) == 8
    assert batch.unreadable_run(8) == 8
    assert batch.values(0, 7) == values[:7]
    for start, end in ((0, 8), (7, 8), (7, 9)):
        with pytest.raises(CorruptData, match="offsets 0 to 129"):
            batch.check(start, end)
    batch.check(0, 7)
    batch.check(9, MANY)
    assert batch.remains(7) == (b"", b"key", {})


def test_of_a_record_with_a_foreign_name_all_else_can_be_told() -> None:
    values = [b"value %d" % number for number in range(MANY)]
    batch = parse(with_foreign_name(values, at=5, keys=[None] * 5 + [b"k"] + [None] * (MANY - 6)))
    assert batch.unreadable(0, MANY) == [5]
    assert batch.remains(5) == (b"value 5", b"k", {r"n\xff\xfee": b"x"})
    assert batch.remains(6) == (b"value 6", None, {"word": b"x"})


def test_header_lists_that_make_no_sense_are_left_out() -> None:
    count = MANY
    entry = encode([b"v"] * count, timestamps=1, headers=[{"word": b"x"}] * count)
    body = bytearray(body_of(entry))
    lists = PRELUDE_BYTES + 8 * count + (4 * (count + 1) + 7) // 8 * 8 + (count + 7) // 8 * 8
    assert body[lists : lists + 8] == bytes(4) + b"\1\0\0\0"
    body[lists + 4 * 9] = 200  # list 8 ends behind the last, list 9 begins there
    batch = parse(sealed(entry, bytes(body)))
    assert batch.unreadable(0, count) == [8, 9]
    assert batch.unreadable_run(8) == 10
    assert batch.remains(8) == (b"v", None, {})


def test_a_batch_that_does_not_open_cannot_be_read_at_all() -> None:
    batch = parse(with_false_raw_length(LARGE))
    assert batch.unreadable(3, 5) == [3, 4]
    assert batch.unreadable_run(3) == len(LARGE)


def test_a_run_may_be_long() -> None:
    count = 2_500
    entry = encode([b"v"] * count, timestamps=1)
    body = bytearray(body_of(entry))
    first = PRELUDE_BYTES + 8 * count + 4 * 100
    body[first : first + 4 * 2_200] = b"\xff" * 4 * 2_200
    batch = parse(sealed(entry, bytes(body)))
    assert batch.unreadable_run(99) == 2_300
    assert batch.unreadable_run(2_300) == 2_300
    assert batch.unreadable(0, count) == list(range(99, 2_300))


def test_a_record_without_headers_does_not_suffer_from_where_they_would_be() -> None:
    headers = [{"a": b"11", "b": b"22"}, {}, {"c": b"33"}]
    entry = encode([b"value"] * 3, headers=headers, timestamps=1)
    body = bytearray(body_of(entry))
    names = body.index(struct.pack("<4i", 0, 1, 2, 3))
    body[names + 8 : names + 12] = struct.pack("<i", -1)
    batch = parse(sealed(entry, bytes(body)))
    assert batch.unreadable(0, 3) == [0, 2]
    batch.check(1, 2)
    assert batch.headers(1, 2) == [{}]


@given(st.data())
def test_a_range_can_be_read_exactly_if_each_of_its_records_can_be(data: st.DataObject) -> None:
    entry = entry_with_everything()
    body = bytearray(body_of(entry))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(PRELUDE_BYTES + 24, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    forged = sealed(entry, bytes(body))
    try:
        batch = parse(forged)
    except CorruptData:
        return
    start = data.draw(st.integers(0, 2))
    end = data.draw(st.integers(start + 1, 3))
    bad = batch.unreadable(start, end)
    try:
        batch.check(start, end)
        for read in (batch.values, batch.keys, batch.headers):
            read(start, end)
    except CorruptData:
        assert bad
    else:
        assert not bad
    for record in bad:
        batch.remains(record)
