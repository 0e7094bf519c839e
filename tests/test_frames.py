"""Packed lists of numbers: little-endian u64, one after the other."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from hocket.frames import Hello, packed, unpacked

u64 = st.integers(0, 2**64 - 1)


def test_the_bytes_are_those_of_the_contract():
    assert packed([]) == b""
    assert packed([1, 2**64 - 1]) == bytes.fromhex("0100000000000000ffffffffffffffff")
    assert packed(n for n in (258,)) == b"\x02\x01" + bytes(6)


@given(st.lists(u64))
def test_what_is_packed_comes_out_again(numbers):
    data = packed(numbers)
    assert data == struct.pack(f"<{len(numbers)}Q", *numbers)
    assert unpacked(data) == numbers


@pytest.mark.parametrize("numbers", [[-1], [2**64]])
def test_a_number_that_is_no_u64_cannot_be_packed(numbers):
    with pytest.raises(OverflowError):
        packed(numbers)


@pytest.mark.parametrize("length", [1, 7, 9])
def test_half_a_number_cannot_be_unpacked(length):
    with pytest.raises(ValueError):
        unpacked(bytes(length))


def test_a_token_is_never_shown():
    assert "secret" not in repr(Hello(1, token="secret"))
