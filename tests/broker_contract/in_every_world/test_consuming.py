"""Reading: where it begins, what it hands out, how it waits and how it ends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hocket import errors
from hocket.model import SECOND_US
from tests.support.brokers.every_world import take, values
from tests.support.threads import Running, noise, until


def filled(world, count: int = 10, partitions: int = 1, **config) -> str:
    """A topic whose message number n is b"n", made n seconds after the epoch.

    So old that it must be kept for ever: retention goes by the producer's time.
    """
    topic = world.topic(partitions, disk_retention="forever", **config)
    with world.client.producer(topic) as producer:
        for number in range(count):
            producer.send(
                b"%d" % number, timestamp=number * SECOND_US, partition=number % partitions
            )
    return topic


def numbers(messages) -> list[int]:
    return [int(message.value) for message in messages]


# --- where it begins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        (4, 4),
        ("4", 4),
        (datetime.fromtimestamp(6, UTC), 6),
        (datetime.fromtimestamp(5.5, UTC), 6),
        ("1970-01-01T00:00:07+00:00", 7),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
    ],
)
@pytest.mark.parametrize("index", [None, "i"])
def test_it_begins_at_start(world, client, start, first, index):
    topic = world.topic(disk_retention="forever")
    for number in range(10):  # each in a batch of its own
        client.publish(topic, b"%d" % number, timestamp=number * SECOND_US)
    assert client.find_offsets(topic, start) == [first]
    with client.subscribe(topic, index=index, start=start) as messages:
        assert numbers(take(messages, 10 - first)) == list(range(first, 10))


def test_a_time_means_the_first_record_of_that_time_or_later(world, client):
    """So says the protocol (`StartKind.time`), and it does not speak of batches."""
    topic = world.topic(disk_retention="forever")
    with client.producer(topic, linger=60) as producer:
        for number in range(10):
            producer.send(b"%d" % number, timestamp=number * SECOND_US)
    assert client.find_offsets(topic, datetime.fromtimestamp(6, UTC)) == [6]


@pytest.mark.parametrize("start", ["latest", 10, datetime(2100, 1, 1, tzinfo=UTC)])
def test_it_begins_at_the_end_and_sees_what_comes(world, client, start):
    topic = filled(world)
    with client.subscribe(topic, index="i", start=start) as messages:
        with pytest.raises(errors.WouldBlock):
            messages.receive_nowait()
        client.publish(topic, b"10")
        assert numbers(take(messages, 1)) == [10]


def test_a_start_beyond_the_end_is_refused_and_makes_no_index(world, client):
    topic = filled(world)
    with pytest.raises(errors.OutOfRange, match="11"):
        client.subscribe(topic, index="i", start=11)
    assert client.indexes(topic) == []


def test_given_positions_and_partitions(world, client):
    topic = filled(world, 12, partitions=3)
    with client.subscribe(topic, positions={0: 2, 1: 4}, partitions=[0, 1]) as messages:
        assert messages.partitions == [0, 1]
        assert numbers(take(messages, 2)) == [6, 9]
        with pytest.raises(errors.Timeout):
            messages.receive(0.1)


def test_partitions_are_each_in_order_and_none_starves(world, client):
    topic = filled(world, 400, partitions=4)
    with client.subscribe(topic) as messages:
        found = take(messages, 400)
    for partition in range(4):
        offsets = [m.offset for m in found if m.partition == partition]
        assert offsets == list(range(100))


# --- waiting ---------------------------------------------------------------------------------


def test_a_timeout_raises_and_harms_nothing(world, client):
    topic = world.topic()
    with client.subscribe(topic) as messages:
        for timeout in (0, 0.05):
            with pytest.raises(errors.Timeout, match=topic):
                messages.receive(timeout)
            with pytest.raises(errors.Timeout):
                messages.receive_batch(timeout)
        client.publish(topic, b"x")
        assert messages.receive(20).value == b"x"


def test_a_message_that_is_here_is_received_the_short_way(world, client, monkeypatch):
    topic = world.topic()
    with client.producer(topic) as producer:
        producer.send_many([b"0", b"1", b"2"])  # they are stored, and come, together
    with client.subscribe(topic) as messages:
        assert messages.receive(20).value == b"0"
        face = getattr(messages, "inner", messages)
        with monkeypatch.context() as patch:
            patch.setattr(face, "_engine", None)
            assert values(take(messages, 2)) == [b"1", b"2"]


def test_whoever_waits_is_woken_by_a_message(world, client):
    topic = world.topic()
    with client.subscribe(topic) as messages, Running(messages.receive, 20) as waiting:
        client.publish(topic, b"x")
        assert waiting.result().value == b"x"


def test_receive_nowait(world, client):
    topic = world.topic()
    with client.subscribe(topic) as messages:
        with pytest.raises(errors.WouldBlock):
            messages.receive_nowait()
        client.publish(topic, b"x")

        def received():
            try:
                return messages.receive_nowait()
            except errors.WouldBlock:
                return None

        assert until(received).value == b"x"


def test_iteration_ends_when_another_thread_closes(world, client):
    topic = filled(world, 3)
    messages = client.subscribe(topic)
    found = []

    def read() -> None:
        found.extend(message.value for message in messages)

    with Running(read) as reading:
        until(lambda: messages.position(0) == 3)
        messages.close()
        reading.result()
    assert found == [b"0", b"1", b"2"]


def test_batches_end_when_another_thread_closes(world, client):
    messages = client.subscribe(filled(world, 3))
    found = []

    def read() -> None:
        found.extend(number for batch in messages.batches() for number in batch.values())

    with Running(read) as reading:
        until(lambda: messages.position(0) == 3)
        messages.close()
        reading.result()
    assert found == [b"0", b"1", b"2"]


def test_after_close_everything_says_closed(world, client):
    messages = client.subscribe(filled(world), index="i")
    messages.close()
    messages.close()
    for late in (
        lambda: messages.receive(1),
        messages.receive_nowait,
        lambda: messages.receive_batch(1),
        lambda: messages.seek(0, 0),
        messages.commit,
    ):
        with pytest.raises(errors.Closed):
            late()
    assert list(messages) == []


def test_leaving_a_loop_loses_no_message(world, client):
    with client.subscribe(filled(world)) as messages:
        found = []
        for message in messages:
            found.append(int(message.value))
            if len(found) == 3:
                break
        assert messages.position(0) == 3
        assert found + numbers(take(messages, 7)) == list(range(10))


# --- batches ---------------------------------------------------------------------------------


def test_batches_are_columns_of_the_same_messages(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        found = []
        while len(found) < 10:
            batch = messages.receive_batch(20)
            assert (batch.topic, batch.partition, batch.offset) == (topic, 0, len(found))
            assert batch.end - batch.offset == batch.count == len(batch)
            assert batch.values() == values(batch.messages())
            assert batch.keys() == [None] * batch.count
            assert [m.offset for m in batch.messages()] == list(range(batch.offset, batch.end))
            found += batch.values()
            batch.ack()
        messages.commit()
    assert found == [b"%d" % number for number in range(10)]
    assert client.lag(topic, "i") == 0


def test_small_batches_come_as_one_if_they_are_here(world, client):
    topic = world.topic()
    for number in range(10):
        client.publish(topic, b"%d" % number, key=b"k" if number % 2 else None)
    with client.subscribe(topic, index="i") as messages:
        first = messages.receive(20)
        found = [first.value]
        while len(found) < 10:
            batch = messages.receive_batch(20, merge=True)
            assert batch.offset == len(found)
            assert batch.keys() == [
                b"k" if at % 2 else None for at in range(batch.offset, batch.end)
            ]
            assert values(batch.messages()) == batch.values()
            found += batch.values()
            batch.ack()
        messages.commit()
    assert found == [b"%d" % number for number in range(10)]
    assert client.lag(topic, "i") == 0


def test_a_batch_begins_behind_the_messages_already_taken(world, client):
    topic = world.topic()
    with client.producer(topic, linger=60) as producer:
        producer.send_many([b"%d" % number for number in range(10)])
    with client.subscribe(topic, start=2) as messages:
        assert numbers(take(messages, 1)) == [2]
        batch = messages.receive_batch(20)
    assert (batch.offset, batch.end) == (3, 10)
    assert batch.values() == [b"%d" % number for number in range(3, 10)]


def test_a_batch_becomes_a_table(world, client):
    pytest.importorskip("pandas")
    topic = world.topic()
    client.publish(topic, b"v", key=b"k", headers={"h": b"1"}, timestamp=5)
    with client.subscribe(topic) as messages:
        batch = messages.receive_batch(20)
    (row,) = batch.to_arrow().to_pylist()
    assert (row["key"], row["value"], row["topic"]) == (b"k", b"v", topic)
    assert (row["partition"], row["offset"]) == (0, 0)
    assert row["timestamp"] == datetime.fromtimestamp(5e-6, UTC)
    assert "headers" not in row
    assert "headers" in batch.to_arrow(headers=True).schema.names
    some = batch.to_arrow(columns=["offset", "value"])
    assert some.schema.names == ["offset", "value"]
    assert some.to_pylist() == [{"offset": 0, "value": b"v"}]
    with pytest.raises(errors.OutOfRange, match="got value, size"):
        batch.to_arrow(columns=["value", "size"])
    assert list(batch.to_pandas(columns=["key"])["key"]) == [b"k"]
    table = batch.to_pandas()
    assert len(table) == 1
    assert table["value"][0] == b"v"


# --- flow ------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 1000])
def test_messages_larger_than_the_credit_arrive(world, client, credit):
    topic = world.topic(2)
    sent = [noise(50_000, number) for number in range(6)]
    for number, value in enumerate(sent):
        client.publish(topic, value, partition=number % 2)
    with client.subscribe(topic, credit_bytes=credit) as messages:
        assert sorted(values(take(messages, 6))) == sorted(sent)


def test_reading_without_acknowledging_never_stalls(world, client):
    topic = filled(world, 600)
    with client.subscribe(topic, index="i", credit_bytes=500) as messages:
        assert numbers(take(messages, 600)) == list(range(600))
    assert client.lag(topic, "i") == 600


def test_a_slow_consumer_blocks_nobody(world, client):
    topic = world.topic()
    with (
        client.subscribe(topic, credit_bytes=100) as slow,
        client.subscribe(topic) as quick,
        client.producer(topic, batch_bytes=1000) as producer,
    ):
        for _ in range(5):
            producer.send_many([bytes(100)] * 100)
            producer.flush(20)
            take(quick, 100)
        assert len(take(slow, 500)) == 500


def test_lag_counts_what_was_not_handed_out(world, client):
    with client.subscribe(filled(world)) as messages:
        take(messages, 4)
        until(lambda: messages.lag == 6)
        take(messages, 6)
        assert messages.lag == 0


def test_messages_of_an_own_index_cannot_be_given_back(world, client):
    with client.subscribe(filled(world), index="i") as messages:
        message = messages.receive(20)
        for call in (message.nack, message.extend, message.reject):
            with pytest.raises(errors.WrongKind, match="shared"):
                call()
