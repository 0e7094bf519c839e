"""Offsets as they stand in a query's checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hocket.errors import OutOfRange
from hocket.spark.offsets import cluster_in, from_json, to_json

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
offsets = st.dictionaries(
    names, st.dictionaries(st.integers(0, 4095), st.integers(0, 2**63 - 1), max_size=5), max_size=4
)


@given(offsets, names)
def test_they_come_back_from_text_as_they_were(given_: dict[str, Any], index: str) -> None:
    text = json.dumps(to_json(given_, index))
    assert from_json(json.loads(text)) == (given_, index)


def test_the_same_offsets_are_the_same_text() -> None:
    one = to_json({"b": {10: 1, 2: 5}, "a": {0: 0}}, "spark-hocket-1a2b3c4d")
    other = to_json({"a": {0: 0}, "b": {2: 5, 10: 1}}, "spark-hocket-1a2b3c4d")
    assert json.dumps(one) == json.dumps(other)
    assert one == {
        "index": "spark-hocket-1a2b3c4d",
        "offsets": {"a": {"0": 0}, "b": {"2": 5, "10": 1}},
    }


def test_they_keep_the_id_of_their_cluster() -> None:
    found = json.loads(json.dumps(to_json({"a": {0: 5}}, "i", "c1")))
    assert (from_json(found), cluster_in(found)) == (({"a": {0: 5}}, "i"), "c1")
    assert cluster_in(to_json({"a": {0: 5}}, "i")) == ""  # as older checkpoints have them


@pytest.mark.parametrize(
    "found",
    [
        {"orders": {"0": 3}},  # as Spark's Kafka connector has them
        {"index": "i"},
        {"index": "i", "offsets": [1]},
        {"index": "i", "offsets": {"orders": 3}},
        {"index": "i", "offsets": {"orders": {"x": 3}}},
        {"index": "i", "offsets": {"orders": {"-1": 3}}},
        {"index": "i", "offsets": {"orders": {"0": -3}}},
        {"index": "i", "offsets": {"orders": {"0": "3"}}},
        {"index": "i", "offsets": {"orders": {"0": True}}},
        {"index": "i", "offsets": {"no name": {"0": 3}}},
        {"index": "", "offsets": {}},
        {"index": None, "offsets": {}},
    ],
)
def test_what_is_not_ours_is_refused_with_what_to_do(found: dict[str, Any]) -> None:
    with pytest.raises(OutOfRange, match="checkpointLocation of its own"):
        from_json(found)
