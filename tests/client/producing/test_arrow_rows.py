"""The rows of Arrow batches find their partitions as single messages do, and none gets lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from xxhash import xxh3_64_intdigest

from hocket.client_core.producing.arrow_rows import arrow_portions
from hocket.errors import MessageTooLarge, OutOfRange, UnknownPartition, WrongType
from hocket.model import Limits, partition_of
from hocket.wire import from_arrow
from hocket.wire.batch import parse
from tests.client.producing.test_core import Producing

# pyarrow starts its threads when it first computes; not in the middle of a test, which counts them
pa.array([1, None]).is_null()
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(keys: list[bytes | None], kind: Any = None, **more: Any) -> pa.RecordBatch:
    values = pa.array([b"%d" % number for number in range(len(keys))], kind or pa.binary())
    return pa.record_batch({"value": values, "key": pa.array(keys, kind or pa.binary()), **more})


def send(one: Producing, rows: Any, partition: int | None = None) -> list[tuple[int, list[bytes]]]:
    """What was pushed: partition and values."""
    for portion in arrow_portions(one.core, rows, partition):
        assert portion.offer(one.core, 0) == portion.count
    return [(where, values) for where, values, _ in one.pushed()]


@given(
    keys=st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=40),
    partitions=st.integers(1, 5),
)
@settings(max_examples=50)
def test_keys_decide_and_the_order_of_each_is_kept(
    keys: list[bytes | None], partitions: int
) -> None:
    pushed = send(Producing(partitions=partitions), rows_of(keys))
    numbers = [(where, int(value)) for where, values in pushed for value in values]
    assert sorted(number for _, number in numbers) == list(range(len(keys)))
    together = set()
    for where, number in numbers:
        key = keys[number]
        if key is None:
            together.add(where)
        else:
            assert where == partition_of(key, partitions)
    assert len(together) <= 1
    for key in set(keys):
        mine = [number for _, number in numbers if keys[number] == key]
        assert mine == sorted(mine)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(),
        pa.large_binary(), pa.binary_view(), pa.binary(1),
    ],
    ids=str,
)  # fmt: skip
def test_keys_of_any_kind(kind: pa.DataType) -> None:
    keys = [b"%d" % (number % 7) for number in range(9)]
    values = pa.array([b"%d" % number for number in range(9)])
    rows = pa.record_batch({"value": values, "key": pa.array(keys, kind)})
    pushed = send(Producing(partitions=3), rows[2:])
    assert sorted(int(value) for _, values in pushed for value in values) == list(range(2, 9))
    for where, values in pushed:
        assert {partition_of(keys[int(value)], 3) for value in values} == {where}


def test_keys_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    original = from_arrow.hashes_of
    monkeypatch.setattr(
        from_arrow, "hashes_of", lambda column: hashed.append(len(column)) or original(column)
    )
    keys: list[bytes | None] = [b"%d" % number for number in range(20)]
    for partitions, partition in ((4, None), (4, 2), (1, None)):
        hashed.clear()
        pushed = send(Producing(partitions=partitions), rows_of(keys), partition)
        assert sum(len(values) for _, values in pushed) == 20
        assert hashed == [20]


def test_rows_without_keys_take_turns_with_the_partitions() -> None:
    one = Producing(partitions=3)
    seen = []
    for _ in range(6):  # a keyed batch may come where it would have been their turn
        pushed = send(one, rows_of([None, b"a", None]))
        seen += [where for where, values in pushed if values == [b"0", b"2"]]
    assert len(seen) == 6
    assert len(set(seen)) > 1


def test_a_partition_takes_all_rows_whatever_their_keys() -> None:
    one = Producing(partitions=4)
    keys = [b"a", None, b"b"]
    for partition in (3, 0):
        assert send(one, rows_of(keys), partition) == [(partition, [b"0", b"1", b"2"])]
    assert send(one, rows_of(keys).select(["value"]), 1) == [(1, [b"0", b"1", b"2"])]


@pytest.mark.parametrize(
    ("partition", "error"),
    [(4, UnknownPartition), (-1, UnknownPartition), (True, WrongType), ("0", WrongType)],
)
def test_a_partition_that_is_not_there(partition: Any, error: type[Exception]) -> None:
    one = Producing(partitions=4)
    with pytest.raises(error, match="partition"):
        send(one, rows_of([b"a"]), partition)
    assert one.pushed() == []


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"value": pa.array([b"a", b"b", None])}, WrongType, "value may not have nulls; row 2"),
        ({"timestamp": pa.array([1, 2, -3])}, OutOfRange, "row 2 has -3"),
        ({"timestamp": pa.array([1, 2, None])}, WrongType, "timestamp may not.*row 2"),
        ({"key": pa.array([1, 2, 3])}, WrongType, "key must be of type binary or string"),
        ({"offset": pa.array([1, 2, 3])}, WrongType, "columns must be value and"),
        (
            {"headers": pa.array([None, None, [("a", b""), (None, b"")]], HEADERS)},
            WrongType,
            "headers.key may not have nulls; row 2",
        ),
    ],
)
def test_a_wrong_row_is_named_before_any_is_taken(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    good = {"value": pa.array([b"a", b"b", b"c"]), "key": pa.array([b"0", b"1", b"2"])}
    rows = pa.record_batch({**good, **changes})
    one = Producing(partitions=4, limits=Limits(batch_bytes_max=200))
    for partition in (None, 1):
        with pytest.raises(error, match=words):
            send(one, rows, partition)
        assert one.pushed() == []


def test_rows_for_one_partition_are_split_with_their_hashes() -> None:
    one = Producing(partitions=2, limits=Limits(batch_bytes_max=1000))
    keys: list[bytes | None] = [b"%d" % number for number in range(100)]
    for portion in arrow_portions(one.core, rows_of(keys)):
        assert portion.offer(one.core, 0) == portion.count
    batches = [parse(payload) for _, payload in one.stage.link.sent]
    for batch in batches:
        assert batch.key_hashes.tolist() == list(map(xxh3_64_intdigest, batch.keys()))
    pushed = one.pushed()
    assert len(pushed) == len(batches) == 4
    for where in (0, 1):
        mine = [int(value) for each, values, _ in pushed if each == where for value in values]
        assert mine == [n for n in range(100) if partition_of(b"%d" % n, 2) == where]


def test_a_row_that_is_too_large_keeps_back_those_before_it() -> None:
    one = Producing(limits=Limits(batch_bytes_max=1000))
    with pytest.raises(MessageTooLarge, match=r"a row of .* is more than the 500"):
        send(one, pa.record_batch({"value": [b"a", bytes(600)]}))
    assert one.pushed() == []


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(1)], ids=str)
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("partitions", [1, 2])
def test_rows_that_are_small_grow_most_and_fit_all_the_same(
    kind: pa.DataType, keyed: bool, partitions: int
) -> None:
    one = Producing(partitions=partitions, limits=Limits(batch_bytes_max=10_000))
    for count in (*range(300, 1200, 50), 9_000):
        column = pa.array([b"a"] * count, kind)
        rows = {"value": column, "key": column} if keyed else {"value": column}
        sent = sum(portion.count for portion in arrow_portions(one.core, pa.record_batch(rows)))
        assert sent == count
        for portion in arrow_portions(one.core, pa.record_batch(rows)):
            entry = from_arrow.encode_from_arrow(portion._rows, timestamp=1)
            assert len(entry) <= 10_000


def test_keys_of_which_there_are_none_may_be_of_any_type() -> None:
    for partitions in (1, 3):
        for kind in (pa.null(), pa.int64()):
            rows = pa.record_batch({"value": [b"a", b"b"], "key": pa.nulls(2, kind)})
            [(_, values)] = send(Producing(partitions=partitions), rows)
            assert values == [b"a", b"b"]


def test_headers_as_views_are_split_like_others() -> None:
    views = pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))
    headers = [
        [(f"name-{n}" + "-" * 40, b"%d" % n + b"." * 40)] if n % 5 else None for n in range(40)
    ]
    one = Producing(limits=Limits(batch_bytes_max=2000))
    rows = pa.record_batch({"value": [b"v"] * 40, "headers": pa.array(headers, views)})
    for portion in arrow_portions(one.core, rows):
        assert portion.offer(one.core, 0) == portion.count
    batches = [parse(payload) for _, payload in one.stage.link.sent]
    assert len(batches) > 1
    assert [h for batch in batches for h in batch.headers()] == [dict(h or ()) for h in headers]


def test_no_rows_and_no_record_batch() -> None:
    one = Producing(partitions=2)
    assert send(one, rows_of([])) == []
    with pytest.raises(WrongType, match=r"takes a pyarrow.RecordBatch, not list"):
        send(one, [b"a"])
    with pytest.raises(WrongType, match="of a Table, pass each of to_batches"):
        send(one, pa.table({"value": [b"a"], "key": [b"a"]}))
