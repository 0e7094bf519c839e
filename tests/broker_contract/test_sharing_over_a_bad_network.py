"""Shared indexes behind a network that is cut again and again: all is done, and done once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

import hocket
from hocket.errors import LeaseLost, Timeout
from tests.support.brokers.proxy import Proxy
from tests.support.brokers.worlds import ServerWorld, new_name
from tests.support.threads import Running, run, until

COUNT = 2000
CUTS = 6


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
    direct.create_topic(name, partitions=2)
    with direct.producer(name, batch_bytes=2000) as producer:
        for n in range(COUNT):
            producer.send(b"%d" % n, key=b"%d" % (n % 7))
    return name


def keep_cutting(proxy, progress):
    for cut in range(1, CUTS + 1):
        until(lambda cut=cut: progress() >= cut * COUNT // (CUTS + 2))
        proxy.cut()


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_everything_is_done_and_nothing_acknowledged_comes_again(proxy, direct, topic, mode):
    done: Counter[int] = Counter()
    orders: dict[bytes, list[int]] = {}

    def work():
        with (
            hocket.connect(proxy.url) as client,
            client.subscribe(topic, index="w", mode=mode, prefetch=50) as workers,
        ):
            while done.total() < COUNT:
                try:
                    message = workers.receive(timeout=0.2)
                except Timeout:
                    continue
                done[int(message.value)] += 1
                orders.setdefault(message.key, []).append(int(message.value))
                message.ack()
                if not done.total() % 50:
                    workers.commit()
            workers.commit()
            assert workers.refused == 0

    with Running(work):
        keep_cutting(proxy, done.total)
    assert direct.lag(topic, "w") == 0
    assert sorted(done) == list(range(COUNT))
    assert set(done.values()) == {1}  # the cuts were short: what was in hand stayed in hand
    if mode == "key_shared":
        for order in orders.values():
            assert order == sorted(order)


def test_an_asyncio_consumer_goes_on_too(proxy, direct, topic):
    acked: Counter[int] = Counter()
    nacked: Counter[int] = Counter()

    async def main():
        async with (
            hocket.aio.connect(proxy.url) as client,
            client.subscribe(topic, index="w", mode="shared", prefetch=50) as workers,
        ):
            while len(acked) < COUNT:
                try:
                    message = await workers.receive(timeout=0.2)
                except Timeout:
                    continue
                number = int(message.value)
                if not number % 20 and number not in nacked:
                    nacked[number] += 1
                    await message.nack()
                else:
                    acked[number] += 1
                    await message.ack()
                    await asyncio.sleep(0)  # so that the loop has its turn between two messages
            await workers.commit()
            assert workers.refused == 0

    with Running(lambda: run(main())):
        keep_cutting(proxy, acked.total)
    assert set(acked.values()) == {1}
    assert len(nacked) == COUNT // 20
    assert direct.lag(topic, "w") == 0


def test_an_answer_that_is_lost_is_no_lost_lease(proxy, direct, topic):
    with (
        hocket.connect(proxy.url) as client,
        client.subscribe(topic, index="w", mode="shared") as workers,
    ):
        messages = [workers.receive(timeout=20) for _ in range(100)]
        proxy.losing = True
        for message in messages:
            message.ack()
        until(lambda: direct.lag(topic, "w") == COUNT - 100, what="the broker has heard the acks")
        proxy.cut()
        proxy.losing = False
        workers.commit()
        assert workers.refused == 0


def test_a_consumer_that_stays_away_loses_what_it_held(proxy, direct, topic):
    with (
        hocket.connect(proxy.url) as client,
        client.subscribe(topic, index="w", mode="shared", prefetch=10) as workers,
    ):
        messages = [workers.receive(timeout=20) for _ in range(5)]
        proxy.closed = True
        proxy.cut()
        with direct.subscribe(topic, index="w", mode="shared", prefetch=2000) as others:
            seen = set()
            while len(seen) < COUNT:
                message = others.receive(timeout=20)
                message.ack()
                seen.add((message.partition, message.offset))
            others.commit()
        proxy.closed = False
        for message in messages:
            message.ack()
        with pytest.raises(LeaseLost, match="5 messages"):
            workers.commit()
