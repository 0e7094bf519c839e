"""Topics: made, changed, described, listed, deleted; and what becomes of open handles."""

from __future__ import annotations

import pytest

from hocket import errors
from hocket.model import partition_of
from tests.support.brokers.every_world import publish_to_new_partition, take, values
from tests.support.brokers.worlds import new_name
from tests.support.threads import Running, until


def test_a_topic_has_what_it_was_given(world, client):
    # It follows the cluster's default, where what is kept in memory can.
    replication = None if world.replication == 1 else 1
    name = world.topic(
        3,
        replication=replication,
        memory_retention="90s",
        memory_bytes="1MiB",
        disk_retention="2d",
        disk_bytes="1GB",
        durability="memory",
        segment_bytes="512KiB",
    )
    config = client.describe(name).config
    assert config.partitions == 3
    assert config.replication == replication
    assert config.memory_retention_us == 90_000_000
    assert config.memory_bytes_max == 1 << 20
    assert config.disk_retention_us == 2 * 86_400_000_000
    assert config.disk_bytes_max == 10**9
    assert config.durability == "memory"
    assert config.segment_bytes_max == 512 << 10


def test_a_new_topic_is_empty_in_every_partition(world, client):
    name = world.topic(2)

    def led():
        """Of several replicas one is elected first."""
        found = client.describe(name)
        return found if all(each.leader for each in found.partitions) else None

    described = until(led)
    assert [each.partition for each in described.partitions] == [0, 1]
    for each in described.partitions:
        assert (each.start, each.end, each.memory_start) == (0, 0, 0)
        # A leader that was elected has begun its term with an entry that holds no message.
        assert each.memory_bytes == 0 or world.replication > 1
        assert len(each.replicas) == world.replication
        assert each.leader in each.replicas
        assert each.problem == ""


def test_topics_are_listed_by_name(world, client):
    names = [world.topic() for _ in range(3)]
    listed = client.topics()
    assert listed == sorted(listed)
    assert set(names) <= set(listed)


def test_a_topic_exists_once(world, client):
    name = world.topic(2)
    with pytest.raises(errors.TopicExists, match=name):
        client.create_topic(name)
    client.create_topic(name, partitions=5, exist_ok=True)
    assert client.describe(name).config.partitions == 2  # it is left as it was


def test_more_replicas_than_nodes_are_refused(world, client):
    name, more = world.name(), world.nodes + 1
    with pytest.raises(errors.NotEnoughNodes, match=str(more)):
        client.create_topic(name, replication=more)
    assert name not in client.topics()
    client.create_topic(name, replication=1)
    with pytest.raises(errors.NotEnoughNodes):
        client.alter_topic(name, replication=more)
    assert client.describe(name).config.replication == 1


def test_altering_changes_what_is_given_and_nothing_else(world, client):
    name = world.topic(2, memory_retention="1m", disk_bytes="1GB")
    before = client.describe(name).config
    client.alter_topic(name, disk_retention="forever", disk_bytes="unlimited")
    after = client.describe(name).config
    assert after.disk_retention_us is None
    assert after.disk_bytes_max is None
    assert after.partitions == before.partitions
    assert after.memory_retention_us == before.memory_retention_us


def test_partitions_cannot_become_fewer(world, client):
    name = world.topic(3)
    with pytest.raises(errors.OutOfRange, match="3"):
        client.alter_topic(name, partitions=2)
    assert len(client.describe(name).partitions) == 3


def test_what_is_asked_of_a_topic_that_is_not_there(world, client):
    name = world.name()
    for ask in (
        lambda: client.describe(name),
        lambda: client.alter_topic(name, partitions=2),
        lambda: client.delete_topic(name),
        lambda: client.publish(name, b"x"),
        lambda: client.producer(name),
        lambda: client.subscribe(name),
        lambda: client.subscribe(name, index="i"),
        lambda: client.find_offsets(name, "earliest"),
        lambda: client.indexes(name),
        lambda: client.lag(name, "i"),
        lambda: client.seek(name, "i", "latest"),
        lambda: client.delete_index(name, "i"),
    ):
        with pytest.raises(errors.UnknownTopic, match=name):
            ask()
    client.delete_topic(name, missing_ok=True)
    assert name not in client.topics()


def test_a_deleted_topic_is_gone_and_its_name_is_free(world, client):
    name = world.topic(2)
    client.publish(name, b"old", partition=0)
    with client.subscribe(name, index="i") as messages:
        messages.receive(20).ack()
    client.delete_topic(name)
    assert name not in client.topics()
    client.create_topic(name)
    assert client.describe(name).partitions[0].end == 0
    assert client.indexes(name) == []
    assert client.publish(name, b"new").offset == 0
    with client.subscribe(name, index="i") as messages:
        assert messages.receive(20).value == b"new"


def test_publishing_notices_that_its_topic_was_deleted(world, client):
    name = world.topic()
    client.publish(name, b"x")
    client.delete_topic(name)
    with pytest.raises(errors.UnknownTopic):
        client.publish(name, b"y", timeout=10)


def test_a_subscription_ends_when_its_topic_is_deleted(world, client):
    name = world.topic()
    with client.subscribe(name, index="i") as messages:
        with Running(messages.receive, 20) as waiting:
            client.delete_topic(name)
            assert name in str(waiting.failure(errors.UnknownTopic))
        with pytest.raises(errors.UnknownTopic):
            messages.receive_nowait()


def test_a_producer_ends_when_its_topic_is_deleted(world, client):
    name = world.topic()
    producer = client.producer(name, delivery_timeout=10)
    producer.send(b"x")
    producer.flush()
    client.delete_topic(name)

    def refused() -> bool:
        try:
            producer.send(b"y")
            producer.flush(10)
        except errors.UnknownTopic:
            return True
        return False

    until(refused, timeout=10)
    producer.close()


def test_an_open_producer_uses_new_partitions(world, client):
    name = world.topic(1)
    keys = [b"key-%d" % number for number in range(40)]
    with client.producer(name, linger=0) as producer:
        producer.send(b"before", key=keys[0])
        producer.flush()
        client.alter_topic(name, partitions=4)
        assert {partition_of(key, 4) for key in keys} == {0, 1, 2, 3}

        def is_known() -> bool:
            try:
                producer.send(b"probe", partition=3)
            except errors.UnknownPartition:
                return False
            return True

        until(is_known)
        futures = [(key, producer.send_future(b"after", key=key)) for key in keys]
        producer.flush()
        for key, future in futures:
            assert future.result(20).partition == partition_of(key, 4)


def test_publishing_uses_new_partitions(world, client):
    name = world.topic(1)
    client.publish(name, b"before")
    client.alter_topic(name, partitions=3)

    def reached() -> bool:
        try:
            return client.publish(name, b"after", partition=2).partition == 2
        except errors.UnknownPartition:
            return False

    assert reached() or until(reached, timeout=5)


@pytest.mark.parametrize("index", [None, "i"])
def test_an_open_subscription_gets_new_partitions(world, client, index):
    name = world.topic(1)
    client.publish(name, b"0")
    with client.subscribe(name, index=index) as messages:
        assert messages.receive(20).value == b"0"
        client.alter_topic(name, partitions=3)
        with client.producer(name) as producer:
            producer.flush()
        for partition in (1, 2):
            publish_to_new_partition(client, name, partition)
        found = take(messages, 2)
        assert {(m.partition, m.offset, m.value) for m in found} == {(1, 0, b"1"), (2, 0, b"2")}
        if index:
            for message in found:
                message.ack()
            messages.commit()
    if index:
        (described,) = client.indexes(name)
        assert [each.position for each in described.partitions] == [0, 1, 1]


def test_a_subscription_to_chosen_partitions_stays_with_them(world, client):
    name = world.topic(1)
    with client.subscribe(name, partitions=[0]) as messages:
        client.alter_topic(name, partitions=2)
        publish_to_new_partition(client, name, 1)
        client.publish(name, b"mine", partition=0)
        assert values(take(messages, 1)) == [b"mine"]
        assert messages.partitions == [0]
        with pytest.raises(errors.Timeout):
            messages.receive(0.2)


def test_an_index_misses_nothing_of_partitions_that_came_while_it_was_away(world, client):
    """`start` is for a new index; this one is old, whatever its consumer says each time."""
    name = world.topic(1)
    with client.subscribe(name, index="i", start="latest"):
        pass
    client.alter_topic(name, partitions=2)
    publish_to_new_partition(client, name, 1)
    with client.subscribe(name, index="i", start="latest") as messages:
        assert values(take(messages, 1, timeout=2)) == [b"1"]


def test_many_partitions(world, client):
    name = world.topic(256)
    position = client.publish(name, b"x", partition=255)
    assert position.partition == 255
    with client.subscribe(name) as messages:
        assert messages.receive(20).partition == 255
    client.delete_topic(name)


def test_messages_are_not_kept_on_disk_for_a_shorter_time_than_in_memory(world, client):
    name = new_name("kept")
    with pytest.raises(errors.OutOfRange, match="on disk for 5s and in memory for 1m"):
        client.create_topic(name, disk_retention=5, memory_retention=60)
    client.create_topic(name, disk_retention=5)  # the default for memory gives way
    config = client.describe(name).config
    assert config.memory_retention_us == config.disk_retention_us == 5_000_000
    client.alter_topic(name, disk_retention=60)
    client.alter_topic(name, memory_retention=60)
    with pytest.raises(errors.OutOfRange, match="on disk for 10s and in memory for 1m"):
        client.alter_topic(name, disk_retention=10)
