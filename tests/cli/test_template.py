"""What `hocket consume --format` makes of a message."""

from __future__ import annotations

import pytest

from hocket import Message
from hocket.cli.template import Template

HEADERS = {"kind": b"order", "none": None, "raw": b"\xff"}
MESSAGE = Message((b"v\xff", b"k", HEADERS, "t", 3, 7, 1_500_000, 2, None))
BARE = Message((b"", None, {}, "t", 0, 0, 0, 1, None))


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{key} {value}", b"k v\xff\n"),
        ("{topic}/{partition}/{offset}", b"t/3/7\n"),
        ("{time}", b"1970-01-01T00:00:01.500000Z\n"),
        ("{headers}", b'{"kind": "order", "none": null, "raw": {"base64": "/w=="}}\n'),
        ("{headers[kind]}|{headers[none]}|{headers[raw]}|{headers[x]}", b"order||\xff|\n"),
        ("{delivery_count}", b"2\n"),
        ("{{{key}}}", b"{k}\n"),
        ("{key}\\t{offset}\\0", b"k\t7\0\n"),
        ("§ {key}", "§ k\n".encode()),
        ("no field", b"no field\n"),
    ],
)
def test_a_line_is_text_and_fields(template: str, line: bytes):
    assert Template(template).line(MESSAGE) == line


def test_a_message_without_key_value_and_headers():
    assert Template("[{key}][{value}]{headers}").line(BARE) == b"[][]{}\n"
