"""What clients ask about the cluster, and how much of it at a time."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.node.cluster import describing as describing_module
from hocket.node.cluster.describing import Describing
from tests.support.node.cluster import Asking, Nodes


def test_more_lookups_than_a_node_should_hold_are_refused_and_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(describing_module, "LOOKUPS_MAX", 30)
    nodes = Nodes(nodes=6)
    node = nodes.machines[1].node
    assert node is not None
    describing = Describing(node.node, node.ring, node.inspecting, lambda _node: "")
    node.node.serve_with(describing.servants())
    client = Asking(nodes, 1)
    for number in (0, 2, 3, 4, 5):
        nodes.crash(number)  # each lookup that leads to one of these waits for it
    asked = [client.begin(frames.LookUpKey, key=f"k{n}", cached=False) for n in range(80)]
    nodes.until(lambda: all(map(client.is_answered, asked)), 60, "all are answered")
    answers = [client.answer_to(request) for request in asked]
    refused = [each for each in answers if isinstance(each, frames.Failure)]
    assert any("keys are being looked up at this node" in each.message for each in refused)
    assert {each.code for each in refused} == {"busy"}
    assert describing._lookups == 0
