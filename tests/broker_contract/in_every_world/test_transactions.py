"""Transactions as users see them: all or nothing over topics and partitions, and once."""

from __future__ import annotations

from itertools import count

import pytest

from hocket import errors
from tests.broker_contract.in_every_world.worlds import in_parallel, only, take, values

IDS = (f"transaction-{number}" for number in count())


def ends(client, topic: str) -> list[int]:
    return [each.end for each in client.describe(topic).partitions]


def test_all_of_it_can_be_read_after_the_block_and_nothing_before(world, client):
    one, two = world.topic(3), world.topic()
    with client.subscribe(one) as messages:
        with client.transaction(next(IDS)) as transaction:
            for number in range(100):
                transaction.send(one, b"%d" % number, key=b"%d" % number, headers={"h": b"x"})
            transaction.send_many(two, [b"a", b"b"], [b"k", None])
            assert ends(client, one) == [0, 0, 0]
            assert not transaction.committed
        assert transaction.committed
        assert sum(ends(client, one)) == 100
        assert ends(client, two) == [2]
        read = take(messages, 100)
    assert sorted(int(each.value) for each in read) == list(range(100))
    assert {each.key for each in read} == {b"%d" % number for number in range(100)}
    assert read[0].headers == {"h": b"x"}
    with client.subscribe(two) as messages:
        assert [(m.value, m.key) for m in take(messages, 2)] == [(b"a", b"k"), (b"b", None)]


def test_an_exception_in_the_block_aborts(world, client):
    topic = world.topic(2)
    name = next(IDS)
    transaction = client.transaction(name)

    def fail() -> None:
        with transaction:
            transaction.send(topic, b"x")
            transaction.send_many(topic, [b"y"] * 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert transaction.aborted
    assert ends(client, topic) == [0, 0]
    again = client.transaction(name)
    with pytest.raises(errors.TransactionAborted, match="higher number"):
        again.send(topic, b"x")
    again.close()
    with client.transaction(name, number=1) as transaction:
        transaction.send(topic, b"x")
    assert sum(ends(client, topic)) == 1


def test_offsets_stay_dense_beside_other_producers(world, client):
    topic = world.topic()
    with client.producer(topic, linger=0) as producer:
        for _ in range(5):
            with client.transaction(next(IDS)) as transaction:
                transaction.send_many(topic, [b"staged"] * 3)
                producer.send(b"plain")
                producer.flush()
    with client.subscribe(topic) as messages:
        read = take(messages, 20)
    assert [each.offset for each in read] == list(range(20))
    assert values(read).count(b"plain") == 5
    runs = b"".join(b"p" if value == b"plain" else b"s" for value in values(read))
    assert runs == b"psss" * 5


def test_the_same_again_is_done_already(world, client):
    topic = world.topic(2)
    name = next(IDS)
    for _ in range(3):
        with client.transaction(name, number=4) as transaction:
            transaction.send_many(topic, [b"x"] * 10)
        assert transaction.committed
    assert sum(ends(client, topic)) == 10


def test_other_content_or_an_old_number_is_a_conflict(world, client):
    topic = world.topic()
    name = next(IDS)
    with client.transaction(name, number=4) as transaction:
        transaction.send_many(topic, [b"x"] * 10)
    with (
        pytest.raises(errors.TransactionConflict, match="other content"),
        client.transaction(name, number=4) as transaction,
    ):
        transaction.send_many(topic, [b"x"] * 11)
    old = client.transaction(name, number=3)
    with pytest.raises(errors.TransactionConflict, match="numbers only grow"):
        old.send(topic, b"x")
    old.close()
    with pytest.raises(errors.TransactionConflict, match="numbers only grow"):
        client.transaction(name, number=2).commit()
    assert ends(client, topic) == [10]


def test_a_stream_of_numbers(world, client):
    topic = world.topic(2)
    name = next(IDS)
    for number in range(0, 40, 2):
        with client.transaction(name, number=number) as transaction:
            transaction.send(topic, b"%d" % number, partition=0)
            transaction.send(topic, b"%d" % number, partition=1)
    for partition in range(2):
        with client.subscribe(topic, partitions=[partition]) as messages:
            assert [int(v) for v in values(take(messages, 20))] == list(range(0, 40, 2))


def test_commit_and_abort_by_hand(world, client):
    topic = world.topic()
    transaction = client.transaction(next(IDS))
    transaction.send(topic, b"x")
    transaction.commit(timeout=20)
    transaction.commit()
    with pytest.raises(errors.TransactionConflict):
        transaction.abort()
    with pytest.raises(errors.Closed):
        transaction.send(topic, b"y")
    other = client.transaction(next(IDS))
    other.send(topic, b"x")
    other.abort(timeout=20)
    other.abort()
    with pytest.raises(errors.Closed):
        other.commit()
    with pytest.raises(errors.Closed):
        other.send(world.topic(), b"y")
    assert ends(client, topic) == [1]


def test_an_empty_transaction(world, client):
    name = next(IDS)
    with client.transaction(name) as transaction:
        pass
    assert transaction.committed
    with pytest.raises(errors.TransactionConflict), client.transaction(name) as transaction:
        transaction.send(world.topic(), b"x")


def test_columns_codecs_and_large_ones(world, client):
    pyarrow = pytest.importorskip("pyarrow")
    topic = world.topic(2)
    rows = pyarrow.record_batch({"value": [b"%d" % number for number in range(1000)]})
    with client.transaction(next(IDS), codec="lz4", batch_bytes="64KiB") as transaction:
        transaction.send_arrow(topic, rows)
        transaction.send_many(topic, [bytes(10_000)] * 300)
    assert sum(ends(client, topic)) == 1300
    with client.subscribe(topic) as messages:
        assert sum(len(v) == 10_000 for v in values(take(messages, 1300))) == 300


def test_topics_kept_in_memory_take_part(world, client):
    topic = world.topic(durability="memory")
    with client.transaction(next(IDS)) as transaction:
        transaction.send(topic, b"x")
        client.publish(topic, b"between")
    assert ends(client, topic) == [2]


def test_many_transactions_at_once(world, client):
    topic = world.topic(3)
    names = [next(IDS) for _ in range(8)]

    def run(name: str) -> None:
        for number in range(5):
            with client.transaction(name, number=number) as transaction:
                for n in range(6):
                    transaction.send(topic, b"%s/%d" % (name.encode(), number), partition=n % 3)

    in_parallel([lambda name=name: run(name) for name in names])
    assert ends(client, topic) == [80, 80, 80]


def test_bad_input_changes_nothing(world, client):
    topic = world.topic()
    for wrong in ("", "a b", "-x", "x" * 300):
        with pytest.raises(errors.BadName):
            client.transaction(wrong)
    with pytest.raises(errors.WrongType):
        client.transaction(5)
    for number in (-1, 2**63):
        with pytest.raises(errors.OutOfRange):
            client.transaction("x", number=number)
    with pytest.raises(errors.WrongType):
        client.transaction("x", number="1")
    transaction = client.transaction(next(IDS))
    with pytest.raises(errors.UnknownTopic):
        transaction.send("no-such-topic", b"x")
    with pytest.raises(errors.WrongType):
        transaction.send(topic, "text")
    with pytest.raises(errors.UnknownPartition):
        transaction.send(topic, b"x", partition=7)
    transaction.send(topic, b"good")
    transaction.commit()
    assert ends(client, topic) == [1]


def test_a_topic_deleted_before_the_commit_fails_it_as_a_whole(world, client):
    kept, gone = world.topic(), world.topic()
    transaction = client.transaction(next(IDS))
    transaction.send(kept, b"x")
    transaction.send(gone, b"x")
    client.delete_topic(gone)
    with pytest.raises(errors.UnknownTopic), transaction:
        pass
    assert ends(client, kept) == [0]
    assert transaction.aborted


@only("served")
def test_a_client_that_is_closed_aborts_what_is_open(world, client):
    topic, name = world.topic(), next(IDS)
    with world.connect() as other:
        other.transaction(next(IDS))  # nothing was sent: nothing is to be aborted
        transaction = other.transaction(name)
        transaction.send(topic, b"x")
    with pytest.raises(errors.TransactionAborted):
        client.transaction(name).commit()
    assert ends(client, topic) == [0]
