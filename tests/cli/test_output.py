"""What commands print."""

from __future__ import annotations

import json

import pytest

from hocket import Message
from hocket.cli import output


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),  # not 1024.0 KiB
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes(count: int, text: str):
    assert output.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (12.4, "12"), (1500, "1.5 k"), (2.5e6, "2.5 M"), (3e9, "3.0 G")]
)
def test_rates(count: float, text: str):
    assert output.rate(count) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1 << 62, str(1 << 62)),  # beyond the years that Python knows
    ],
)
def test_moments(timestamp: int, text: str):
    assert output.moment(timestamp) == text


def test_tables_align_text_to_the_left_and_numbers_to_the_right():
    shown = output.table(["NAME", "COUNT>", "NOTE"], [("a", 1234567, "x"), ("longer", 8, "")])
    assert shown.splitlines() == [
        "NAME        COUNT  NOTE",
        "a       1,234,567  x",
        "longer          8",
    ]


def test_a_table_without_rows_is_its_head():
    assert output.table(["NAME", "COUNT>"], []) == "NAME  COUNT"


def test_a_message_as_json_is_one_line_with_what_is_text_as_text():
    headers = {"kind": b"x", "raw": b"\xff", "none": None}
    line = output.message_json(
        Message((b"one\ntwo \xc3\xa4", None, headers, "t", 1, 2, 0, 1, None))
    )
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": "1970-01-01T00:00:00.000000Z",
        "key": None,
        "value": "one\ntwo ä",
        "headers": {"kind": "x", "raw": {"base64": "/w=="}, "none": None},
    }
