"""What is wrong is refused with the right error and words, and nothing is changed by it."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime

import pytest

from hocket.errors import (
    BadName,
    NoConnection,
    OutOfRange,
    UnknownPartition,
    WrongType,
)
from tests.support.brokers.every_world import only
from tests.support.threads import PATIENCE

BAD_NAMES = ["", " ", "a b", "a/b", "../up", ".hidden", "-flag", "x" * 256, "sn\N{SNOWMAN}w", "a\0"]
NO_NAMES = [None, 5, b"topic", ["topic"]]
NAN = math.nan

CALLS = [
    # (error, what is called with the client and a topic)
    *[(BadName, lambda c, t, n=n: c.create_topic(n)) for n in BAD_NAMES],
    *[(BadName, lambda c, t, n=n: c.subscribe(t, index=n)) for n in BAD_NAMES],
    *[(WrongType, lambda c, t, n=n: c.create_topic(n)) for n in NO_NAMES],
    *[(WrongType, lambda c, t, n=n: c.publish(n, b"x")) for n in NO_NAMES],
    *[(WrongType, lambda c, t, n=n: c.producer(n)) for n in NO_NAMES],
    *[(WrongType, lambda c, t, n=n: c.subscribe(n)) for n in NO_NAMES[:3]],  # a list is several
    (WrongType, lambda c, t: c.subscribe(t, index=5)),
    (BadName, lambda c, t: c.lag(t, "a b")),
    (BadName, lambda c, t: c.delete_index(t, "")),
    # numbers of a topic
    (OutOfRange, lambda c, t: c.create_topic("new", partitions=0)),
    (OutOfRange, lambda c, t: c.create_topic("new", partitions=-1)),
    (OutOfRange, lambda c, t: c.create_topic("new", partitions=4097)),
    (WrongType, lambda c, t: c.create_topic("new", partitions=1.0)),
    (WrongType, lambda c, t: c.create_topic("new", partitions=True)),
    (OutOfRange, lambda c, t: c.create_topic("new", replication=0)),
    (OutOfRange, lambda c, t: c.create_topic("new", memory_retention=-1)),
    (OutOfRange, lambda c, t: c.create_topic("new", memory_retention=NAN)),
    (OutOfRange, lambda c, t: c.create_topic("new", memory_retention=math.inf)),
    (OutOfRange, lambda c, t: c.create_topic("new", disk_retention="a week")),
    (WrongType, lambda c, t: c.create_topic("new", disk_retention=[1])),
    (OutOfRange, lambda c, t: c.create_topic("new", disk_retention=NAN)),
    (OutOfRange, lambda c, t: c.create_topic("new", memory_bytes=-1)),
    (OutOfRange, lambda c, t: c.create_topic("new", disk_bytes="-1MiB")),
    (WrongType, lambda c, t: c.create_topic("new", disk_bytes=1.5)),
    (OutOfRange, lambda c, t: c.create_topic("new", segment_bytes=0)),
    (OutOfRange, lambda c, t: c.create_topic("new", durability="often")),
    (OutOfRange, lambda c, t: c.alter_topic(t, durability="")),
    (TypeError, lambda c, t: c.alter_topic(t, colour="red")),
    # messages
    *[(WrongType, lambda c, t, v=v: c.publish(t, v)) for v in (None, "text", 5, [b"x"], {})],
    (WrongType, lambda c, t: c.publish(t, b"x", key="text")),
    (WrongType, lambda c, t: c.publish(t, b"x", key=0)),
    (WrongType, lambda c, t: c.publish(t, b"x", headers="text")),
    (WrongType, lambda c, t: c.publish(t, b"x", headers={"a": "text"})),
    (WrongType, lambda c, t: c.publish(t, b"x", headers={b"a": b"x"})),
    (WrongType, lambda c, t: c.publish(t, b"x", headers={"\ud800": b"x"})),
    (WrongType, lambda c, t: c.publish(t, b"x", headers=[("a",)])),
    (WrongType, lambda c, t: c.publish(t, b"x", timestamp=1.5)),
    (WrongType, lambda c, t: c.publish(t, b"x", timestamp=datetime(2020, 1, 1))),
    (OutOfRange, lambda c, t: c.publish(t, b"x", timestamp=-1)),
    (OutOfRange, lambda c, t: c.publish(t, b"x", timestamp=2**63)),
    (WrongType, lambda c, t: c.publish(t, b"x", partition="0")),
    (WrongType, lambda c, t: c.publish(t, b"x", partition=False)),
    (UnknownPartition, lambda c, t: c.publish(t, b"x", partition=1)),
    (UnknownPartition, lambda c, t: c.publish(t, b"x", partition=-1)),
    # timeouts
    *[(OutOfRange, lambda c, t, s=s: c.publish(t, b"x", timeout=s)) for s in (-1, -0.001, NAN)],
    *[(WrongType, lambda c, t, s=s: c.publish(t, b"x", timeout=s)) for s in ("1", True, [1])],
    (OutOfRange, lambda c, t: c.ping(timeout=-1)),
    (OutOfRange, lambda c, t: c.describe(t, timeout=NAN)),
    (OutOfRange, lambda c, t: c.subscribe(t, timeout=-1)),
    (OutOfRange, lambda c, t: c.producer(t, timeout=-1)),
    (OutOfRange, lambda c, t: c.create_topic("new", timeout=-1)),
    (WrongType, lambda c, t: c.topics(timeout="soon")),
    # producers
    (OutOfRange, lambda c, t: c.producer(t, linger=-1)),
    (OutOfRange, lambda c, t: c.producer(t, linger=NAN)),
    (WrongType, lambda c, t: c.producer(t, linger="2ms")),
    (OutOfRange, lambda c, t: c.producer(t, batch_bytes=0)),
    (OutOfRange, lambda c, t: c.producer(t, batch_bytes=1 << 40)),
    (OutOfRange, lambda c, t: c.producer(t, window_bytes=0)),
    (OutOfRange, lambda c, t: c.producer(t, send_timeout=-1)),
    (OutOfRange, lambda c, t: c.producer(t, delivery_timeout=NAN)),
    (OutOfRange, lambda c, t: c.producer(t, codec="rar")),
    (WrongType, lambda c, t: c.producer(t, codec=None)),
    (WrongType, lambda c, t: c.producer(t, on_delivery="call me")),
    # subscriptions and indexes
    (OutOfRange, lambda c, t: c.subscribe(t, mode="alone")),
    (OutOfRange, lambda c, t: c.subscribe(t, start="sometime")),
    (OutOfRange, lambda c, t: c.subscribe(t, start=-1)),
    (OutOfRange, lambda c, t: c.subscribe(t, start=2**70, timeout=2)),
    (WrongType, lambda c, t: c.subscribe(t, start=1.5)),
    (WrongType, lambda c, t: c.subscribe(t, start=None)),
    (UnknownPartition, lambda c, t: c.subscribe(t, partitions=[1])),
    (OutOfRange, lambda c, t: c.subscribe(t, partitions=[-1])),
    (OutOfRange, lambda c, t: c.subscribe(t, partitions=[0, 0])),
    (WrongType, lambda c, t: c.subscribe(t, partitions=["0"])),
    (WrongType, lambda c, t: c.subscribe(t, partitions=0)),
    (OutOfRange, lambda c, t: c.subscribe(t, partitions=[])),
    (UnknownPartition, lambda c, t: c.subscribe(t, positions={1: 0})),
    (OutOfRange, lambda c, t: c.subscribe(t, positions={0: -1})),
    (WrongType, lambda c, t: c.subscribe(t, positions={0: "0"})),
    (WrongType, lambda c, t: c.subscribe(t, positions=[0])),
    (OutOfRange, lambda c, t: c.subscribe(t, credit_bytes=0)),
    (OutOfRange, lambda c, t: c.subscribe(t, credit_bytes=-1)),
    (BadName, lambda c, t: c.subscribe(t, hold_retention=True)),
    (OutOfRange, lambda c, t: c.find_offsets(t, -1)),
    (WrongType, lambda c, t: c.find_offsets(t, None)),
    (OutOfRange, lambda c, t: c.seek(t, "i", -1)),
    (OutOfRange, lambda c, t: c.seek(t, "i", 0, partition=-1)),
]


@pytest.mark.parametrize(
    ("error", "call"), CALLS, ids=[f"line-{call.__code__.co_firstlineno}" for _, call in CALLS]
)
def test_it_is_refused_and_nothing_is_changed(world, bad_input_topic, error, call):
    client, topic = world.client, bad_input_topic
    topics, described = client.topics(), lasting(world, topic)
    with pytest.raises(error) as caught:
        call(client, topic)
    assert len(str(caught.value)) > 15, "it must say what was wrong"
    assert not getattr(caught.value, "may_have_happened", False)
    assert client.topics() == topics
    assert lasting(world, topic) == described
    assert client.indexes(topic) == []


def lasting(world, topic):
    """What nobody changes but by what is asked for: where nodes die, leaders and copies change."""
    described = world.client.describe(topic)
    if world.kind != "killed":
        return described
    return described.config, [(each.partition, each.end) for each in described.partitions]


@pytest.fixture(scope="module")
def topic_of_this_world(world):
    return world.name()


@pytest.fixture
def bad_input_topic(world, topic_of_this_world):
    world.client.create_topic(topic_of_this_world, exist_ok=True)
    return topic_of_this_world


def test_a_timeout_of_nothing_still_answers(world):
    """0 is allowed: it raises Timeout, or has been quick enough; it never hangs."""
    client, topic = world.client, world.topic()
    for call in (
        lambda: client.publish(topic, b"x", timeout=0),
        lambda: client.ping(timeout=0),
        lambda: client.describe(topic, timeout=0),
    ):
        with suppress(TimeoutError):
            call()
    client.ping()
    assert client.publish(topic, b"y", timeout=PATIENCE).offset <= 1


@only("served", "cluster")
@pytest.mark.parametrize(
    ("url", "error"),
    [
        (" ", (BadName, OutOfRange)),
        ("127.0.0.1:port", (BadName, OutOfRange)),
        ("http://127.0.0.1:4150", (BadName, OutOfRange)),
        ("hocket://", (BadName, OutOfRange)),
        ("hocket://127.0.0.1:99999", (BadName, OutOfRange)),
        ("hocket://127.0.0.1:port", (BadName, OutOfRange)),
        (5, WrongType),
        ("hocket://127.0.0.1:1", NoConnection),
    ],
)
def test_addresses_that_lead_nowhere(world, url, error):
    with pytest.raises(error) as caught:
        world.connect(url, timeout=0.5)
    assert len(str(caught.value)) > 15
    if error is NoConnection:
        assert "127.0.0.1:1" in str(caught.value)
        assert "hocket serve" in str(caught.value)
    world.client.ping(timeout=PATIENCE)
