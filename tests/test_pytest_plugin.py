"""The fixtures that the package brings for others' tests, used as these would use them."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

import hocket
from hocket import environment
from hocket.addresses import split_address
from hocket.errors import BusyResource, NotAwaited
from hocket.pytest_broker import FixtureBroker

_SEEN: list[str] = []  # the cluster of every broker so far: each test has one of its own


def test_a_blocking_client_of_a_new_broker(hocket_broker):
    assert isinstance(hocket_broker, hocket.Client)
    hocket_broker.create_topic("t")
    assert hocket_broker.publish("t", b"x").offset == 0
    _SEEN.append(hocket_broker.cluster)


@pytest.mark.parametrize("time", ["second", "third"])
def test_every_test_has_its_own_broker(hocket_broker, time):
    assert hocket_broker.topics() == []
    assert hocket_broker.cluster not in _SEEN
    _SEEN.append(hocket_broker.cluster)


def test_a_service_that_is_told_a_url(hocket_url, hocket_broker, monkeypatch):
    monkeypatch.setenv(environment.SERVER, hocket_url)
    with hocket.connect() as service:
        service.create_topic("t")
        service.publish("t", b"by the URL")
    with hocket_broker.subscribe("t") as messages:
        assert messages.receive(timeout=30).value == b"by the URL"


def test_the_url_alone(hocket_url):
    assert hocket_url.startswith("hocket://127.0.0.1:")
    with hocket.connect(hocket_url) as client:
        assert client.topics() == []


def test_all_fixtures_are_of_one_broker(hocket_url, hocket_broker, hocket_aio):
    async def main():
        async with hocket_aio as client, hocket.aio.connect(hocket_url) as service:
            await client.create_topic("t")
            return client.cluster, service.cluster, await service.topics()

    assert asyncio.run(main()) == (hocket_broker.cluster, hocket_broker.cluster, ["t"])


def test_an_asyncio_client_on_whichever_loop_runs(hocket_aio):
    async def entered():
        async with hocket_aio as client:
            assert isinstance(client, hocket.AsyncClient)
            await client.create_topic("t", exist_ok=True)
            return (await client.publish("t", b"x")).offset

    async def awaited():
        client = await hocket_aio
        try:
            return (await client.publish("t", b"x")).offset
        finally:
            await client.close()

    assert asyncio.run(entered()) == 0
    assert asyncio.run(awaited()) == 1
    with asyncio.Runner() as runner:  # as plugins do
        assert runner.run(entered()) == 2
        assert runner.run(entered()) == 3


def test_two_asyncio_clients_at_once(hocket_aio):
    async def main():
        async with hocket_aio as first:
            async with hocket_aio() as second:
                await second.create_topic("t")
                assert await first.topics() == ["t"]
            with pytest.raises(BusyResource, match=r"async with hocket_aio\(\) as other"):
                async with hocket_aio:
                    pass
            assert await first.topics() == ["t"]

    asyncio.run(main())


def test_an_asyncio_client_that_nobody_opens(hocket_aio):
    with pytest.raises(NotAwaited, match="hocket_aio must be awaited before it is used"):
        hocket_aio.publish("t", b"x")


def test_side_by_side_they_share_nothing_and_leave_nothing(tmp_path):
    """As under pytest-xdist: no port is fixed, and after the end it is free."""
    brokers = [FixtureBroker(tmp_path / name) for name in "ab"]
    try:
        urls = [broker.url() for broker in brokers]
        assert urls == [broker.url() for broker in brokers]  # the same when asked again
        assert len(set(urls)) == 2
        with hocket.connect(urls[0]) as client, brokers[1].client() as other:
            client.create_topic("t")
            assert other.topics() == []
    finally:
        for broker in brokers:
            broker.close()
    for url in urls:
        host, port = split_address(url.removeprefix("hocket://"))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port or 0)), timeout=30)


def test_a_client_that_a_test_left_open_does_not_hold_up_its_end(tmp_path):
    broker = FixtureBroker(tmp_path / "data")

    async def main():
        client = await broker.aio()
        await client.create_topic("t")

    def leave_open():
        asyncio.run(main())
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        leave_open()
    broker.close()
