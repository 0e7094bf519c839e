"""Record batches as Arrow's columns: Spark's types, no copies, and slices of larger arrays."""

from __future__ import annotations

import mmap
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from hocket.errors import CorruptData, MessageTooLarge, OutOfRange, WrongType
from hocket.wire.arrow import REPEATED_ROWS_MAX, arrow_schema, to_arrow
from hocket.wire.batch import encode, parse
from hocket.wire.from_arrow import checked_rows, encode_from_arrow
from tests.support.wire.batches import (
    CODECS,
    PRODUCER,
    body_of,
    contents,
    entry_with_everything,
    records,
    sealed,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# pyarrow starts its threads when it first computes; not in the middle of a test, which counts them
pa.array([1, None]).is_null()


@given(rows=records, codec=st.sampled_from(CODECS), data=st.data())
def test_the_same_records_as_columns(rows: list[Any], codec: str, data: st.DataObject) -> None:
    values, keys, headers, stamps = map(list, zip(*rows, strict=True))
    entry = encode(values, timestamps=stamps, keys=keys, headers=headers, codec=codec)
    skip = data.draw(st.integers(0, len(rows)))
    table = to_arrow(
        parse(sealed(entry, body_of(entry), base_offset=70)), "orders", 3, skip=skip, headers=True
    )
    table.validate(full=True)
    assert table.num_rows == len(rows) - skip
    assert table["value"].to_pylist() == values[skip:]
    assert table["key"].to_pylist() == keys[skip:]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == stamps[skip:]
    assert table["offset"].to_pylist() == list(range(70 + skip, 70 + len(rows)))
    assert table["topic"].to_pylist() == ["orders"] * (len(rows) - skip)
    assert table["partition"].to_pylist() == [3] * (len(rows) - skip)
    assert table["headers"].to_pylist() == [
        [{"key": name, "value": value} for name, value in each.items()] or None
        for each in headers[skip:]
    ]


def test_the_types_are_those_of_sparks_kafka_source() -> None:
    entry = entry_with_everything()
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
    assert to_arrow(parse(entry), "orders", 0).schema.equals(pa.schema(fields))
    assert arrow_schema().equals(pa.schema(fields))
    fields.append(("headers", HEADERS))
    assert to_arrow(parse(entry), "orders", 0, headers=True).schema.equals(pa.schema(fields))
    bare = parse(encode([b"no keys, no headers"], timestamps=0))
    assert to_arrow(bare, "orders", 0, headers=True).schema.equals(pa.schema(fields))


@pytest.mark.parametrize(
    "names",
    [
        ("offset",),
        ("value", "offset", "key"),
        ("headers", "timestamp"),
        ("headers", "timestamp", "offset", "partition", "topic", "value", "key"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_only_the_columns_that_are_named_in_this_order(names: tuple[str, ...], codec: str) -> None:
    batch = parse(entry_with_everything(codec))
    whole = to_arrow(batch, "orders", 3, headers=True)
    table = to_arrow(batch, "orders", 3, skip=1, columns=names)
    assert table.schema.equals(whole.select(names).schema)
    assert table.schema.equals(arrow_schema(columns=names))
    assert table.to_pylist() == whole.select(names).to_pylist()[1:]


def test_what_is_not_stored_in_a_batch_is_made_without_opening_it() -> None:
    entry = entry_with_everything("zstd")
    body = body_of(entry)
    batch = parse(sealed(entry, body[:-8] + bytes(8)))  # the compressed columns are damaged
    table = to_arrow(batch, "orders", 3, columns=["topic", "partition", "offset"])
    assert table.to_pylist()[2] == {"topic": "orders", "partition": 3, "offset": 2}
    with pytest.raises(CorruptData):
        to_arrow(batch, "orders", 3, columns=["value"])


@pytest.mark.parametrize("names", [(), ("value", "size"), ("value", "key", "value"), "value"])
def test_columns_that_there_are_not(names: Any) -> None:
    batch = parse(entry_with_everything())
    for call in (
        lambda: to_arrow(batch, "t", 0, columns=names),
        lambda: arrow_schema(columns=names),
    ):
        with pytest.raises(OutOfRange, match=r"columns must be some of key, value, topic, .*; got"):
            call()


@pytest.mark.parametrize("count", [REPEATED_ROWS_MAX, REPEATED_ROWS_MAX + 1])
def test_topic_and_partition_of_many_rows(count: int) -> None:
    batch = parse(encode([b""] * count, timestamps=0))
    for topic, partition in (("orders", 3), ("others", 4)):
        table = to_arrow(batch, topic, partition, columns=["partition", "topic"])
        table.validate(full=True)
        assert table["topic"].to_pylist() == [topic] * count
        assert table["partition"].to_pylist() == [partition] * count


def addresses(array: pa.Array) -> list[int]:
    return [buffer.address for buffer in array.buffers() if buffer is not None and buffer.size]


def test_plain_columns_are_not_copied() -> None:
    entry = bytearray(bytes(16) + entry_with_everything())
    table = to_arrow(parse(entry, 16), "orders", 0, skip=1)
    start = pa.py_buffer(entry).address
    found = [at for name in ("key", "value", "timestamp") for at in addresses(table[name])]
    assert len(found) == 3 + 2 + 1
    assert all(start < at < start + len(entry) and at % 8 == 0 for at in found)
    with pytest.raises(BufferError):
        entry.append(0)  # it is in use


def test_columns_that_lie_askew_are_copied_into_line() -> None:
    entry = bytearray(bytes(3) + entry_with_everything())
    batch = parse(entry, 3)
    table = to_arrow(batch, "orders", 0)
    assert table["value"].to_pylist() == batch.values()
    assert all(at % 8 == 0 for name in ("key", "value") for at in addresses(table[name]))


def rows_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@given(rows=records, codec=st.sampled_from(CODECS), data=st.data())
def test_columns_make_the_same_bytes_as_lists(
    rows: list[Any], codec: str, data: st.DataObject
) -> None:
    values, keys, headers, stamps = map(list, zip(*rows, strict=True))
    table = rows_of(
        value=pa.array(values, pa.binary()),
        key=pa.array(keys, pa.binary()),
        timestamp=pa.array(stamps, pa.int64()),
        headers=pa.array([pairs_of(each) for each in headers], HEADERS),
    )
    start = data.draw(st.integers(0, len(rows) - 1))
    part = slice(start, data.draw(st.integers(start + 1, len(rows))))
    entry = encode_from_arrow(table[part], codec=codec, producer_id=PRODUCER, epoch=3, sequence=4)
    assert entry == encode(
        values[part], timestamps=stamps[part], keys=keys[part], headers=headers[part],
        codec=codec, producer_id=PRODUCER, epoch=3, sequence=4,
    )  # fmt: skip


def pairs_of(headers: dict[str, bytes | None]) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers.items()] or None


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view(),
        pa.string(), pa.large_string(), pa.string_view(),
    ],
    ids=str,
)  # fmt: skip
def test_values_and_keys_of_any_binary_kind(kind: pa.DataType) -> None:
    values = pa.array([b"__", b"ab", b"cd", b"__"], kind)[1:3]
    keys = pa.array([b"__", None, b"cd", b"__"], kind)[1:3]
    table = rows_of(value=values, key=keys)
    assert encode_from_arrow(table, timestamp=6) == encode(
        [b"ab", b"cd"], timestamps=6, keys=[None, b"cd"]
    )


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="CET")],
    ids=str,
)
def test_timestamps_of_either_kind(kind: pa.DataType) -> None:
    stamps = pa.array([9, 1_000_000, 2], pa.int64()).cast(kind)
    entry = encode_from_arrow(rows_of(value=pa.array([b"_", b"a", b"b"]), timestamp=stamps)[1:])
    assert parse(entry).timestamps() == [1_000_000, 2]
    [first, _] = to_arrow(parse(entry), "orders", 0)["timestamp"].to_pylist()
    assert first == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)


def test_headers_in_large_lists_and_with_other_rows_around_them() -> None:
    rows = [[{"key": "z", "value": b"z"}], None, [{"key": "a", "value": None}] * 2, [], None]
    kind = pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())]))
    column = pa.array(rows, kind)
    table = rows_of(value=pa.array([b"v"] * 5), headers=column)[1:4]
    assert encode_from_arrow(table, timestamp=0) == encode(
        [b"v"] * 3, timestamps=0, headers=[None, [("a", None), ("a", None)], None]
    )


def test_null_lists_may_hide_headers_which_stay_hidden() -> None:
    pairs = pa.array([{"key": "hidden", "value": b""}, {"key": "seen", "value": b""}])
    pairs = pairs.cast(HEADERS.value_type)
    column = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pairs, mask=pa.array([True, False])
    )
    entry = encode_from_arrow(rows_of(value=pa.array([b"a", b"b"]), headers=column), timestamp=0)
    assert parse(entry).headers() == [{}, {"seen": b""}]


def test_all_null_keys_and_headers_are_none_at_all() -> None:
    table = rows_of(
        value=pa.array([b"a"]), key=pa.nulls(1, pa.binary()), headers=pa.nulls(1, HEADERS)
    )
    assert encode_from_arrow(table, timestamp=0) == encode([b"a"], timestamps=0)
    empty = rows_of(value=pa.array([b"a"]), headers=pa.array([[]], HEADERS))
    assert encode_from_arrow(empty, timestamp=0) == encode([b"a"], timestamps=0)


@given(rows=records)
def test_rows_that_were_checked_make_the_same_bytes(rows: list[Any]) -> None:
    values, keys, headers, stamps = map(list, zip(*rows, strict=True))
    table = rows_of(
        headers=pa.array([pairs_of(each) for each in headers], HEADERS),
        timestamp=pa.array(stamps, pa.int64()),
        key=pa.array(keys, pa.large_binary()),
        value=pa.array(values, pa.binary_view()),
    )
    checked, hashes = checked_rows(table)
    assert encode_from_arrow(checked, key_hashes=hashes) == encode_from_arrow(table)
    middle = len(rows) // 2
    rest = None if hashes is None else hashes[middle:]
    assert encode_from_arrow(checked[middle:], key_hashes=rest) == encode(
        values[middle:], timestamps=stamps[middle:], keys=keys[middle:], headers=headers[middle:]
    )


def test_rows_without_keys_have_no_hashes() -> None:
    _, hashes = checked_rows(rows_of(value=pa.array([b"a"])))
    assert hashes is None


def test_what_was_read_can_be_written_again() -> None:
    batch = parse(entry_with_everything("zstd"))
    table = to_arrow(batch, "orders", 0, headers=True)
    again = encode_from_arrow(
        table.select(["key", "value", "timestamp", "headers"]),
        producer_id=PRODUCER, epoch=7, sequence=9,
    )  # fmt: skip
    assert contents(parse(again)) == contents(batch)


VALUE = pa.array([b"a", b"b"])
PAIR = HEADERS.value_type


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({}, WrongType, "columns must be value.*got none"),
        ({"key": VALUE}, WrongType, "columns must be value.*got key"),
        ({"value": VALUE, "offset": VALUE}, WrongType, "got value, offset"),
        ({"value": VALUE[:0]}, OutOfRange, "no rows"),
        ({"value": pa.array([1, 2])}, WrongType, "value must be of type binary.*not int64"),
        ({"value": pa.array([b"", b"", None])[1:]}, WrongType, "value may not.*row 1 has"),
        ({"value": VALUE, "key": pa.array([1, 2])}, WrongType, "key must be of type.*int64"),
        (
            {"value": VALUE, "timestamp": pa.array([1, 2], pa.timestamp("ms"))},
            WrongType,
            r"timestamp must be timestamp\[us\] or int64, not timestamp\[ms\]",
        ),
        (
            {"value": VALUE, "timestamp": pa.array([1, 2], pa.int32())},
            WrongType,
            "not int32",
        ),
        ({"value": VALUE, "timestamp": pa.array([1, None])}, WrongType, "timestamp.*row 1"),
        ({"value": VALUE, "timestamp": pa.array([1, -5])}, OutOfRange, "row 1 has -5"),
        ({"value": VALUE, "headers": VALUE}, WrongType, "headers must be of type list"),
        (
            {"value": VALUE, "headers": pa.array([[b"x"], None])},
            WrongType,
            "headers must be of type list",
        ),
        (
            {
                "value": VALUE,
                "headers": pa.array([[{"name": "x", "value": b"x"}], None]),
            },
            WrongType,
            "headers must be of type list",
        ),
        (
            {"value": VALUE, "headers": pa.array([[{"key": b"x", "value": b"x"}], None])},
            WrongType,
            "headers.key must be of type string, not binary",
        ),
        (
            {"value": VALUE, "headers": pa.array([None, [{"key": "x", "value": 1}]])},
            WrongType,
            "headers.value must be of type binary or string, not int64",
        ),
        (
            {
                "value": VALUE,
                "headers": pa.array([[("a", b"")] * 2, [("a", b""), (None, b"")]], pa.list_(PAIR)),
            },
            WrongType,
            "headers.key may not have nulls; row 1 has one",
        ),
        (
            {"value": VALUE, "headers": pa.array([[("a", b"")] * 2, [None]], pa.list_(PAIR))},
            WrongType,
            "headers.element may not have nulls; row 1 has one",
        ),
    ],
)
def test_mistakes_are_named(
    columns: dict[str, pa.Array], error: type[Exception], words: str
) -> None:
    table = rows_of(**columns)
    with pytest.raises(error, match=words):
        encode_from_arrow(table, timestamp=0)
    if table.num_rows or not columns:  # of no rows nothing is wrong until they are encoded
        with pytest.raises(error, match=words):
            checked_rows(table)


def test_a_header_name_that_is_no_text_is_refused() -> None:
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    name = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    pairs = pa.StructArray.from_arrays([name, pa.array([b"1"])], names=["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    rows = pa.record_batch({"value": [b"a"], "headers": headers})
    with pytest.raises(WrongType, match=r"headers\.key must be text in UTF-8"):
        encode_from_arrow(rows, timestamp=1)
    with pytest.raises(WrongType, match=r"headers\.key must be text in UTF-8"):
        checked_rows(rows)


def test_a_timestamp_is_needed_from_somewhere() -> None:
    with pytest.raises(WrongType, match="pass timestamp="):
        encode_from_arrow(rows_of(value=VALUE))


def test_a_table_is_no_record_batch() -> None:
    with pytest.raises(WrongType, match=r"not Table; of a Table, pass each of to_batches"):
        encode_from_arrow(pa.table({"value": VALUE}), timestamp=0)


def test_a_column_twice() -> None:
    table = pa.RecordBatch.from_arrays([VALUE, VALUE], names=["value", "value"])
    with pytest.raises(WrongType, match="got value, value"):
        encode_from_arrow(table, timestamp=0)


def test_too_much_for_one_batch() -> None:
    with pytest.raises(MessageTooLarge, match="value holds 2 bytes, more than the 1"):
        encode_from_arrow(rows_of(value=VALUE), timestamp=0, raw_bytes_max=1)
    with pytest.raises(MessageTooLarge, match="columns of this batch are"):
        encode_from_arrow(rows_of(value=VALUE), timestamp=0, raw_bytes_max=30)


def test_more_than_32_bit_offsets_can_say() -> None:
    with mmap.mmap(-1, 2**31) as untouched:  # so it takes no memory
        offsets = pa.array([0, 2**31], pa.int64()).buffers()[1]
        buffers = [None, offsets, pa.py_buffer(untouched)]
        column = pa.Array.from_buffers(pa.large_binary(), 1, buffers)
        with pytest.raises(MessageTooLarge, match="the column value is more than a batch may hold"):
            encode_from_arrow(rows_of(value=column), timestamp=0)
        del column, buffers


@pytest.mark.parametrize("name", ["pyarrow", "numpy"])
def test_without_the_libraries_it_says_how_to_get_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, table = parse(entry_with_everything()), rows_of(value=VALUE)
    monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: to_arrow(batch, "orders", 0), lambda: encode_from_arrow(table)):
        with pytest.raises(ImportError, match=rf"need {name}: pip install 'hocket\[arrow\]'"):
            call()
