"""A broker with an RPC endpoint in the test's own process, and Cap'n Proto RPC clients of it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import capnp
import pytest

from hocket.node.broker import Broker
from hocket.node.settings import NodeSettings
from hocket.rpc import Endpoint
from hocket.rpc.schema import rpc_capnp
from tests.support.threads import until_async

Address = tuple[str, int]


class World:
    """The broker, its endpoint, and where that listens."""

    def __init__(self, broker: Broker, endpoint: Endpoint, address: Address) -> None:
        self.broker = broker
        self.endpoint = endpoint
        self.address = address

    @property
    def links(self) -> int:
        """Connections of the node: one for each login that is not over."""
        return len(self.broker._connections)


@contextmanager
def world(path: Path, settings: NodeSettings | None = None, **options: Any) -> Iterator[World]:
    settings = settings or NodeSettings()
    broker = Broker(path, settings)
    broker.start()
    endpoint = Endpoint(broker, settings.limits, **options)
    try:
        yield World(broker, endpoint, endpoint.listen("127.0.0.1", 0))
    finally:
        endpoint.close()
        broker.close()


@asynccontextmanager
async def connected(address: Address, **options: Any) -> AsyncIterator[Any]:
    """The Broker capability, on a connection of its own."""
    stream = await capnp.AsyncIoStream.create_connection(*address, **options)
    client = capnp.TwoPartyClient(stream, traversal_limit_in_words=1 << 28)
    try:
        yield client.bootstrap().cast_as(rpc_capnp.Broker)
    finally:
        client.close()
        stream.close()


@asynccontextmanager
async def session(address: Address, token: str = "") -> AsyncIterator[Any]:
    async with connected(address) as broker:
        yield (await broker.login(token=token, client="a test")).session


def run(main: Any) -> Any:
    """A coroutine on a loop that speaks Cap'n Proto; fails instead of hanging."""

    async def bounded() -> Any:
        async with asyncio.timeout(60):
            async with capnp.kj_loop():
                result = await main
                gc.collect()
            # pycapnp closes its transports, and does not wait until they are.
            watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
            await until_async(lambda: len(watched) <= 1, what="all sockets closed")
            return result

    # The endpoint's thread must not collect what is this thread's: see hocket.rpc.garbage.
    gc.disable()
    try:
        return asyncio.run(bounded())
    finally:
        gc.collect()
        gc.enable()


class Sink(rpc_capnp.Sink.Server):  # type: ignore[misc]
    """Keeps what it is given; `hold` makes it answer nothing for a while."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.calls = 0
        self.end: tuple[str, str] | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.fail = False

    async def deliver_context(self, context: Any) -> None:
        self.calls += 1
        batch = context.params.batch
        if batch._which_str() == "encoded":
            self.batches.append((batch.partition, batch.start, batch.end, batch.encoded))
        else:
            self.records.extend(_plain(record) for record in batch.records)
        if self.fail:
            raise ValueError("this sink does not like it")
        await self.open.wait()

    async def ended_context(self, context: Any) -> None:
        self.end = (context.params.code, context.params.message)

    @property
    def values(self) -> list[bytes]:
        return [record["value"] for record in self.records]

    async def received(self, count: int) -> list[bytes]:
        await until_async(lambda: len(self.records) >= count, what=f"{count} records")
        return self.values


def _plain(record: Any) -> dict[str, Any]:
    return {
        "key": record.key if record._has("key") else None,
        "value": record.value,
        "headers": {h.name: h.value if h._has("value") else None for h in record.headers},
        "timestamp": record.timestamp,
        "offset": record.offset,
        "partition": record.partition,
        "count": record.deliveryCount,
    }


def of(*values: bytes) -> dict[str, Any]:
    """A batch of values alone."""
    return {"records": [{"value": value} for value in values]}


@asynccontextmanager
async def fails(code: str, *words: str) -> AsyncIterator[None]:
    """The call fails with a reason that begins with this code and has these words."""
    with pytest.raises(capnp.KjException) as caught:
        yield
    reason = caught.value.description
    assert reason.startswith(f"remote exception: {code}: "), reason
    for word in words:
        assert word in reason, reason
    assert "Traceback" not in reason
    assert ".py" not in reason
