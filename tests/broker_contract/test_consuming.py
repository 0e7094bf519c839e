from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from hocket.errors import (
    Closed,
    Fenced,
    OutOfRange,
    Timeout,
    UnknownIndex,
    UnknownPartition,
    UnknownTopic,
    WouldBlock,
    WrongKind,
)
from tests.support import Running, until


def fill(client, topic, start, end, **options):
    with client.producer(topic, **options) as producer:
        for n in range(start, end):
            producer.send(b"%d" % n)


def take(sub, count):
    return [sub.receive(timeout=20) for _ in range(count)]


def numbers(messages):
    return [int(message.value) for message in messages]


# --- reading -------------------------------------------------------------------------------------


def test_a_subscription_reads_what_is_there_and_what_comes(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic) as sub:
        assert numbers(take(sub, 10)) == list(range(10))
        with pytest.raises(Timeout):
            sub.receive(timeout=0.05)
        with pytest.raises(WouldBlock):
            sub.receive_nowait()
        client.publish(topic, b"10")
        assert numbers(take(sub, 1)) == [10]


def test_receive_nowait_gives_what_is_here(client, topic):
    fill(client, topic, 0, 3)

    def poll(sub):
        try:
            return sub.receive_nowait()
        except WouldBlock:
            return None

    with client.subscribe(topic) as sub:
        assert numbers([until(lambda: poll(sub)) for _ in range(3)]) == [0, 1, 2]


def test_iteration_ends_when_it_is_closed_by_another(client, topic):
    fill(client, topic, 0, 5)
    sub = client.subscribe(topic)

    def read():
        return numbers(sub)

    with Running(read) as reading:
        until(lambda: sub.position(0) == 5)
        reading.parked()
        sub.close()
        assert reading.result() == [0, 1, 2, 3, 4]
    with pytest.raises(Closed):
        sub.receive()


def test_leaving_a_loop_loses_nothing(client, topic):
    fill(client, topic, 0, 2000)
    with client.subscribe(topic) as sub:
        found = []
        while len(found) < 2000:
            for message in sub:
                found.append(message)
                if len(found) % 7 == 0 or len(found) == 2000:
                    break
            if len(found) < 2000:
                found.append(sub.receive(timeout=20))
        assert numbers(found) == list(range(2000))


def test_batches(client, topic):
    fill(client, topic, 0, 3000, batch_bytes=10_000)
    with client.subscribe(topic, index="i") as sub:
        first = sub.receive(timeout=20)
        found, batches = [int(first.value)], 0
        for batch in sub.batches():
            assert (batch.topic, batch.partition) == (topic, 0)
            assert (batch.offset, batch.end) == (len(found), len(found) + batch.count)
            found += map(int, batch.values())
            batches += 1
            batch.ack()
            if len(found) == 3000:
                break
        assert found == list(range(3000))
        assert batches > 2
        sub.commit()
    assert client.lag(topic, "i") == 0


def test_columns(client, topic):
    pyarrow = pytest.importorskip("pyarrow")
    with client.producer(topic) as producer:
        producer.send(b"a", key=b"k", timestamp=5)
        producer.send(b"b", headers={"h": b"1"}, timestamp=6)
    with client.subscribe(topic) as sub:
        sub.receive(timeout=20)
        batch = sub.receive_batch(timeout=20)
        table = batch.to_arrow(headers=True)
        frame = batch.to_pandas()
    assert isinstance(table, pyarrow.RecordBatch)
    (row,) = table.to_pylist()
    assert (row["value"], row["key"], row["offset"]) == (b"b", None, 1)
    assert row["headers"] == [{"key": "h", "value": b"1"}]
    assert list(frame["value"]) == [b"b"]


def test_arrow_in_and_out(client, wide):
    pyarrow = pytest.importorskip("pyarrow")
    keys = [b"%d" % (n % 5) if n % 2 else None for n in range(100)]
    rows = pyarrow.RecordBatch.from_pydict(
        {"value": [b"%d" % n for n in range(100)], "key": pyarrow.array(keys, pyarrow.binary())}
    )
    with client.producer(wide) as producer:
        producer.send_arrow(rows)
        producer.send_arrow(rows.slice(10, 5))
        producer.send_arrow(rows.slice(0, 0))
    with client.subscribe(wide) as sub:
        found = take(sub, 105)
    assert sorted(numbers(found)) == sorted([*range(100), *range(10, 15)])
    for key in {message.key for message in found} - {None}:
        assert len({message.partition for message in found if message.key == key}) == 1
    assert all(message.key == keys[int(message.value)] for message in found)


@pytest.mark.parametrize(
    "make",
    [
        lambda pa: [b"a list"],
        lambda pa: pa.RecordBatch.from_pydict({"other": [b"a"]}),
        lambda pa: pa.RecordBatch.from_pydict({"value": [1, 2]}),
        lambda pa: pa.RecordBatch.from_pydict({"value": [b"a", None], "key": [b"1", b"2"]}),
    ],
)
def test_bad_arrow_is_refused_whole(client, wide, make):
    pyarrow = pytest.importorskip("pyarrow")
    with client.producer(wide) as producer:
        with pytest.raises(TypeError):
            producer.send_arrow(make(pyarrow))
        producer.flush()
    assert all(each.end == 0 for each in client.describe(wide).partitions)


def test_only_the_partitions_that_are_wanted(client, wide):
    for partition in range(4):
        client.publish(wide, b"%d" % partition, partition=partition)
    with client.subscribe(wide, partitions=[1, 3]) as sub:
        assert sub.partitions == [1, 3]
        assert sorted(numbers(take(sub, 2))) == [1, 3]
        with pytest.raises(Timeout):
            sub.receive(timeout=0.05)
        with pytest.raises(UnknownPartition):
            sub.position(0)


def test_threads_share_a_subscription(client, wide):
    fill(client, wide, 0, 2000, batch_bytes=1000)
    found = []

    def read(sub):
        for message in sub:
            found.append(int(message.value))

    sub = client.subscribe(wide)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(Running(read, sub))
        until(lambda: len(found) == 2000)
        sub.close()
    assert sorted(found) == list(range(2000))


def test_little_credit_is_enough(client, topic):
    fill(client, topic, 0, 3000, batch_bytes=2000)
    with client.subscribe(topic, credit_bytes=1) as sub:
        assert numbers(take(sub, 3000)) == list(range(3000))


def test_reading_without_acknowledging_does_not_stall(client, topic):
    fill(client, topic, 0, 20_000, batch_bytes=5000)
    with client.subscribe(topic, index="i", credit_bytes=20_000) as sub:
        assert numbers(take(sub, 20_000)) == list(range(20_000))
        assert client.lag(topic, "i") == 20_000


def test_position_and_lag_of_a_subscription(client, topic):
    fill(client, topic, 0, 100)
    with client.subscribe(topic) as sub:
        take(sub, 40)
        assert sub.position(0) == 40
        assert sub.lag == 60
        assert sub.lost == 0


def test_a_topic_that_goes_away_ends_a_subscription(client, topic):
    sub = client.subscribe(topic, index="i")
    with Running(sub.receive) as reading:
        reading.parked()
        client.delete_topic(topic)
        reading.failure(UnknownTopic)
    sub.close()


def test_a_topic_that_grows_is_read_whole(client, topic):
    with client.subscribe(topic, index="i") as sub:
        client.publish(topic, b"0")
        take(sub, 1)[0].ack()
        client.alter_topic(topic, partitions=3)
        for partition in (1, 2):
            client.publish(topic, b"%d" % partition, partition=partition)
        found = take(sub, 2)
        assert sorted(numbers(found)) == [1, 2]
        for message in found:
            message.ack()
        sub.commit()
    assert client.lag(topic, "i") == 0


# --- where to begin ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), (7, 7), ("7", 7), (20, None), ("latest", None)]
)
@pytest.mark.parametrize("index", [None, "new"])
def test_start(client, topic, start, first, index):
    fill(client, topic, 0, 20)
    with client.subscribe(topic, start=start, index=index) as sub:
        if first is None:
            client.publish(topic, b"20")
            first = 20
        assert numbers(take(sub, 1)) == [first]


def test_start_at_a_time(client, topic):
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    with client.producer(topic, linger=0) as producer:
        for n in range(10):
            moment = noon + timedelta(minutes=n)
            producer.send(b"%d" % n, timestamp=int(moment.timestamp() * 1e6))
            producer.flush()  # a batch each: within a batch the broker looks at the latest
    middle = noon + timedelta(minutes=4)
    for start in (middle, middle.isoformat()):
        with client.subscribe(topic, start=start) as sub:
            assert numbers(take(sub, 1)) == [4]
    assert client.find_offsets(topic, middle) == [4]


def test_positions_override_the_start(client, wide):
    for partition in range(4):
        for n in range(3):
            client.publish(wide, b"%d" % n, partition=partition)
    with client.subscribe(wide, start="latest", positions={1: 2, 2: 0}) as sub:
        found = [(message.partition, int(message.value)) for message in take(sub, 4)]
    assert sorted(found) == [(1, 2), (2, 0), (2, 1), (2, 2)]


def test_offsets_can_be_looked_up(client, wide):
    for _ in range(3):
        client.publish(wide, b"", partition=2)
    assert client.find_offsets(wide, "earliest") == [0, 0, 0, 0]
    assert client.find_offsets(wide, "latest") == [0, 0, 3, 0]


# --- own indexes ---------------------------------------------------------------------------------


def test_every_index_gets_everything(client, topic):
    fill(client, topic, 0, 50)
    with client.subscribe(topic, index="one") as one, client.subscribe(topic, index="two") as two:
        assert numbers(take(one, 50)) == numbers(take(two, 50)) == list(range(50))


def test_a_consumer_that_was_away_goes_on_from_its_index(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        for message in take(sub, 4):
            message.ack()
        take(sub, 3)  # read, and not acknowledged
    fill(client, topic, 10, 20)
    with client.subscribe(topic, index="i", start="latest") as sub:
        assert numbers(take(sub, 16)) == list(range(4, 20))


def test_closing_commits_and_so_does_commit(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        messages = take(sub, 10)
        messages[5].ack()
        sub.commit(timeout=20)
        assert client.lag(topic, "i") == 4
        messages[9].ack()
    assert client.lag(topic, "i") == 0


def test_acks_are_sent_by_themselves(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        for message in take(sub, 10):
            message.ack()
        until(lambda: client.lag(topic, "i") == 0)


def test_a_second_consumer_takes_an_own_index_over(client, topic):
    fill(client, topic, 0, 10)
    first = client.subscribe(topic, index="i")
    take(first, 2)[1].ack()
    first.commit()
    with client.subscribe(topic, index="i") as second:
        assert numbers(take(second, 8)) == list(range(2, 10))
        with pytest.raises(Fenced):
            take(first, 20)
    first.close()


def test_indexes_are_described_and_deleted(client, wide):
    fill(client, wide, 0, 10)
    with client.subscribe(wide, index="b", hold_retention=True), client.subscribe(wide, index="a"):
        found = client.indexes(wide)
        assert [each.name for each in found] == ["a", "b"]
        assert [each.hold_retention for each in found] == [False, True]
        assert all(each.mode == "own" and each.lag == 10 for each in found)
        assert all(part.attached for each in found for part in each.partitions)
    assert not any(p.attached for each in client.indexes(wide) for p in each.partitions)
    client.delete_index(wide, "a")
    assert [each.name for each in client.indexes(wide)] == ["b"]
    with pytest.raises(UnknownIndex):
        client.lag(wide, "a")


def test_deleting_an_index_ends_its_consumer(client, topic):
    sub = client.subscribe(topic, index="i")
    client.delete_index(topic, "i")
    with pytest.raises(UnknownIndex):
        sub.receive(timeout=20)
    sub.close()


def test_an_index_is_put_elsewhere_and_read_again(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        take(sub, 10)[-1].ack()
    assert client.seek(topic, "i", 3) == [3]
    assert client.lag(topic, "i") == 7
    with client.subscribe(topic, index="i") as sub:
        assert numbers(take(sub, 7)) == list(range(3, 10))
    assert client.seek(topic, "i", "latest") == [10]
    assert client.seek(topic, "i", "earliest", partition=0) == [0]
    assert client.lag(topic, "i") == 10
    with pytest.raises(OutOfRange):
        client.seek(topic, "i", 11)
    with pytest.raises(UnknownPartition):
        client.seek(topic, "i", 0, partition=1)


def test_a_consumer_follows_when_its_index_is_put_elsewhere(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        take(sub, 10)[-1].ack()
        sub.commit()
        client.seek(topic, "i", 6)
        assert numbers(take(sub, 4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("index", [None, "i"])
def test_a_subscription_seeks(client, wide, index):
    for partition in range(2):
        for n in range(20):
            client.publish(wide, b"%d" % n, partition=partition)
    with client.subscribe(wide, index=index, partitions=[0, 1]) as sub:
        take(sub, 25)
        for _ in range(3):
            sub.seek(0, 5)
            assert sub.position(0) == 5
            found = [m for m in take(sub, 15 + 20 - sub.position(1)) if m.partition == 0]
            assert numbers(found) == list(range(5, 20))
        with pytest.raises(OutOfRange):
            sub.seek(0, 21)
        with pytest.raises(OutOfRange):
            sub.seek(0, -1)
        with pytest.raises(UnknownPartition):
            sub.seek(2, 0)
        client.publish(wide, b"20", partition=0)
        assert numbers(take(sub, 1)) == [20]


def test_an_index_moves_with_a_seek_of_its_subscription(client, topic):
    fill(client, topic, 0, 10)
    with client.subscribe(topic, index="i") as sub:
        old = take(sub, 10)[-1]
        sub.seek(0, 4)
        assert client.lag(topic, "i") == 6
        old.ack()  # of a message from before: void
        take(sub, 1)[0].ack()
    assert client.lag(topic, "i") == 5


def test_without_an_index_nothing_is_kept(client, topic):
    fill(client, topic, 0, 3)
    with client.subscribe(topic) as sub:
        message = sub.receive(timeout=20)
        for call in (message.ack, sub.commit, lambda: sub.receive_batch(timeout=20).ack()):
            with pytest.raises(WrongKind, match="index"):
                call()
    assert client.indexes(topic) == []


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_modes_that_this_broker_does_not_have_yet_are_refused_in_words(client, topic, mode):
    with pytest.raises(OutOfRange, match=mode):
        client.subscribe(topic, index="i", mode=mode)


def test_messages_cannot_be_pickled_and_say_where_they_stand(client, topic):
    import pickle

    fill(client, topic, 0, 1)
    with client.subscribe(topic) as sub:
        message = sub.receive(timeout=20)
    assert f"{topic}[0]@0" in repr(message)
    assert message == message
    assert hash(message) == hash(message)
    with pytest.raises(TypeError, match="subscription"):
        pickle.dumps(message)
