"""What is noted of a flow on its way into the graph: its topics, and an index for its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.connect.proto")

import pyspark.sql.connect.proto as pb2

from hocket.model import NAME_BYTES_MAX
from hocket.pipelines.declared import Declared, NotingRegistry, Source, index_name
from hocket.pipelines.faults import PipelineFault, Place, Places


class Sent:
    """Spark's client, as far as the registry needs it."""

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def execute_command(self, command: Any) -> None:
        self.commands.append(command)


class Session:
    def __init__(self) -> None:
        self.client = Sent()


def declared_flow(*reads: dict[str, str], streaming: bool = True) -> tuple[Declared, Any]:
    """A flow that joins these reads; what was noted, and the command that went to Spark."""
    relations = []
    for options in reads:
        relation = pb2.Relation()
        relation.read.is_streaming = streaming
        relation.read.data_source.format = "hocket"
        for name, value in options.items():
            relation.read.data_source.options[name] = value
        relations.append(relation)
    whole = pb2.Relation()
    whole.filter.input.CopyFrom(relations[0])
    if len(relations) > 1:
        whole = pb2.Relation()
        whole.join.left.filter.input.CopyFrom(relations[0])
        whole.join.right.CopyFrom(relations[1])
    command = pb2.Command()
    flow = command.pipeline_command.define_flow
    flow.flow_name = "large"
    flow.relation_flow_details.relation.CopyFrom(whole)
    declared = Declared(Places(Path("/srv/shop"), flows={"large": Place("a.py", 7)}))
    session = Session()
    registry = NotingRegistry(session, "graph", "shop", declared)  # type: ignore[arg-type]
    registry._client.execute_command(command)
    return declared, session.client.commands[0]


def options_sent(command: Any) -> dict[str, str]:
    details = command.pipeline_command.define_flow.relation_flow_details
    return dict(details.relation.filter.input.read.data_source.options)


def test_a_stream_gets_an_index_by_the_names_of_the_pipeline_and_the_flow() -> None:
    declared, command = declared_flow({"servers": "h:1", "subscribe": "orders, other"})
    assert options_sent(command)["index"] == "shop.large"
    assert declared.sources == [
        Source("large", Place("a.py", 7), ("orders", "other"), "shop.large")
    ]


def test_an_index_that_is_named_stays() -> None:
    declared, command = declared_flow({"subscribe": "orders", "Index": "mine"})
    assert "index" not in options_sent(command)
    assert declared.sources[0].index == "mine"


def test_two_streams_of_one_flow_have_two_indexes() -> None:
    declared, _ = declared_flow({"subscribe": "a"}, {"assign": '{"b": [0]}'})
    assert [(each.topics, each.index) for each in declared.sources] == [
        (("a",), "shop.large"), (("b",), "shop.large-2"),
    ]  # fmt: skip


def test_a_batch_has_none() -> None:
    declared, command = declared_flow({"subscribe": "orders"}, streaming=False)
    assert declared.sources[0].index == ""
    assert "index" not in options_sent(command)


def test_a_name_that_is_too_long_for_an_index_is_refused() -> None:
    with pytest.raises(PipelineFault, match="Give its stream the option index"):
        index_name("p" * NAME_BYTES_MAX, "flow")
