"""Hashes of whole columns of keys are those that the library gives of each."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from xxhash import xxh3_64_intdigest

from hocket.wire import key_hashes as module
from hocket.wire.key_hashes import BLOCK, key_hashes

# pyarrow starts its threads when it first computes; not in the middle of a test, which counts them
pa.array([1, None]).is_null()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """By numpy even where that is slower."""
    classes = tuple(each._replace(worth=1) for each in module._CLASSES)
    monkeypatch.setattr(module, "_CLASSES", classes)
    monkeypatch.setattr(module, "_FEWEST", 1)


def one_by_one(keys: list[bytes | None]) -> list[int]:
    return [0 if key is None else xxh3_64_intdigest(key) for key in keys]


def hashes(keys: list[bytes | None]) -> list[int]:
    return key_hashes(pa.array(keys, pa.binary())).tolist()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("edges", [b"", b"\0" * 300, b"\xff" * 300], ids=["", "zeros", "ones"])
def test_every_length(edges: bytes) -> None:
    random = Random(5)
    for length in range(301):
        keys = [edges[:length] + random.randbytes(length - len(edges[:length])) for _ in range(9)]
        assert hashes(keys) == one_by_one(keys), length


@pytest.mark.usefixtures("always")
def test_every_length_among_the_others() -> None:
    random = Random(6)
    keys = [random.randbytes(length) for length in range(301)] * 3
    random.shuffle(keys)
    assert hashes(keys) == one_by_one(keys)


@pytest.mark.usefixtures("always")
@given(st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=60), st.data())
def test_any_keys_and_any_slice_of_them(keys: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys) - 1))
    end = data.draw(st.integers(start + 1, len(keys)))
    column = pa.array(keys, pa.binary()).slice(start, end - start)
    assert key_hashes(column).tolist() == one_by_one(keys[start:end])


@pytest.mark.parametrize("lengths", [(8, 8), (36, 36), (0, 64), (0, 240)])
@pytest.mark.parametrize("nulls", [False, True])
def test_more_than_a_block_of_them(lengths: tuple[int, int], nulls: bool) -> None:
    random = Random(7)
    count = 2 * BLOCK + 77
    keys: list[bytes | None] = [random.randbytes(random.randint(*lengths)) for _ in range(count)]
    if nulls:
        keys = [None if random.random() < 0.1 else key for key in keys]
    column = pa.array(keys, pa.binary())
    expected = one_by_one(keys)
    assert key_hashes(column).tolist() == expected
    assert key_hashes(column[3:-5]).tolist() == expected[3:-5]


@pytest.mark.usefixtures("always")
def test_what_lies_under_a_null_does_not_count() -> None:
    offsets, data = pa.array([0, 9, 12], pa.int32()), pa.py_buffer(b"forgottenkey")
    valid = pa.py_buffer(bytes([0b10]))
    column = pa.Array.from_buffers(pa.binary(), 2, [valid, offsets.buffers()[1], data])
    assert key_hashes(column).tolist() == [0, xxh3_64_intdigest(b"key")]


@pytest.mark.usefixtures("always")
def test_nothing_but_empty_keys_and_nulls() -> None:
    assert hashes([b"", b""]) == one_by_one([b"", b""])
    assert hashes([b"", None, b""]) == one_by_one([b"", None, b""])
    assert hashes([None, None]) == [0, 0]
    assert hashes([]) == []


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "kind",
    [pa.binary(4), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(),
     pa.string_view()],
    ids=str,
)  # fmt: skip
def test_columns_of_other_kinds_once_they_are_cast(kind: pa.DataType) -> None:
    keys = [b"zero", b"once", None, b"four", b"five"]
    column = pa.array(keys, kind)[1:].cast(pa.binary())
    assert key_hashes(column).tolist() == one_by_one(keys[1:])


@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2), min_size=1, max_size=20))
def test_the_folded_product(pairs: list[tuple[int, int]]) -> None:
    ones, others = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    expected = [one * other >> 64 ^ (one * other & 2**64 - 1) for one, other in pairs]
    assert module._folded_product(ones, others).tolist() == expected
