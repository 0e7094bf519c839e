"""Whatever library writes and reads JSON: the same text means the same, and the same is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hocket.values import text as texts
from hocket.values.misfit import Misfit
from hocket.values.text import Text, text_by

LIBRARIES = {
    "orjson": text_by(["orjson"], ["orjson"]),
    "msgspec": text_by(["msgspec"], ["msgspec"]),
    "json": text_by(["not-installed"], []),
}
each_library = pytest.mark.parametrize("text", LIBRARIES.values(), ids=LIBRARIES)

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**63, -(2**63) - 1, 2**70, 0.1, 1e22, 1e-7, -0.0, "",
    "ä\u2028\x00\"", "\U0001f600", [], {}, {"": [1, {"a": None}]}, {"a": {"b": {"c": [[[]]]}}},
]  # fmt: skip


def test_all_of_them_are_there():
    """Else the tests below would test the standard library three times."""
    assert LIBRARIES["orjson"].dumps_freely([]) == b"[]"
    assert LIBRARIES["msgspec"].dumps.__name__ == "json_encode"
    assert texts.text() == texts.text()


@each_library
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_written_and_read(text: Text, value: Any):
    data = text.dumps(value)
    assert json.loads(data) == value
    again = text.loads(data)
    assert again == value
    assert type(again) is type(value)


@each_library
@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"nul", b"NaN", b"Infinity", b"-Infinity", b"1e400", b"[1,]", b"{'a': 1}", b"01",
        b'"\xff"', b'"\\ud800"', b'"\\udc00\\ud800"', b'{"a":1', b"1 2", b"[" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text: Text, data: bytes):
    with pytest.raises(Misfit, match="is not JSON: "):
        text.loads(data)


@each_library
def test_integers_are_exact_however_large(text: Text):
    numbers = [10**18, 10**19, -(10**19), 18446744073709551616, 10**40]
    assert text.loads(json.dumps(numbers).encode()) == numbers
    assert set(map(type, text.loads(json.dumps(numbers).encode()))) == {int}


@each_library
def test_a_pair_of_surrogates_is_one_character(text: Text):
    assert text.loads(b'"\\ud83d\\ude00"') == "\U0001f600"


@each_library
@pytest.mark.parametrize(
    "value", [float("nan"), [None], {1: 2}, b"x", {"a": {1}}, 1j, "\ud800", 2**70], ids=repr
)
def test_what_a_library_would_change_is_looked_at_first(text: Text, value: Any):
    assert text.dumps_freely(value) is None
