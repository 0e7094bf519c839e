"""A scene of level 3 with five nodes: the consumers of a popular topic are spread over them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import hocket
import hocket.aio
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.blocking.client import Client
from hocket.demo.outcome import Outcome, check
from hocket.demo.topics import PATIENCE_SECONDS, serving

NODES = 5
CONSUMERS = 40
MESSAGES = 500


def popular_topic(progress: Callable[[float], None]) -> Outcome:
    """Nodes hand the messages on to each other, and every consumer gets every message, in order."""
    with tempfile.TemporaryDirectory(prefix="hocket-demo-") as data, ExitStack() as nodes:
        first = ""
        for number in range(NODES):
            options = (
                ["--join", first.removeprefix("hocket://")] if first else ["--successors", "2"]
            )
            options += ["--popular", "8"]
            node = serving(str(Path(data) / f"node-{number}"), "127.0.0.1:0", *options)
            address, _ = nodes.enter_context(node)
            first = first or address
            progress((number + 1) / NODES / 2)
        with hocket.connect(first) as client:
            client.create_topic("news")
            spread = asyncio.run(_read_together(first, client, progress))
    check(sum(spread) == CONSUMERS, "every consumer is served")
    check(len(spread) == NODES, "every node serves some of them")
    return Outcome(
        CONSUMERS, MESSAGES * CONSUMERS, MESSAGES * CONSUMERS * 5,
        f"{NODES} nodes serve {', '.join(map(str, spread))} consumers; each got all, in order",
    )  # fmt: skip


async def _read_together(
    address: str, client: Client, progress: Callable[[float], None]
) -> list[int]:
    """How many consumers each node served."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(CONSUMERS):
            reader = await stack.enter_async_context(await hocket.aio.connect(address))
            readers.append(await reader.subscribe("news", start="latest"))
        spread = await _spread(client)
        progress(0.8)
        with client.producer("news") as producer:
            for number in range(MESSAGES):
                producer.send(b"%d" % number)

        async def read(messages: AsyncSubscription[bytes]) -> None:
            for number in range(MESSAGES):
                message = await messages.receive(timeout=PATIENCE_SECONDS)
                check(int(message.value) == number, "each comes once, in order")

        await asyncio.gather(*map(read, readers))
        progress(1.0)
    return spread


async def _spread(client: Client) -> list[int]:
    """Wait until all nodes serve consumers: how many each of them does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        nodes = await asyncio.to_thread(client.tree, "news")
        counts = sorted(each.consumers for each in nodes.nodes if each.consumers)
        if len(counts) == NODES and sum(counts) == CONSUMERS:
            return counts
        check(time.monotonic() < deadline, "the consumers are spread over the nodes")
        await asyncio.sleep(0.2)
