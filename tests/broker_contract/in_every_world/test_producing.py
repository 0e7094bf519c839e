"""Streams of messages: order, windows, futures, callbacks, columns, the end."""

from __future__ import annotations

import threading

import pytest

from hocket import errors
from hocket.model import partition_of
from tests.support.brokers.every_world import in_parallel, take, values
from tests.support.threads import noise, until


def end_of(client, topic: str, partition: int = 0) -> int:
    return client.describe(topic).partitions[partition].end


def test_order_holds_within_each_partition_over_many_batches(world, client):
    topic = world.topic(3)
    with client.producer(topic, batch_bytes=500, linger=0) as producer:
        for number in range(600):
            producer.send(b"%d" % number, key=b"%d" % (number % 9))
    last = {}
    with client.subscribe(topic) as messages:
        for message in take(messages, 600):
            assert partition_of(message.key, 3) == message.partition
            assert last.get(message.key, -1) < int(message.value)
            last[message.key] = int(message.value)


def test_without_keys_batches_go_round_the_partitions(world, client):
    topic = world.topic(4)
    with client.producer(topic, linger=60) as producer:
        for _ in range(8):
            producer.send_many([b"x"] * 10)
            producer.flush()
    assert [each.end for each in client.describe(topic).partitions] == [20] * 4


@pytest.mark.parametrize("way", ["send", "send_many", "send_arrow", "publish"])
def test_many_small_messages_without_keys_are_spread(world, client, way):
    topic = world.topic(4)
    if way == "publish":
        world.together("publish", [((topic, b"small"), {})] * 2000)
    else:
        with client.producer(topic) as producer:
            if way == "send":
                world.send_all(producer, [b"small"] * 10_000)
            elif way == "send_many":
                producer.send_many([b"small"] * 10_000)
            else:
                pyarrow = pytest.importorskip("pyarrow")
                producer.send_arrow(pyarrow.record_batch({"value": [b"small"] * 10_000}))
    found = [each.end for each in client.describe(topic).partitions]
    assert sum(found) == (2000 if way == "publish" else 10_000)
    assert min(found) > sum(found) // 20  # how exactly is shown where time is the test's


def test_usual_sends_take_the_short_way(world, client, monkeypatch):
    """Values, with and without a key: nothing is checked twice, and nothing waits."""
    topic = world.topic(3)
    with client.producer(topic, linger=60) as producer:
        face = getattr(producer, "inner", producer)
        with monkeypatch.context() as patch:
            patch.setattr(face, "_send", None)
            for number in range(30):
                producer.send(b"%d" % number, b"key %d" % (number % 5))
                producer.send(b"%d" % number)
        producer.send(b"other", bytearray(b"key 0"))  # not a usual one
    with client.subscribe(topic) as messages:
        found = take(messages, 61)
    by_key: dict[bytes | None, list[bytes]] = {}
    for message in found:
        by_key.setdefault(message.key, []).append(message.value)
    for number in range(5):
        sent = [b"%d" % each for each in range(number, 30, 5)]
        assert by_key[b"key %d" % number] == sent + [b"other"] * (number == 0)
    assert len({message.partition for message in found if message.key == b"key 0"}) == 1
    assert by_key[None] == [b"%d" % number for number in range(30)]


def test_send_many_with_keys_and_headers(world, client):
    topic = world.topic(2)
    count = 300
    keys = [None if number % 5 == 0 else b"%d" % number for number in range(count)]
    headers = [{"n": b"%d" % number} for number in range(count)]
    with client.producer(topic, batch_bytes=2000) as producer:
        producer.send_many([b"%d" % number for number in range(count)], keys, headers)
    with client.subscribe(topic) as messages:
        found = {int(m.value): m for m in take(messages, count)}
    assert len(found) == count
    for number, message in found.items():
        assert message.key == keys[number]
        assert message.headers == headers[number]


def test_send_many_takes_all_or_nothing(world, client):
    topic = world.topic()
    with client.producer(topic) as producer:
        with pytest.raises(errors.WrongType, match=r"values\[2\]"):
            producer.send_many([b"0", b"1", "2"])
        with pytest.raises(errors.OutOfRange):
            producer.send_many([b"0", b"1"], keys=[b"0"])
        with pytest.raises(errors.WrongType):
            producer.send_many(b"0123")
    assert end_of(client, topic) == 0


def test_arrow_goes_in_and_comes_out(world, client):
    pyarrow = pytest.importorskip("pyarrow")
    topic = world.topic(2)
    count = 200
    keys = [b"%d" % number for number in range(count)]
    rows = pyarrow.record_batch(
        {
            "key": pyarrow.array(keys, pyarrow.binary()),
            "value": pyarrow.array([b"v%d" % number for number in range(count)], pyarrow.binary()),
        }
    )
    with client.producer(topic) as producer:
        producer.send_arrow(rows)
    found = {}
    with client.subscribe(topic) as messages:
        while len(found) < count:
            batch = messages.receive_batch(20)
            for row in batch.to_arrow().to_pylist():
                assert row["topic"] == topic
                assert row["partition"] == partition_of(row["key"], 2)
                found[row["key"]] = row["value"]
    assert found == {key: b"v" + key for key in keys}


def test_arrow_goes_to_the_partition_that_is_named(world, client):
    pyarrow = pytest.importorskip("pyarrow")
    topic = world.topic(3)
    rows = pyarrow.record_batch({"key": [b"a", b"b", None], "value": [b"0", b"1", b"2"]})
    with client.producer(topic) as producer:
        producer.send_arrow(rows, partition=2)
        with pytest.raises(errors.UnknownPartition, match="partitions 0 to 2, and no 3"):
            producer.send_arrow(rows, partition=3)
        producer.send_arrow(rows.select(["value"]), partition=2)
    assert [each.end for each in client.describe(topic).partitions] == [0, 0, 6]
    with client.subscribe(topic, partitions=[2]) as messages:
        found = take(messages, 6)
    assert [message.key for message in found] == [b"a", b"b", None, None, None, None]
    assert values(found) == [b"0", b"1", b"2"] * 2


def test_of_arrow_with_a_wrong_row_nothing_is_taken(world, client):
    pyarrow = pytest.importorskip("pyarrow")
    topic = world.topic(2)
    rows = pyarrow.record_batch(
        {"key": [b"%d" % n for n in range(9)], "value": [b"v"] * 8 + [None]}
    )
    with (
        client.producer(topic) as producer,
        pytest.raises(errors.WrongType, match="value may not have nulls; row 8 has one"),
    ):
        producer.send_arrow(rows)
    assert [each.end for each in client.describe(topic).partitions] == [0, 0]


def test_futures_have_the_position_of_their_message(world, client):
    topic = world.topic(2)
    with client.producer(topic) as producer:
        futures = [producer.send_future(b"%d" % n, partition=n % 2) for n in range(100)]
        producer.flush()
        positions = [future.result(20) for future in futures]
    assert [(p.partition, p.offset) for p in positions] == [(n % 2, n // 2) for n in range(100)]


def test_on_delivery_hears_of_every_message_once(world, client):
    topic = world.topic()
    told = []
    with client.producer(topic, batch_bytes=300, on_delivery=told.append) as producer:
        for number in range(200):
            producer.send(b"%d" % number)
        producer.flush()
    until(lambda: sum(each.end - each.start for each in told) == 200)
    assert [offset for each in told for offset in range(each.start, each.end)] == list(range(200))
    assert {(each.topic, each.partition) for each in told} == {(topic, 0)}


def test_flush_returns_when_all_is_readable(world, client):
    topic = world.topic()
    with client.producer(topic, linger=60) as producer:
        for round_number in range(1, 6):
            producer.send_many([b"x"] * 7)
            producer.flush(20)
            assert end_of(client, topic) == 7 * round_number
        producer.flush(20)  # with nothing to do


def test_linger_sends_by_itself(world, client):
    topic = world.topic()
    with client.producer(topic, linger=0.001) as producer:
        producer.send(b"x")
        until(lambda: end_of(client, topic) == 1)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_codecs_give_back_what_they_took(world, client, codec):
    topic = world.topic()
    sent = [b"again and again " * 40, b"", noise(5000, codec)] * 20
    with client.producer(topic, codec=codec) as producer:
        producer.send_many(sent)
    with client.subscribe(topic) as messages:
        assert values(take(messages, len(sent))) == sent


def test_compression_saves_space(world, client):
    plain, packed = world.topic(), world.topic()
    for topic, codec in ((plain, "none"), (packed, "zstd")):
        with client.producer(topic, codec=codec) as producer:
            producer.send_many([b"again and again " * 100] * 100)
    sizes = [client.describe(topic).partitions[0].memory_bytes for topic in (plain, packed)]
    assert sizes[1] * 10 < sizes[0]


def test_a_small_window_slows_down_and_loses_nothing(world, client):
    topic = world.topic()
    with client.producer(topic, window_bytes=2000, batch_bytes=500, linger=0) as producer:
        for number in range(1000):
            producer.send(b"%d" % number + bytes(50))
    assert end_of(client, topic) == 1000
    with client.subscribe(topic) as messages:
        assert [int(v.rstrip(b"\0")) for v in values(take(messages, 1000))] == list(range(1000))


def test_a_message_larger_than_window_and_batch_passes(world, client):
    topic = world.topic()
    large = noise(200_000)
    with client.producer(topic, window_bytes=1000, batch_bytes=100) as producer:
        producer.send(b"before")
        producer.send(large)
        producer.send(b"after")
    with client.subscribe(topic) as messages:
        assert values(take(messages, 3)) == [b"before", large, b"after"]


def test_what_is_too_large_harms_no_other_message(world, client):
    topic = world.topic()
    with client.producer(topic, linger=60) as producer:
        producer.send(b"before")
        with pytest.raises(errors.MessageTooLarge):
            producer.send(bytes(64 << 20))
        producer.send(b"after")
    with client.subscribe(topic) as messages:
        assert values(take(messages, 2)) == [b"before", b"after"]


def test_threads_share_a_producer(world, client):
    topic = world.topic()
    with client.producer(topic, batch_bytes=1000) as producer:

        def send(thread: int) -> None:
            for number in range(100):
                producer.send(b"%d:%d" % (thread, number))

        in_parallel([lambda thread=thread: send(thread) for thread in range(8)])
    with client.subscribe(topic) as messages:
        found = [tuple(map(int, value.split(b":"))) for value in values(take(messages, 800))]
    for thread in range(8):
        assert [n for t, n in found if t == thread] == list(range(100))


def test_close_delivers_and_then_nothing_is_taken(world, client):
    topic = world.topic()
    producer = client.producer(topic, linger=60)
    producer.send(b"x")
    producer.close()
    assert end_of(client, topic) == 1
    for late in (
        lambda: producer.send(b"y"),
        lambda: producer.send(b"y", key=b"k"),
        lambda: producer.send_many([b"y"]),
        lambda: producer.send_future(b"y"),
    ):
        with pytest.raises(errors.Closed):
            late()
    producer.close()
    assert end_of(client, topic) == 1


def test_a_callback_that_raises_stops_nothing(world, client, caplog):
    topic = world.topic()
    called = threading.Event()

    def fail(_outcome: object) -> None:
        called.set()
        raise RuntimeError("on purpose")

    with client.producer(topic, on_delivery=fail) as producer:
        producer.send(b"x")
        producer.flush()
        assert called.wait(20)
        producer.send(b"y")
    assert end_of(client, topic) == 2
    until(lambda: "on purpose" in caplog.text)
