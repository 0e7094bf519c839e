"""Transactions as users see them: all or nothing over topics and partitions, and once."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import count

import pytest

from hocket import errors
from hocket.model import Participant
from tests.support.brokers.every_world import in_parallel, only, take, values

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
    with client.transaction(name) as transaction:  # the same number
        transaction.send(topic, b"x")
    assert sum(ends(client, topic)) == 1
    with (
        pytest.raises(errors.TransactionConflict, match="other content"),
        client.transaction(name) as transaction,
    ):
        transaction.send_many(topic, [b"x"] * 2)
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


def send_and_commit(transaction, topic: str) -> None:
    """A node that does not decide on its id may hear only at the commit that it is too old."""
    transaction.send(topic, b"x")
    transaction.commit()


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
        send_and_commit(old, topic)
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


def test_columns_for_one_partition(world, client):
    pyarrow = pytest.importorskip("pyarrow")
    topic = world.topic(3)
    rows = pyarrow.record_batch({"key": [b"a", b"b", b"c"], "value": [b"0", b"1", b"2"]})
    with client.transaction(next(IDS)) as transaction:
        transaction.send_arrow(topic, rows, partition=1)
        with pytest.raises(errors.UnknownPartition, match="no 3"):
            transaction.send_arrow(topic, rows, partition=3)
    assert ends(client, topic) == [0, 3, 0]


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


@only("served", "cluster")
def test_a_client_that_is_closed_aborts_what_is_open(world, client):
    topic, name = world.topic(), next(IDS)
    with world.connect() as other:
        other.transaction(next(IDS))  # nothing was sent: nothing is to be aborted
        transaction = other.transaction(name)
        transaction.send(topic, b"x")
        named = transaction._producers[topic].staging.producer_ids
    assert len(named) == 1
    staged = Participant(topic, 0, named[0], 1, 1, 0)
    with pytest.raises(errors.TransactionAborted):
        client.commit_prepared(name, 0, [staged])
    assert ends(client, topic) == [0]


# --- prepared ------------------------------------------------------------------------------------


def prepared(client, name: str, number: int, topic: str, *sent: bytes, partition: int = 0):
    with client.transaction(name, number=number) as transaction:
        for value in sent:
            transaction.send(topic, value, partition=partition)
        return transaction.prepare(timeout=20)


def test_whoever_prepares_at_the_same_time_gets_the_same(world, client):
    topic = world.topic(3)
    for _ in range(10):
        transaction = client.transaction(next(IDS))
        transaction.send_many(topic, [b"x"] * 20, [b"%d" % n for n in range(20)])
        first, second, third = in_parallel([transaction.prepare] * 3)
        assert first == second == third == transaction.prepared
        client.drop_prepared(transaction.id, 0, first)


def test_what_many_have_prepared_is_committed_by_one(world, client):
    one, two = world.topic(2), world.topic()
    name = next(IDS)
    parts = [
        *prepared(client, name, 3, one, b"a", b"b"),
        *prepared(client, name, 3, one, b"c", partition=1),
        *prepared(client, name, 3, two, b"d"),
        *prepared(client, name, 3, two),  # nothing was sent
    ]
    assert ends(client, one) == [0, 0]
    parts = pickle.loads(pickle.dumps(parts))
    assert [(each.topic, each.partition, each.records) for each in parts] == [
        (one, 0, 2), (one, 1, 1), (two, 0, 1),
    ]  # fmt: skip
    client.commit_prepared(name, 3, parts)
    client.commit_prepared(name, 3, parts, timeout=20)  # done already
    assert ends(client, one) == [2, 1]
    assert ends(client, two) == [1]
    with pytest.raises(errors.TransactionConflict, match="other content"):
        client.commit_prepared(name, 3, parts[:2])
    with pytest.raises(errors.TransactionConflict, match="committed already"):
        client.drop_prepared(name, 3, parts)
    assert ends(client, one) == [2, 1]


def test_what_is_prepared_is_left_alone_by_who_prepared_it(world, client):
    topic, name = world.topic(), next(IDS)
    transaction = client.transaction(name)
    transaction.send(topic, b"x")
    parts = transaction.prepare()
    assert transaction.prepare() == parts == transaction.prepared
    assert "prepared" in repr(getattr(transaction, "inner", transaction))
    for call in (transaction.commit, transaction.abort, lambda: transaction.send(topic, b"y")):
        with pytest.raises(errors.Closed):
            call()
    transaction.close()
    failed = client.transaction(name)

    def fail() -> None:
        with failed:
            failed.send(topic, b"x")
            failed.prepare()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not failed.aborted
    for over in (client.transaction(next(IDS)), client.transaction(next(IDS))):
        over.abort()
        with pytest.raises(errors.Closed):
            over.prepare()
    client.drop_prepared(name, 0, failed.prepared)
    client.commit_prepared(name, 0, parts)
    assert ends(client, topic) == [1]


def test_several_attempts_are_staged_and_one_is_committed(world, client):
    topic, name = world.topic(2), next(IDS)
    attempts = [prepared(client, name, 0, topic, b"%d" % n) for n in range(4)]
    client.drop_prepared(name, 0, attempts[0])
    client.drop_prepared(name, 0, attempts[0])
    client.drop_prepared(name, 0, ())
    with pytest.raises(errors.TransactionAborted, match="stage it again"):
        client.commit_prepared(name, 0, attempts[0])
    with pytest.raises(errors.TransactionAborted):  # nor together with others
        client.commit_prepared(name, 0, attempts[0] + attempts[1])
    client.commit_prepared(name, 0, attempts[2])
    client.commit_prepared(name, 0, attempts[3])  # as many records: done already
    with client.subscribe(topic) as messages:
        assert values(take(messages, 1)) == [b"2"]
    assert ends(client, topic) == [1, 0]
    prepared(client, name, 1, topic, b"left behind")
    with client.transaction(name, number=2) as transaction:
        transaction.send(topic, b"next", partition=1)
    assert ends(client, topic) == [1, 1]


def test_the_arguments_of_what_is_prepared_are_checked(world, client):
    topic, name = world.topic(), next(IDS)
    (part,) = prepared(client, name, 0, topic, b"x")
    for call in (client.commit_prepared, client.drop_prepared):
        for wrong in (None, part, "x", [None], [b"x" * 16]):
            with pytest.raises(errors.WrongType):
                call(name, 0, wrong)
        with pytest.raises(errors.BadName):
            call("a b", 0, [part])
        with pytest.raises(errors.OutOfRange):
            call(name, -1, [part])
        with pytest.raises(errors.WrongType):
            call(name, "0", [part])
        with pytest.raises(errors.OutOfRange):
            call(name, 0, [part], timeout=-1)
        with pytest.raises(errors.OutOfRange):
            call(name, 0, [replace(part, producer_id=b"short")])
    with pytest.raises(errors.TransactionConflict):
        client.commit_prepared(name, 0, [replace(part, records=2)])
    with pytest.raises(errors.UnknownTopic):
        client.commit_prepared(name, 0, [replace(part, topic="no-such-topic")])
    assert ends(client, topic) == [0]
    client.commit_prepared(name, 0, [part])
    assert ends(client, topic) == [1]


@only("served", "cluster")
def test_what_is_prepared_outlives_its_client(world, client):
    topic, name = world.topic(), next(IDS)
    with world.connect() as other:
        parts = prepared(other, name, 0, topic, b"x")
    client.commit_prepared(name, 0, parts)
    assert ends(client, topic) == [1]
