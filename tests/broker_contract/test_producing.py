from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from hocket.client.lane import Positions
from hocket.errors import (
    Closed,
    MessageTooLarge,
    UnknownPartition,
    UnknownTopic,
    WrongType,
)
from hocket.model import MESSAGE_BYTES_MAX, Position, partition_of
from tests.broker_contract.worlds import new_name
from tests.support import Running, noise, until


def read_all(client, topic):
    """All that is in a topic now, by partition."""
    described = client.describe(topic)
    wanted = sum(each.end - each.start for each in described.partitions)
    found = {each.partition: [] for each in described.partitions}
    with client.subscribe(topic) as sub:
        for _ in range(wanted):
            message = sub.receive(timeout=20)
            found[message.partition].append(message)
    return found


def values(client, topic):
    return [message.value for messages in read_all(client, topic).values() for message in messages]


# --- publish -------------------------------------------------------------------------------------


def test_a_publish_tells_where_the_message_stands(client, topic):
    assert client.publish(topic, b"first") == Position(topic, 0, 0)
    position = client.publish(
        topic, bytearray(b"second"), key=memoryview(b"key"), headers={"a": b"1", "b": None},
        timestamp=1_000_000, timeout=5,
    )  # fmt: skip
    assert position == Position(topic, 0, 1)
    first, second = read_all(client, topic)[0]
    assert (first.value, first.key, first.headers) == (b"first", None, {})
    assert abs(first.timestamp - second.time.timestamp()) > 1e6
    assert (second.value, second.key) == (b"second", b"key")
    assert second.headers == {"a": b"1", "b": None}
    assert second.timestamp == 1_000_000


def test_keys_decide_the_partition(client, wide):
    for n in range(40):
        key = b"key %d" % n
        assert client.publish(wide, b"", key=key).partition == partition_of(key, 4)


def test_without_a_key_messages_are_spread(client, wide):
    used = {client.publish(wide, b"%d" % n).partition for n in range(8)}
    assert used == {0, 1, 2, 3}


def test_empty_and_odd_messages(client, topic):
    odd = [b"", b"\0", bytes(range(256)), noise(100_000)]
    for value in odd:
        client.publish(topic, value, key=b"", headers={"": b"", "\N{SNOWMAN}": None})
    found = read_all(client, topic)[0]
    assert [message.value for message in found] == odd
    assert all(message.key == b"" for message in found)
    assert all(message.headers == {"": b"", "\N{SNOWMAN}": None} for message in found)


def test_a_large_message(client, topic):
    large = noise(20 << 20)
    client.publish(topic, b"before")
    client.publish(topic, large)
    with client.producer(topic) as producer:
        producer.send(large)
        producer.send(b"after")
    assert values(client, topic) == [b"before", large, large, b"after"]


def test_a_message_that_is_too_large_is_refused_and_nothing_is_lost(client, topic):
    too_large = bytes(MESSAGE_BYTES_MAX + 1)
    with pytest.raises(MessageTooLarge):
        client.publish(topic, too_large)
    with client.producer(topic) as producer:
        producer.send(b"before")
        with pytest.raises(MessageTooLarge):
            producer.send(too_large)
        with pytest.raises(MessageTooLarge):
            producer.send_many([b"not", too_large, b"taken"])
        producer.send(b"after")
    assert values(client, topic) == [b"before", b"after"]


def test_publishes_of_many_threads(client, wide):
    def publish(thread):
        return [client.publish(wide, b"%d/%d" % (thread, n)) for n in range(20)]

    with ExitStack() as stack:
        running = [stack.enter_context(Running(publish, thread)) for thread in range(8)]
        positions = [position for each in running for position in each.result()]
    assert len(set(positions)) == 160
    found = read_all(client, wide)
    assert sum(map(len, found.values())) == 160
    expected = {b"%d/%d" % (thread, n) for thread in range(8) for n in range(20)}
    assert {m.value for messages in found.values() for m in messages} == expected


# --- producers -----------------------------------------------------------------------------------


def test_a_producer_keeps_order(client, topic):
    with client.producer(topic) as producer:
        for n in range(5000):
            producer.send(b"%d" % n)
    assert values(client, topic) == [b"%d" % n for n in range(5000)]


def test_messages_of_a_key_keep_their_order_in_one_partition(client, wide):
    with client.producer(wide, batch_bytes=2000) as producer:
        for n in range(2000):
            producer.send(b"%d" % n, b"key %d" % (n % 7))
    for partition, messages in read_all(client, wide).items():
        for message in messages:
            assert partition_of(message.key, 4) == partition
        for key in {message.key for message in messages}:
            numbers = [int(message.value) for message in messages if message.key == key]
            assert numbers == sorted(numbers)
            assert len(numbers) in (285, 286)


@pytest.mark.parametrize("linger", [0, 0.001, 0.05])
def test_linger(client, topic, linger):
    with client.producer(topic, linger=linger) as producer:
        for n in range(50):
            producer.send(b"%d" % n)
            if n % 10 == 0:
                producer.flush(timeout=10)
                assert client.describe(topic).partitions[0].end == n + 1
    assert values(client, topic) == [b"%d" % n for n in range(50)]


def test_what_is_sent_arrives_without_flush(client, topic):
    with client.producer(topic, linger=0.001) as producer:
        producer.send(b"by itself")
        until(lambda: client.describe(topic).partitions[0].end == 1)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_codecs(client, topic, codec):
    sent = [b"compressible " * 20 + b"%d" % n for n in range(1000)]
    with client.producer(topic, codec=codec) as producer:
        producer.send_many(sent)
    assert values(client, topic) == sent


def test_everything_a_message_can_carry(client, wide):
    with client.producer(wide) as producer:
        producer.send(b"v", key=b"k", headers=[("h", b"1"), ("g", None)], timestamp=0, partition=3)
    (message,) = read_all(client, wide)[3]
    assert (message.value, message.key, message.timestamp) == (b"v", b"k", 0)
    assert message.headers == {"h": b"1", "g": None}


def test_many_at_once(client, wide):
    keys = [b"%d" % (n % 11) if n % 3 else None for n in range(3000)]
    headers = [{"n": b"%d" % n} if n % 2 else None for n in range(3000)]
    with client.producer(wide, batch_bytes=5000) as producer:
        producer.send_many([b"%d" % n for n in range(3000)], keys, headers)
        producer.send_many([])
    found = read_all(client, wide)
    assert sum(map(len, found.values())) == 3000
    for partition, messages in found.items():
        for message in messages:
            n = int(message.value)
            assert message.key == keys[n]
            assert message.headers == (headers[n] or {})
            if message.key is not None:
                assert partition_of(message.key, 4) == partition


def test_futures_tell_positions(client, wide):
    with client.producer(wide) as producer:
        futures = [producer.send_future(b"%d" % n, key=b"%d" % n) for n in range(100)]
        positions = [future.result(timeout=20) for future in futures]
    found = read_all(client, wide)
    for n, position in enumerate(positions):
        assert found[position.partition][position.offset].value == b"%d" % n


def test_delivery_is_told_for_each_batch(client, topic):
    told = []
    with client.producer(topic, on_delivery=told.append, linger=0.001, batch_bytes=500) as producer:
        for n in range(100):
            producer.send(b"%d" % n)
    until(lambda: sum(each.end - each.start for each in told) == 100)
    assert all(isinstance(each, Positions) for each in told)
    assert [each.start for each in told] == sorted(each.start for each in told)
    assert len(told) > 1


def test_a_callback_may_use_the_client(client, topic):
    other = new_name()
    client.create_topic(other)
    done = []
    with client.producer(
        topic, on_delivery=lambda _: done.append(client.publish(other, b"told", timeout=10))
    ) as producer:
        producer.send(b"a")
    until(lambda: done)
    assert values(client, other) == [b"told"]


def test_a_callback_that_raises_harms_nobody(client, topic, caplog):
    def fail(_):
        raise RuntimeError("on purpose")

    with client.producer(topic, on_delivery=fail) as producer:
        producer.send(b"a")
        producer.flush()
        producer.send(b"b")
    assert values(client, topic) == [b"a", b"b"]
    until(lambda: caplog.text.count("on purpose") >= 2)


def test_bad_records_are_refused_and_the_others_arrive(client, topic):
    with client.producer(topic) as producer:
        producer.send(b"first")
        for bad, error in [
            (lambda: producer.send("text"), WrongType),
            (lambda: producer.send(b"", key=5), WrongType),
            (lambda: producer.send(b"", headers={1: b""}), WrongType),
            (lambda: producer.send(b"", partition=1), UnknownPartition),
            (lambda: producer.send_many([b"a", "b"]), WrongType),
            (lambda: producer.send_many([b"a"], keys=[b"a", b"b"]), ValueError),
            (lambda: producer.send_future(None), WrongType),
        ]:
            with pytest.raises(error):
                bad()
        producer.send(b"last")
    assert values(client, topic) == [b"first", b"last"]


def test_many_threads_share_a_producer(client, topic):
    def send(producer, thread):
        for n in range(500):
            producer.send(b"%d/%d" % (thread, n))

    with client.producer(topic, batch_bytes=4000, window_bytes=20_000) as p, ExitStack() as stack:
        for thread in range(6):
            stack.enter_context(Running(send, p, thread))
    found = [tuple(map(int, value.split(b"/"))) for value in values(client, topic)]
    assert len(found) == 3000
    for thread in range(6):
        assert [n for t, n in found if t == thread] == list(range(500))


def test_the_window_holds_back_and_lets_go(client, topic):
    with client.producer(topic, window_bytes=1, linger=0, batch_bytes=100) as producer:
        for n in range(300):
            producer.send(b"%d" % n)
    assert values(client, topic) == [b"%d" % n for n in range(300)]


def test_two_producers_do_not_disturb_each_other(client, topic):
    with client.producer(topic) as one, client.producer(topic) as two:
        for n in range(100):
            one.send(b"one %d" % n)
            two.send(b"two %d" % n)
    found = values(client, topic)
    for name in (b"one", b"two"):
        own = [value for value in found if value.startswith(name)]
        assert own == [b"%b %d" % (name, n) for n in range(100)]


def test_a_topic_that_goes_away_is_told(client, topic):
    producer = client.producer(topic, linger=0)
    producer.send(b"a")
    producer.flush()
    client.delete_topic(topic)

    def send_more():
        producer.send(b"b")
        producer.flush(timeout=20)

    with pytest.raises(UnknownTopic):
        send_more()
    with pytest.raises(UnknownTopic):
        client.publish(topic, b"c")


def test_a_producer_sees_new_partitions(client, topic):
    with client.producer(topic) as producer:
        producer.send(b"0")
        client.alter_topic(topic, partitions=2)

        def sent():
            try:
                producer.send(b"1", partition=1)
            except UnknownPartition:
                return False
            return True

        until(sent)
    assert client.describe(topic).partitions[1].end == 1


def test_closing_a_producer_delivers_and_ends_it(client, topic):
    producer = client.producer(topic, linger=60)
    producer.send(b"in no hurry")
    producer.close()
    assert values(client, topic) == [b"in no hurry"]
    producer.close()
    for call in (
        lambda: producer.send(b"late"),
        lambda: producer.send(b"late", key=b"k"),
        lambda: producer.send_many([b"late"]),
        lambda: producer.send_future(b"late"),
    ):
        with pytest.raises(Closed):
            call()
    assert values(client, topic) == [b"in no hurry"]


def test_the_error_of_a_block_is_the_one_that_is_seen(client, topic):
    def fail():
        with client.producer(topic) as producer:
            producer.send(b"sent nonetheless")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert values(client, topic) == [b"sent nonetheless"]


def test_threads_that_send_while_it_is_closed_lose_nothing(client, topic):
    """What `send` took without an error is stored; what it refused is not."""
    producer = client.producer(topic, linger=0.0005)
    taken = []
    begun = threading.Barrier(3)

    def send(thread):
        begun.wait()
        n = 0
        try:
            while True:
                value = b"%d/%d" % (thread, n)
                producer.send(value)
                taken.append(value)
                n += 1
        except Closed:
            return

    with Running(send, 0), Running(send, 1):
        begun.wait()
        until(lambda: len(taken) > 200)
        producer.close()
    assert sorted(values(client, topic)) == sorted(taken)
