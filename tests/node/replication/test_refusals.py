"""What a topic with several replicas does not take in this version: refused by name, at any node.

The list is that of docs/LIMITS.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from hocket import frames
from hocket.model import TopicConfig
from hocket.wire import batch as batches
from tests.support.node.cluster import Asking, Nodes
from tests.support.node.replicated import leader_of

MANY = TopicConfig(replication=3)
RECORD = batches.encode([b"one"], timestamps=5)


# What is asked for, of which kind, and what the refusal says.
REFUSED: dict[str, tuple[type, dict[str, Any], str]] = {
    "delayed producer": (
        frames.OpenProducer, {"topic": "orders", "delayed": True}, "a delayed message needs"
    ),
    "delayed publish": (
        frames.Publish, {"topic": "orders", "partition": 0, "delayed": True},
        "a delayed message needs",
    ),
    "memory": (
        frames.CreateTopic, {"topic": "new", "config": TopicConfig(1, 3, durability="memory")},
        "durability 'memory' has one replica",
    ),
    "delayed topic": (
        frames.CreateTopic, {"topic": "new", "config": TopicConfig(1, 3, delayed=True)},
        "a topic with delayed messages has one replica",
    ),
    "altered to memory": (
        frames.AlterTopic, {"topic": "orders", "config": TopicConfig(durability="memory")},
        "durability 'memory' has one replica",
    ),
    "altered to delayed": (
        frames.AlterTopic, {"topic": "orders", "config": TopicConfig(delayed=True)},
        "a topic with delayed messages has one replica",
    ),
    "altered replicas": (
        frames.AlterTopic, {"topic": "orders", "config": TopicConfig(replication=1)},
        "has 3 replicas, and their number cannot be changed to 1 in this version",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    nodes = Nodes()
    Asking(nodes, 0).done(frames.CreateTopic, topic="orders", config=MANY)
    nodes.settle_deciders()
    return nodes


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_name_and_nothing_is_done(nodes, what):
    kind, fields, words = REFUSED[what]
    payload = RECORD if kind is frames.Publish else b""
    client = Asking(nodes, leader_of(nodes))
    before = nodes.states()
    refused = client.refused(kind, payload, **fields)
    assert words in refused.message
    assert refused.code in ("wrongKind", "outOfRange")
    assert "replication 1" in refused.message or "make another topic" in refused.message
    assert client.topics() == ["orders"]
    assert nodes.states() == before


def test_what_such_a_topic_takes_is_taken(nodes):
    client = Asking(nodes, leader_of(nodes))
    assert isinstance(client.ask(frames.OpenProducer, topic="orders"), frames.ProducerOpened)
    answer = client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    assert isinstance(answer, frames.Published)
    own = {"topic": "orders", "index": "own", "credit_bytes": 1 << 20}
    assert isinstance(client.ask(frames.OpenSubscription, **own), frames.SubscriptionOpened)
