"""A client that is dropped without being closed: what was sent before is stored all the same."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import Future

import pytest

import hocket
import hocket.aio
from tests.support.processes.server import ServerProcess
from tests.support.threads import run


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("dropped")) as server:
        url = server.address
        with hocket.connect(url) as client:
            client.create_topic("t")
        yield url


def stored(url: str) -> int:
    with hocket.connect(url) as client:
        return sum(partition.end for partition in client.describe("t").partitions)


def test_what_was_sent_is_delivered(url: str):
    def send() -> Future[hocket.Position]:
        client = hocket.connect(url)
        return client.producer("t", linger=0.2).send_future(b"precious")

    before = stored(url)
    future = send()
    with pytest.warns(ResourceWarning, match="was not closed"):
        gc.collect()
    assert future.result(timeout=10).topic == "t"
    assert stored(url) == before + 1


def test_what_was_sent_is_delivered_in_asyncio(url: str):
    async def send() -> asyncio.Future[hocket.Position]:
        client = await hocket.aio.connect(url)
        producer = await client.producer("t", linger=0.2)
        return await producer.send_future(b"precious")

    async def main() -> None:
        files = len(os.listdir("/proc/self/fd"))
        future = await send()
        with pytest.warns(ResourceWarning, match="was not closed"):
            gc.collect()
        assert (await asyncio.wait_for(future, 10)).topic == "t"
        while len(os.listdir("/proc/self/fd")) > files:  # until its connection is closed
            await asyncio.sleep(0.01)

    before = stored(url)
    run(main())
    assert stored(url) == before + 1


def test_futures_are_done_when_flush_returns_in_asyncio(url: str):
    """Also when everything was acknowledged just before: then `flush` has nothing to wait for."""

    async def main() -> None:
        async with hocket.aio.connect(url) as client, client.producer("t") as producer:
            for _ in range(50):
                future = await producer.send_future(b"x")
                producer._engine.do(producer._core.cut_all)
                while producer._core.unacked_bytes:
                    await asyncio.sleep(0)
                await producer.flush()
                assert future.done()

    run(main())
