"""One-off publishes: where they land, what they carry, and many of them at once."""

from __future__ import annotations

import time

import pytest

from hocket import Position, errors
from hocket.model import MESSAGE_BYTES_MAX, partition_of
from tests.support.brokers.every_world import take, values
from tests.support.threads import noise

MANY = 600


def test_positions_are_counted_from_zero_in_each_partition(world, client):
    topic = world.topic(2)
    for offset in range(3):
        for partition in (0, 1):
            position = client.publish(topic, b"x", partition=partition)
            assert position == Position(topic, partition, offset)


def test_a_key_decides_the_partition(world, client):
    topic = world.topic(5)
    for number in range(25):
        key = b"key-%d" % number
        assert client.publish(topic, b"x", key=key).partition == partition_of(key, 5)


def test_a_chosen_partition_wins_over_the_key(world, client):
    topic = world.topic(3)
    key = b"key"
    chosen = (partition_of(key, 3) + 1) % 3
    assert client.publish(topic, b"x", key=key, partition=chosen).partition == chosen


def test_a_message_arrives_as_it_was_sent(world, client):
    topic = world.topic()
    headers = {"plain": b"1", "empty": b"", "null": None, "\N{SNOWMAN}": bytes(range(256))}
    client.publish(topic, b"value", key=b"key", headers=headers, timestamp=1_234_567)
    with client.subscribe(topic) as messages:
        message = messages.receive(20)
    assert (message.value, message.key, message.headers) == (b"value", b"key", headers)
    assert (message.topic, message.partition, message.offset) == (topic, 0, 0)
    assert message.timestamp == 1_234_567
    assert message.time.timestamp() == 1.234567
    assert message.delivery_count == 1


def test_a_message_without_a_timestamp_gets_the_time_of_now(world, client):
    topic = world.topic()
    before = time.time_ns() // 1000
    client.publish(topic, b"x")
    after = time.time_ns() // 1000
    with client.subscribe(topic) as messages:
        assert before <= messages.receive(20).timestamp <= after


def test_an_empty_key_is_a_key_and_none_is_not(world, client):
    topic = world.topic()
    client.publish(topic, b"", key=b"")
    client.publish(topic, b"")
    with client.subscribe(topic) as messages:
        assert [(m.value, m.key) for m in take(messages, 2)] == [(b"", b""), (b"", None)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_values_may_be_any_buffer_and_are_copied(world, client, kind):
    topic = world.topic()
    data = bytearray(b"value")
    with client.producer(topic, linger=60) as producer:
        producer.send(kind(data), key=kind(b"key"))
        data[:] = b"later"  # what was sent is not touched by what its owner does next
    with client.subscribe(topic) as messages:
        message = messages.receive(20)
    assert message.key == b"key"
    assert message.value == b"value"


def test_20_mib(world, client):
    topic = world.topic()
    large = noise(20 << 20)
    assert client.publish(topic, large).offset == 0
    with client.subscribe(topic) as messages:
        assert messages.receive(30).value == large
    client.delete_topic(topic)


def test_what_is_too_large_is_refused_and_nothing_is_stored(world, client):
    topic = world.topic()
    for message in (
        {"value": bytes(MESSAGE_BYTES_MAX)},
        {"value": b"x", "key": bytes(MESSAGE_BYTES_MAX)},
        {"value": b"x", "headers": {"h": bytes(MESSAGE_BYTES_MAX)}},
    ):
        with pytest.raises(errors.MessageTooLarge, match=str(MESSAGE_BYTES_MAX)) as caught:
            client.publish(topic, **message)
        assert caught.value.may_have_happened is False
    assert client.publish(topic, b"next").offset == 0


def test_many_at_once_each_have_the_position_they_were_told(world, client):
    topic = world.topic(3)
    calls = [((topic, b"%d" % number), {"key": b"%d" % number}) for number in range(MANY)]
    positions = world.together("publish", calls)
    assert len(set(positions)) == MANY
    told = {(p.partition, p.offset): b"%d" % number for number, p in enumerate(positions)}
    with client.subscribe(topic) as messages:
        found = {(m.partition, m.offset): m.value for m in take(messages, MANY)}
    assert found == told
    for number, position in enumerate(positions):
        assert position.partition == partition_of(b"%d" % number, 3)


def test_one_bad_publish_among_many_fails_alone(world, client):
    topic = world.topic()
    calls = [((topic, b"%d" % number), {}) for number in range(200)]
    missing = world.name()

    def publish_to_nowhere() -> None:
        with pytest.raises(errors.UnknownTopic):
            client.publish(missing, b"x")
        with pytest.raises(errors.UnknownPartition):
            client.publish(topic, b"x", partition=7)

    publish_to_nowhere()
    positions = world.together("publish", calls)
    publish_to_nowhere()
    assert sorted(p.offset for p in positions) == list(range(200))
    assert client.describe(topic).partitions[0].end == 200


def test_one_after_the_other_stay_in_order(world, client):
    topic = world.topic()
    for number in range(50):
        client.publish(topic, b"%d" % number)
    with client.subscribe(topic) as messages:
        assert values(take(messages, 50)) == [b"%d" % number for number in range(50)]


def test_memory_durability_acknowledges_and_delivers_too(world, client):
    topic = world.topic(2, durability="memory")
    calls = [((topic, b"%d" % number), {"partition": number % 2}) for number in range(100)]
    assert len(set(world.together("publish", calls))) == 100
    with client.subscribe(topic, index="i") as messages:
        found = take(messages, 100)
        assert set(values(found)) == {b"%d" % number for number in range(100)}
        for message in found:
            message.ack()
        messages.commit()
    assert client.lag(topic, "i") == 0
