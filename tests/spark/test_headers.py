"""Headers as the text of `to_json(headers)`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hocket.errors import WrongType
from hocket.spark.columns import arrow_schema
from hocket.spark.headers import as_lists

KIND = arrow_schema(["headers"]).field("headers").type


def test_text_is_what_to_json_makes() -> None:
    texts = ['[{"key":"a","value":"AP8="},{"key":"a"}]', None, "[]", '[{"key":"b","value":""}]']
    found = as_lists(pa.array(texts))
    assert found.type == KIND
    assert found.to_pylist() == [
        [{"key": "a", "value": b"\x00\xff"}, {"key": "a", "value": None}],
        None,
        [],
        [{"key": "b", "value": b""}],
    ]


def test_no_headers_at_all_and_lists_cost_nothing() -> None:
    assert as_lists(pa.nulls(3, pa.string())).equals(pa.nulls(3, KIND))
    lists = pa.array([[{"key": "a", "value": b"1"}]], KIND)
    assert as_lists(lists) is lists


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "3",
        '["a"]',
        '{"key": 1}',
        "[{}]",
        '[{"key":1}]',
        '[{"key":"a","value":"%"}]',
        "[[]]",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(WrongType, match="must be what to_json"):
        as_lists(pa.array([text]))
