"""A real broker behind a network that is cut again and again: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import hocket
from hocket.errors import NoConnection, ReplyLost, Timeout, TopicExists
from tests.support.brokers.proxy import Proxy
from tests.support.brokers.worlds import ServerWorld, new_name
from tests.support.threads import Running, run, until


@pytest.fixture(scope="module")
def server() -> Iterator[ServerWorld]:
    made = ServerWorld()
    yield made
    made.close()


@pytest.fixture
def direct(server):
    """A client that the cuts do not concern."""
    with hocket.connect(server.url) as client:
        yield client


@pytest.fixture
def proxy(server):
    with Proxy(server.url) as made:
        yield made


@pytest.fixture
def topic(direct):
    name = new_name("cut")
    direct.create_topic(name)
    return name


def stored(client, topic):
    end = client.describe(topic).partitions[0].end
    with client.subscribe(topic) as sub:
        return [sub.receive(timeout=20).value for _ in range(end)]


CUTS = 6  # each is followed by a longer wait than the one before
ANSWERS = 5  # from one cut to the next
SECONDS = 90  # for all of it, on a busy machine


def test_a_producer_loses_nothing_and_repeats_nothing(proxy, direct, topic):
    def produce():
        with (
            hocket.connect(proxy.url) as client,
            client.producer(topic, linger=0.0005, batch_bytes=500, window_bytes=5000) as producer,
        ):
            sent = 0
            while sent < 3000 or proxy.cuts < CUTS:
                producer.send(b"%d" % sent)
                sent += 1
        return sent

    proxy.cut_again_and_again(ANSWERS, CUTS)
    with Running(produce) as producing:
        sent = producing.result(SECONDS)
    assert stored(direct, topic) == [b"%d" % n for n in range(sent)]


def test_futures_tell_the_right_positions_in_spite_of_it(proxy, direct, topic):
    def produce():
        with hocket.connect(proxy.url) as client, client.producer(topic, linger=0) as producer:
            futures = []
            for n in range(300):
                futures.append(producer.send_future(b"%d" % n))
                if n % 20 == 0:
                    futures[-1].result(timeout=30)
            return [future.result(timeout=30) for future in futures]

    proxy.cut_again_and_again(ANSWERS, CUTS)
    with Running(produce) as producing:
        positions = producing.result(SECONDS)
    assert [position.offset for position in positions] == list(range(300))
    assert stored(direct, topic) == [b"%d" % n for n in range(300)]


def test_publishes_are_stored_once(proxy, direct, topic):
    positions = []

    def publish():
        with hocket.connect(proxy.url) as client:
            for n in range(60):
                positions.append(client.publish(topic, b"%d" % n))

    proxy.cut_again_and_again(ANSWERS, CUTS)
    with Running(publish) as publishing:
        publishing.result(SECONDS)
    assert stored(direct, topic) == [b"%d" % n for n in range(60)]
    assert [position.offset for position in positions] == list(range(60))


def test_a_publish_whose_answer_is_lost_is_stored_once(proxy, direct, topic):
    with hocket.connect(proxy.url) as client:
        client.publish(topic, b"first")
        for n in range(3):
            proxy.losing = True
            with Running(client.publish, topic, b"%d" % n) as publishing:
                until(lambda n=n: direct.describe(topic).partitions[0].end == n + 2)
                proxy.losing = False
                proxy.cut()
                assert publishing.result().offset == n + 1
    assert stored(direct, topic) == [b"first", b"0", b"1", b"2"]


def test_a_change_whose_answer_is_lost_may_have_happened(proxy, direct):
    name = new_name()
    with hocket.connect(proxy.url) as client:
        proxy.losing = True
        with Running(client.create_topic, name) as creating:
            until(lambda: name in direct.topics())
            proxy.losing = False
            proxy.cut()
            assert creating.failure(ReplyLost).may_have_happened
        with pytest.raises(TopicExists):
            client.create_topic(name)


def test_a_subscription_hands_out_each_message_once_in_order(proxy, direct, topic):
    with direct.producer(topic, batch_bytes=1000) as producer:
        producer.send_many([b"%d" % n for n in range(5000)])
    found = []

    def consume():
        with (
            hocket.connect(proxy.url) as client,
            client.subscribe(topic, index="i", credit_bytes=3000) as sub,
        ):
            for message in sub:
                found.append(int(message.value))
                message.ack()
                if len(found) == 5000:
                    return

    proxy.cut_again_and_again(ANSWERS, CUTS)
    with Running(consume) as consuming:
        consuming.result(SECONDS)
    assert proxy.cuts >= CUTS
    assert found == list(range(5000))
    assert direct.lag(topic, "i") == 0


def test_what_is_sent_while_the_broker_is_away_arrives(proxy, direct, topic):
    with (
        hocket.connect(proxy.url) as client,
        client.producer(topic) as producer,
        client.subscribe(topic) as sub,
    ):
        proxy.closed = True
        proxy.cut()
        producer.send(b"patient")
        with pytest.raises((Timeout, NoConnection)):
            client.publish(topic, b"impatient", timeout=0.05)
        with pytest.raises(Timeout):
            producer.flush(timeout=0.05)
        with pytest.raises(Timeout):
            sub.receive(timeout=0.05)
        with pytest.raises(NoConnection):
            client.topics(timeout=0.05)
        proxy.closed = False
        producer.flush(timeout=30)
        assert sub.receive(timeout=30).value == b"patient"


def test_a_close_without_a_broker_is_over_in_its_time(proxy, direct, topic):
    client = hocket.connect(proxy.url)
    producer = client.producer(topic)
    sub = client.subscribe(topic, index="i")
    direct.publish(topic, b"a")
    sub.receive(timeout=20).ack()
    proxy.closed = True
    proxy.cut()
    until(lambda: client._engine.session.link is None)
    producer.send(b"lost, and said to be")
    with pytest.raises(Timeout):
        client.close(timeout=0.2)
    assert stored(direct, topic) == [b"a"]


def test_asyncio(proxy, direct, topic):
    sent = []

    async def produce(client):
        async with client.producer(topic, linger=0.0005, batch_bytes=500) as producer:
            while len(sent) < 2000 or proxy.cuts < CUTS:
                await producer.send(b"%d" % len(sent))
                sent.append(len(sent))
                if len(sent) % 100 == 0:
                    await asyncio.sleep(0.001)
            await producer.send(b"the last")

    async def consume(client):
        async with client.subscribe(topic, index="i", credit_bytes=3000) as sub:
            found = []
            async for message in sub:
                await message.ack()
                if message.value == b"the last":
                    break
                found.append(int(message.value))
            return found

    async def main():
        async with hocket.aio.connect(proxy.url) as client:
            return (await asyncio.gather(produce(client), consume(client)))[1]

    proxy.cut_again_and_again(ANSWERS, CUTS)
    assert run(main(), SECONDS) == sent
    assert stored(direct, topic) == [b"%d" % n for n in sent] + [b"the last"]
    assert direct.lag(topic, "i") == 0


def test_transactions_are_published_once_each_in_spite_of_it(proxy, direct, topic):
    def transact():
        with hocket.connect(proxy.url) as client:
            for number in range(40):
                with client.transaction(topic, number=number, linger=0, batch_bytes=300) as tx:
                    for n in range(20):
                        tx.send(topic, b"%d/%d" % (number, n))

    proxy.cut_again_and_again(ANSWERS, CUTS)
    with Running(transact) as transacting:
        transacting.result(SECONDS)
    assert proxy.cuts >= CUTS
    expected = [b"%d/%d" % (number, n) for number in range(40) for n in range(20)]
    assert stored(direct, topic) == expected
