"""Bytes into lines: whatever the pieces, the lines are those of the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from hocket.cli.lines import LineSplitter, split_keys


def split(chunks: list[bytes], delimiter: bytes = b"\n") -> list[bytes]:
    splitter = LineSplitter(delimiter)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def expected(data: bytes, delimiter: bytes) -> list[bytes]:
    lines = data.split(delimiter)
    return lines if lines[-1] else lines[:-1]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([], []),
        ([b"\n"], [b""]),
        ([b"a"], [b"a"]),
        ([b"a\n"], [b"a"]),
        ([b"a\n\nb"], [b"a", b"", b"b"]),
        ([b"a", b"b", b"\n", b"c"], [b"ab", b"c"]),
        ([b"\r\n\x00\xff\n"], [b"\r", b"\x00\xff"]),
    ],
)
def test_lines(chunks: list[bytes], lines: list[bytes]):
    assert split(chunks) == lines


@given(
    data=st.lists(st.sampled_from([b"a", b"b", b"-", b"--", b"-+-"])).map(b"".join),
    cuts=st.lists(st.integers(0, 60)),
    delimiter=st.sampled_from([b"-", b"--", b"-+-", b"a-b"]),
)
def test_where_the_chunks_are_cut_changes_nothing(data: bytes, cuts: list[int], delimiter: bytes):
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in pairwise(places)]
    assert split(chunks, delimiter) == expected(data, delimiter)


def test_what_is_held_back_is_counted():
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntwo") == [b"one"]
    assert splitter.rest_bytes == 3
    splitter.feed(b"hundred")
    assert splitter.rest_bytes == 10
    assert splitter.feed(b"\n") == [b"twohundred"]
    assert splitter.rest_bytes == 0


def test_keys_are_split_at_the_first_separator():
    assert split_keys([b"k:v", b":", b"k::v", b"key:"], b":") == (
        [b"k", b"", b"k", b"key"],
        [b"v", b"", b":v", b""],
    )


def test_keys_are_split_up_to_the_first_line_without_a_separator():
    assert split_keys([b"a:1", b"b:2", b"oops", b"c:3"], b":") == ([b"a", b"b"], [b"1", b"2"])
    assert split_keys([b"oops"], b":") == ([], [])
