"""What is said about a message after its subscription was closed: it is refused, not ignored."""

from __future__ import annotations

import pytest

from hocket import errors
from tests.support.brokers.every_world import take


def filled(world, count: int = 4) -> str:
    topic = world.topic()
    with world.client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(count)])
    return topic


def test_an_ack_after_the_end_is_refused(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        first, second = take(messages, 2)
        first.ack()
    for _ in range(2):
        with pytest.raises(errors.Closed, match="the subscription is closed"):
            second.ack()
    assert client.lag(topic, "i") == 3


def test_so_is_the_ack_of_a_batch(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        batch = messages.receive_batch(timeout=20)
    with pytest.raises(errors.Closed):
        batch.ack()
    with pytest.raises(errors.Closed):
        messages.commit()
    assert client.lag(topic, "i") == 4


def test_an_ack_from_before_a_seek_is_refused_too_after_the_end(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        (first,) = take(messages, 1)
        messages.seek(0, 2)
        first.ack()  # void, as it always was
    with pytest.raises(errors.Closed):
        first.ack()


@pytest.mark.parametrize("call", ["ack", "nack", "extend", "reject"])
def test_nothing_can_be_said_about_a_shared_message_after_the_end(world, client, call):
    topic = filled(world)
    with client.subscribe(topic, index="workers", mode="shared") as messages:
        (first,) = take(messages, 1)
        first.ack()
        batch = messages.receive_batch(timeout=20)
    for late in (first, batch):
        with pytest.raises(errors.Closed, match="the subscription is closed"):
            getattr(late, call)()
    assert client.lag(topic, "workers") == 3


def test_who_was_replaced_is_told_when_it_acks(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        (first,) = take(messages, 1)
        with client.subscribe(topic, index="i"):
            with pytest.raises(errors.Fenced):
                take(messages, 4)  # more than there are
            with pytest.raises(errors.Fenced):
                first.ack()


def test_a_transaction_takes_nothing_after_its_end(world, client):
    topic = world.topic()
    for end in ("commit", "abort", "prepare"):
        with client.transaction(world.name()) as transaction:
            transaction.send(topic, b"in time")
            getattr(transaction, end)()
            for call in (transaction.send, lambda name, _: transaction.send(world.name(), b"")):
                with pytest.raises(errors.Closed, match="the transaction is closed"):
                    call(topic, b"late")
