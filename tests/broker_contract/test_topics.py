from __future__ import annotations

import pytest

from hocket.errors import (
    BadName,
    NotEnoughNodes,
    OutOfRange,
    TopicExists,
    UnknownIndex,
    UnknownPartition,
    UnknownTopic,
    WrongType,
)
from hocket.model import DAY_US, MINUTE_US
from tests.broker_contract.worlds import new_name


def test_a_topic_is_created_described_listed_and_deleted(client):
    name = new_name()
    client.create_topic(
        name, partitions=3, memory_retention="2m", memory_bytes="1MiB", disk_retention="3d",
        disk_bytes=1 << 30, durability="memory", segment_bytes="8MiB",
    )  # fmt: skip
    assert name in client.topics()
    described = client.describe(name)
    assert described.name == name
    config = described.config
    assert (config.partitions, config.durability) == (3, "memory")
    assert (config.memory_retention_us, config.memory_bytes_max) == (2 * MINUTE_US, 1 << 20)
    assert (config.disk_retention_us, config.disk_bytes_max) == (3 * DAY_US, 1 << 30)
    assert config.segment_bytes_max == 8 << 20
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert all((each.start, each.end) == (0, 0) for each in described.partitions)
    assert all(each.leader and each.leader in each.replicas for each in described.partitions)
    client.delete_topic(name)
    assert name not in client.topics()
    with pytest.raises(UnknownTopic, match=name):
        client.describe(name)


def test_topics_are_listed_in_order(client):
    names = [new_name(letter) for letter in "cab"]
    for name in names:
        client.create_topic(name)
    found = client.topics()
    assert found == sorted(found)
    assert set(names) <= set(found)


def test_a_topic_can_be_kept_for_ever(client):
    name = new_name()
    client.create_topic(name, disk_retention="forever")
    assert client.describe(name).config.disk_retention_us is None
    client.alter_topic(name, disk_retention=60)
    assert client.describe(name).config.disk_retention_us == MINUTE_US
    client.alter_topic(name, disk_retention=float("inf"))
    assert client.describe(name).config.disk_retention_us is None


def test_a_topic_exists_once(client, topic):
    with pytest.raises(TopicExists, match=topic):
        client.create_topic(topic)
    client.create_topic(topic, exist_ok=True)


def test_a_topic_that_is_not_there_cannot_be_deleted(client):
    with pytest.raises(UnknownTopic):
        client.delete_topic("nowhere")
    client.delete_topic("nowhere", missing_ok=True)


def test_altering_changes_what_is_given_and_nothing_else(client):
    name = new_name()
    client.create_topic(name, partitions=2, memory_retention="1m", disk_bytes=12345)
    client.publish(name, b"kept", partition=1)
    client.alter_topic(name, partitions=5, memory_retention="7m")
    described = client.describe(name)
    assert len(described.partitions) == described.config.partitions == 5
    assert described.config.memory_retention_us == 7 * MINUTE_US
    assert described.config.disk_bytes_max == 12345
    assert described.partitions[1].end == 1
    assert client.publish(name, b"new", partition=4).partition == 4


def test_partitions_may_only_grow(client, wide):
    with pytest.raises(OutOfRange):
        client.alter_topic(wide, partitions=3)
    assert len(client.describe(wide).partitions) == 4


def test_more_replicas_than_nodes(client):
    with pytest.raises(NotEnoughNodes):
        client.create_topic(new_name(), replication=3)
    client.create_topic(new_name(), replication=1)


def test_a_deleted_topic_that_is_made_again_is_empty(client, topic):
    client.publish(topic, b"old")
    client.delete_topic(topic)
    client.create_topic(topic)
    assert client.describe(topic).partitions[0].end == 0
    assert client.publish(topic, b"new").offset == 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c, t: c.create_topic(""), BadName),
        (lambda c, t: c.create_topic("a b"), BadName),
        (lambda c, t: c.create_topic("../up"), BadName),
        (lambda c, t: c.create_topic("x" * 256), BadName),
        (lambda c, t: c.create_topic(5), WrongType),
        (lambda c, t: c.create_topic("t", partitions=0), OutOfRange),
        (lambda c, t: c.create_topic("t", partitions=4097), OutOfRange),
        (lambda c, t: c.create_topic("t", partitions="4"), WrongType),
        (lambda c, t: c.create_topic("t", partitions=True), WrongType),
        (lambda c, t: c.create_topic("t", replication=0), OutOfRange),
        (lambda c, t: c.create_topic("t", memory_retention="soon"), OutOfRange),
        (lambda c, t: c.create_topic("t", memory_retention=-1), OutOfRange),
        (lambda c, t: c.create_topic("t", disk_bytes="much"), OutOfRange),
        (lambda c, t: c.create_topic("t", durability="maybe"), OutOfRange),
        (lambda c, t: c.alter_topic(t, colour="red"), TypeError),
        (lambda c, t: c.publish("no such topic", b""), BadName),
        (lambda c, t: c.publish("nowhere", b""), UnknownTopic),
        (lambda c, t: c.publish(t, "text"), WrongType),
        (lambda c, t: c.publish(t, None), WrongType),
        (lambda c, t: c.publish(t, b"", key="text"), WrongType),
        (lambda c, t: c.publish(t, b"", headers={"a": "text"}), WrongType),
        (lambda c, t: c.publish(t, b"", headers=5), WrongType),
        (lambda c, t: c.publish(t, b"", timestamp="now"), WrongType),
        (lambda c, t: c.publish(t, b"", partition=1), UnknownPartition),
        (lambda c, t: c.publish(t, b"", partition=-1), UnknownPartition),
        (lambda c, t: c.publish(t, b"", timeout=-1), OutOfRange),
        (lambda c, t: c.producer("nowhere"), UnknownTopic),
        (lambda c, t: c.producer(t, linger=-1), OutOfRange),
        (lambda c, t: c.producer(t, batch_bytes=0), OutOfRange),
        (lambda c, t: c.producer(t, window_bytes="a lot"), OutOfRange),
        (lambda c, t: c.producer(t, codec="zip"), OutOfRange),
        (lambda c, t: c.producer(t, codec=None), WrongType),
        (lambda c, t: c.subscribe("nowhere"), UnknownTopic),
        (lambda c, t: c.subscribe(t, index="a b"), BadName),
        (lambda c, t: c.subscribe(t, index=""), BadName),
        (lambda c, t: c.subscribe(t, mode="mine"), OutOfRange),
        (lambda c, t: c.subscribe(t, start="whenever"), OutOfRange),
        (lambda c, t: c.subscribe(t, start=-1), OutOfRange),
        (lambda c, t: c.subscribe(t, start=1.5), WrongType),
        (lambda c, t: c.subscribe(t, start=5), OutOfRange),
        (lambda c, t: c.subscribe(t, partitions=[1]), UnknownPartition),
        (lambda c, t: c.subscribe(t, partitions=[0, 0]), OutOfRange),
        (lambda c, t: c.subscribe(t, positions={0: 5}), OutOfRange),
        (lambda c, t: c.subscribe(t, positions={3: 0}), UnknownPartition),
        (lambda c, t: c.subscribe(t, positions={0: -1}), OutOfRange),
        (lambda c, t: c.subscribe(t, hold_retention=True), BadName),
        (lambda c, t: c.subscribe(t, credit_bytes=0), OutOfRange),
        (lambda c, t: c.seek(t, "nobody", "earliest"), UnknownIndex),
        (lambda c, t: c.seek("nowhere", "i", "earliest"), UnknownTopic),
        (lambda c, t: c.lag(t, "nobody"), UnknownIndex),
        (lambda c, t: c.lag("nowhere", "i"), UnknownTopic),
        (lambda c, t: c.indexes("nowhere"), UnknownTopic),
        (lambda c, t: c.delete_index(t, "nobody"), UnknownIndex),
        (lambda c, t: c.find_offsets("nowhere", "latest"), UnknownTopic),
        (lambda c, t: c.find_offsets(t, 99), OutOfRange),
        (lambda c, t: c.ping(timeout="1"), WrongType),
    ],
    ids=lambda value: None,
)
def test_bad_input_says_so_and_changes_nothing(client, topic, call, error):
    before = client.topics()
    with pytest.raises(error) as caught:
        call(client, topic)
    assert len(str(caught.value)) > 10
    assert client.topics() == before
    assert client.publish(topic, b"still works").offset == 0
    assert client.indexes(topic) == []


def test_ping(client):
    client.ping()
