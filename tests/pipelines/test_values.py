"""A schema is inferred from JSON values once, and kept in a file that may be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket import Client
from hocket.pipelines.faults import PipelineFault
from hocket.pipelines.values import inferred, kept_schema
from tests.support.processes.server import ServerProcess

pytest.importorskip("pyspark")


def test_types_are_those_that_hold_all_values() -> None:
    values = [
        b'{"a": 1, "b": true, "c": "x", "d": null, "e": [1], "f": {"g h": 1.5}, "i": 1}',
        b'{"a": 2.5, "b": false, "c": 7, "d": null, "e": [2.5], "f": {"g h": 2.5}, "j": 1e99}',
        b"not json",
        b"[1]",
        b'{"i": 123456789012345678901234567890, "k": {}, "": 1, "l--m": {"": 1}}',
    ]
    assert inferred(values) == {
        "a": "DOUBLE", "b": "BOOLEAN", "c": "STRING", "d": "STRING", "e": "STRING",
        "f": "STRUCT<`g h`: DOUBLE>", "i": "STRING", "j": "DOUBLE", "k": "MAP<STRING, STRING>",
        "l--m": "MAP<STRING, STRING>",
    }  # fmt: skip


def test_without_any_object_there_is_no_schema() -> None:
    with pytest.raises(PipelineFault, match="none of the first 1 records of the topic 'orders'"):
        inferred([b"1"], "orders")


def test_it_is_inferred_once_and_then_the_file_counts(
    broker: ServerProcess, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_SERVER", broker.address)
    client.create_topic("kept")
    file = tmp_path / "schemas" / "kept.sql"
    with pytest.raises(PipelineFault, match="Publish some first"):
        kept_schema(file, "kept")
    assert not file.exists()
    client.publish("kept", b'{"amount": 1, "at": "now"}')
    assert kept_schema(file, "kept") == "amount BIGINT,\nat STRING"
    client.publish("kept", b'{"amount": 1.5}')
    assert kept_schema(file, "kept").endswith("amount BIGINT,\nat STRING\n")
    file.write_text("amount double")
    assert kept_schema(file, "kept") == "amount double"
