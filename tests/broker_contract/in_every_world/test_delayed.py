"""Delayed messages: nobody sees them before they are due, and then everybody does, in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hocket import errors
from hocket.client_core.producing.outgoing import Positions
from hocket.model import Position, partition_of, timestamp_us
from tests.support.brokers.every_world import only, take, values
from tests.support.threads import until


def delayed(world, partitions: int = 1, **config) -> str:
    return world.topic(partitions, delayed=True, **config)


def waiting(client, topic: str) -> list[int]:
    return [each.waiting for each in client.describe(topic).partitions]


def test_messages_come_in_the_order_in_which_they_are_due_and_not_before(world, client):
    topic = delayed(world)
    assert client.publish(topic, b"0").offset == 0, "this one is not delayed"
    begun = datetime.now(timezone(timedelta(hours=5)))

    def publish(value: bytes, milliseconds: int, **more) -> Position:
        at = begun + timedelta(milliseconds=milliseconds)
        return client.publish(topic, value, deliver_at=at, **more)

    assert publish(b"2", 700) == Position(topic, 0, -1)
    publish(b"3", 700)
    publish(b"1", 600, key=b"k", headers={"h": b"x"})
    client.publish(topic, b"4", delay=timedelta(milliseconds=800))
    client.publish(topic, b"5", delay=3600)
    are_all_in_time = datetime.now(UTC) < begun + timedelta(milliseconds=600)
    with client.subscribe(topic) as messages:
        found = take(messages, 5)
    assert datetime.now(UTC) >= begun + timedelta(milliseconds=800)
    assert [each.offset for each in found] == [0, 1, 2, 3, 4]
    if are_all_in_time:  # else one was gone before the next one came
        assert values(found) == [b"0", b"1", b"2", b"3", b"4"]
    found.sort(key=lambda each: each.value)
    assert values(found) == [b"0", b"1", b"2", b"3", b"4"]
    assert (found[1].key, found[1].headers) == (b"k", {"h": b"x"})
    due = begun + timedelta(milliseconds=700)
    assert found[2].timestamp == timestamp_us(due), "the time at which it was due"
    until(lambda: waiting(client, topic) == [1], what="only one waits")


def test_a_time_that_has_passed_is_now(world, client):
    topic = delayed(world)
    client.publish(topic, b"a", deliver_at=datetime(1999, 1, 1, tzinfo=UTC))
    client.publish(topic, b"b", delay=0)
    with client.subscribe(topic) as messages:
        assert values(take(messages, 2)) == [b"a", b"b"]


def test_a_producer_delays_some_of_its_messages(world, client):
    topic, outcomes = delayed(world), []
    with client.producer(topic, on_delivery=outcomes.append, codec="lz4") as producer:
        producer.send(b"now")
        producer.flush()
        producer.send_many([b"x" * 5000, b"y"], delay="300ms")
        future = producer.send_future(b"z", delay="300ms")
        producer.send(b"later", delay=0.4)
        producer.send(b"never", deliver_at=datetime.now(UTC) + timedelta(days=300))
        producer.flush()
        assert future.result(timeout=10) == Position(topic, 0, -1)
    assert all(isinstance(outcome, Positions) for outcome in outcomes)
    assert sum(outcome.end - outcome.start for outcome in outcomes) == 6
    assert {outcome.delayed for outcome in outcomes} == {False, True}
    with client.subscribe(topic) as messages:
        assert values(take(messages, 5)) == [b"now", b"x" * 5000, b"y", b"z", b"later"]


def test_a_delayed_message_goes_to_the_partition_of_its_key(world, client):
    topic = delayed(world, 4)
    for number in range(12):
        client.publish(topic, b"%d" % number, key=b"%d" % number, delay=0.1)
    client.publish(topic, b"there", partition=3, delay=0.1)
    with client.subscribe(topic) as messages:
        found = take(messages, 13)
    for each in found:
        assert each.partition == (partition_of(each.key, 4) if each.key else 3)
    until(lambda: waiting(client, topic) == [0, 0, 0, 0], what="nothing waits any more")


def test_a_topic_in_memory_delays_as_well(world, client):
    topic = delayed(world, durability="memory")
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(2_000)], delay="100ms")
    with client.subscribe(topic) as messages:
        assert values(take(messages, 2_000)) == [b"%d" % number for number in range(2_000)]


def test_a_topic_takes_delayed_messages_only_if_it_was_told_so(world, client):
    topic = world.topic(replication=1)
    with pytest.raises(errors.WrongKind, match="alter_topic"):
        client.publish(topic, b"x", delay=1)
    with client.producer(topic) as producer:
        with pytest.raises(errors.WrongKind, match="--delayed"):
            producer.send(b"x", delay=1)
        producer.send(b"not delayed")
        client.alter_topic(topic, delayed=True)
        producer.send(b"delayed", delay=0.1)
    assert client.describe(topic).config.delayed
    with client.subscribe(topic) as messages:
        assert values(take(messages, 2)) == [b"not delayed", b"delayed"]
    with pytest.raises(errors.OutOfRange, match="goes on taking them"):
        client.alter_topic(topic, delayed=False)
    with pytest.raises(errors.WrongType):
        client.alter_topic(topic, delayed="yes")


def test_a_transaction_refuses_to_delay(world, client):
    topic = delayed(world)
    with client.transaction(world.name()) as transaction:
        for when in ({"delay": 1}, {"deliver_at": datetime.now(UTC)}):
            with pytest.raises(errors.WrongKind, match="publish them when it is committed"):
                transaction.send(topic, b"x", **when)
        transaction.send(topic, b"y")
    with client.subscribe(topic) as messages:
        assert values(take(messages, 1)) == [b"y"]


def test_what_makes_no_sense_is_refused_before_it_is_sent(world, client):
    topic = delayed(world)
    cases = [
        ({"delay": -1}, errors.OutOfRange, "0 or more"),
        ({"delay": float("nan")}, errors.OutOfRange, "0 or more"),
        ({"delay": "soon"}, errors.OutOfRange, "must look like"),
        ({"delay": timedelta(seconds=-1)}, errors.OutOfRange, "0 or more"),
        ({"delay": "367d"}, errors.OutOfRange, "366d at most"),
        ({"delay": [1]}, errors.WrongType, "not list"),
        ({"delay": True}, errors.WrongType, "seconds"),
        ({"deliver_at": datetime(2030, 1, 1)}, errors.OutOfRange, "time zone"),
        ({"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)}, errors.OutOfRange, "366d at most"),
        ({"deliver_at": 1.5}, errors.WrongType, "datetime"),
        ({"delay": 1, "deliver_at": datetime.now(UTC)}, errors.OutOfRange, "not both"),
        ({"delay": 1, "timestamp": 5}, errors.OutOfRange, "leave timestamp out"),
    ]
    with client.producer(topic) as producer:
        for options, error, words in cases:
            with pytest.raises(error, match=words):
                client.publish(topic, b"x", **options)
            with pytest.raises(error, match=words):
                producer.send(b"x", **options)
        with pytest.raises(errors.WrongType):
            producer.send("text", delay=1)
    assert waiting(client, topic) == [0]


def test_a_deleted_topic_takes_what_waits_along(world, client):
    topic = delayed(world)
    client.publish(topic, b"x", delay="300ms")
    client.delete_topic(topic)
    client.create_topic(topic, delayed=True)
    assert waiting(client, topic) == [0]
    client.publish(topic, b"y", delay="400ms")
    with client.subscribe(topic) as messages:
        assert values(take(messages, 1)) == [b"y"]


def test_a_shared_index_gets_them_like_any_other(world, client):
    topic = delayed(world)
    with client.subscribe(topic, index="workers", mode="shared") as workers:
        client.publish(topic, b"x", delay="100ms")
        (message,) = take(workers, 1)
        message.ack()
    assert client.lag(topic, "workers") == 0


@only("embedded", "cluster")
def test_what_waits_outlives_the_broker(world, tmp_path):
    with world.life(tmp_path / "data") as client:
        client.create_topic("t", delayed=True)
        for number in range(3):
            client.publish("t", b"%d" % number, delay="100ms")
        client.publish("t", b"later", delay="1h")
    with world.life(tmp_path / "data") as client, client.subscribe("t") as messages:
        assert values(take(messages, 3)) == [b"0", b"1", b"2"]
        until(lambda: waiting(client, "t") == [1], what="only one waits")
