"""The broker is killed between the ack of a message and the commit: what a commit says holds.

The broker's process is stopped before it can read the acks, or its answers are lost on the way.
Then comes `kill -9`. Meanwhile another consumer may get what was acked in vain.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

import hocket
from hocket.errors import LeaseLost, Timeout
from tests.support.brokers.proxy import Proxy
from tests.support.processes.server import ServerProcess
from tests.support.threads import Running, until, until_async

COUNT = 20


@pytest.fixture
def server(tmp_path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as made:
        yield made


@pytest.fixture
def proxy(server):
    with Proxy(server.address) as made:
        yield made


def fill(url: str, topic: str) -> None:
    with hocket.connect(url) as client:
        client.create_topic(topic)
        with client.producer(topic) as producer:
            for number in range(COUNT):
                producer.send(b"%d" % number, key=b"%d" % (number % 4))


def is_told(subscription) -> bool:
    """The acks have left, and are not answered."""
    (part,) = subscription._core.parts()
    open_ = part._settlements._open.values()
    return any(telling.verdict.action == "ack" and not telling.waits for telling in open_)


def stop(server: ServerProcess) -> None:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)


def kill_behind(proxy: Proxy, server: ServerProcess) -> None:
    """The consumer behind the proxy cannot come back before the proxy is open again."""
    proxy.closed = True
    server.kill()
    proxy.cut()
    proxy.losing = False
    server.start()


def drained(url: str, topic: str, mode: str) -> set[int]:
    """What another consumer gets, until nothing is left. It acks all of it."""
    with (
        hocket.connect(url, timeout=30) as client,
        client.subscribe(topic, index="w", mode=mode) as subscription,
    ):
        found = set()
        while client.lag(topic, "w"):
            try:
                message = subscription.receive(timeout=0.2)
            except Timeout:
                continue
            found.add(message.offset)
            message.ack()
            subscription.commit()
        return found


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_a_commit_raises_if_its_acks_died_with_the_broker(server, proxy, mode):
    topic = f"lost-{mode}"
    fill(server.address, topic)
    with (
        hocket.connect(proxy.url) as client,
        client.subscribe(topic, index="w", mode=mode, failover="fast", prefetch=5) as subscription,
    ):
        messages = [subscription.receive(timeout=20) for _ in range(5)]
        stop(server)
        for message in messages:
            message.ack()

        def commit():
            with pytest.raises(LeaseLost, match="5 messages"):
                subscription.commit(60)

        with Running(commit) as committing:
            until(lambda: is_told(subscription))
            kill_behind(proxy, server)
            assert {message.offset for message in messages} <= drained(server.address, topic, mode)
            proxy.closed = False
            committing.result()
        subscription.commit()  # what was refused is reported once
        assert subscription.refused == 5


def test_a_commit_returns_if_only_its_answer_died_with_the_broker(server, proxy):
    topic = "answered"
    fill(server.address, topic)
    with (
        hocket.connect(proxy.url) as client,
        hocket.connect(server.address) as other,
        client.subscribe(topic, index="w", mode="shared", prefetch=5) as subscription,
    ):
        messages = [subscription.receive(timeout=20) for _ in range(5)]
        proxy.losing = True
        for message in messages:
            message.ack()
        with Running(subscription.commit, 60) as committing:
            until(lambda: other.lag(topic, "w") == COUNT - 5)  # they are stored
            kill_behind(proxy, server)
            proxy.closed = False
            committing.result()
        assert subscription.refused == 0
        acked = {message.offset for message in messages}
    assert drained(server.address, topic, "shared") == set(range(COUNT)) - acked


def test_a_commit_returns_if_its_consumer_comes_back_with_its_acks(server, proxy):
    topic = "claimed"
    fill(server.address, topic)
    with (
        hocket.connect(proxy.url) as client,
        client.subscribe(topic, index="w", mode="shared", prefetch=5) as subscription,
    ):
        messages = [subscription.receive(timeout=20) for _ in range(5)]
        stop(server)
        for message in messages:
            message.ack()
        with Running(subscription.commit, 60) as committing:
            until(lambda: is_told(subscription))
            kill_behind(proxy, server)
            proxy.closed = False  # within the two seconds in which nobody else gets them
            committing.result()
        acked = {message.offset for message in messages}
    assert drained(server.address, topic, "shared") == set(range(COUNT)) - acked


def test_a_commit_raises_in_asyncio_too(server, proxy):
    topic = "awaited"
    fill(server.address, topic)

    async def work():
        async with (
            await hocket.aio.connect(proxy.url) as client,
            await client.subscribe(
                topic, index="w", mode="shared", failover="fast", prefetch=5
            ) as subscription,
        ):
            messages = [await subscription.receive(timeout=20) for _ in range(5)]
            stop(server)
            for message in messages:
                await message.ack()
            committing = asyncio.create_task(subscription.commit(60))
            await until_async(lambda: is_told(subscription))
            await asyncio.to_thread(kill_behind, proxy, server)
            await asyncio.to_thread(drained, server.address, topic, "shared")
            proxy.closed = False
            with pytest.raises(LeaseLost, match="5 messages"):
                await committing

    asyncio.run(work())
