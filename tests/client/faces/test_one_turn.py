"""What one turn of a loop sends leaves as one batch, also without linger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import hocket.aio
from hocket import frames
from hocket.errors import CorruptData
from hocket.node.broker import Broker


def test_what_one_turn_sends_is_one_batch(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()

    async def sizes() -> list[int]:
        async with await hocket.aio.connect(f"hocket://{host}:{port}") as client:
            await client.create_topic("t")
            async with (
                await client.producer("t", linger=0) as producer,
                await client.subscribe("t") as messages,
            ):
                for value in (b"a", b"b", b"c"):
                    await producer.send(value)
                await producer.flush()
                await producer.send(b"d")  # by itself, and cut by nobody's flush
                first = await messages.receive_batch(timeout=30)
                second = await messages.receive_batch(timeout=30)
                return [first.count, second.count]

    try:
        assert asyncio.run(sizes()) == [3, 1]
    finally:
        broker.close()


def test_a_loop_over_messages_and_batches_in_turn_miss_nothing(tmp_path: Path) -> None:
    """A subscription that has handed out its last chunk is looked at again where that matters."""
    broker = Broker(tmp_path)
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()

    async def read() -> list[int]:
        found: list[int] = []
        async with await hocket.aio.connect(f"hocket://{host}:{port}") as client:
            await client.create_topic("t")
            async with (
                await client.producer("t", linger=0) as producer,
                await client.subscribe("t") as messages,
            ):
                for start in (0, 3):
                    for number in range(start, start + 3):
                        await producer.send(b"%d" % number)
                    await producer.flush()
                    async for message in messages:
                        found.append(message.offset)
                        break
                    batch = await messages.receive_batch(timeout=30)
                    found += range(batch.offset, batch.end)
        return found

    try:
        assert asyncio.run(read()) == [0, 1, 2, 3, 4, 5]
    finally:
        broker.close()


def test_a_loop_over_messages_sees_what_a_receive_in_it_has_left(tmp_path: Path) -> None:
    """The receive takes the first of a new chunk, while the loop is at the end of the last one."""
    broker = Broker(tmp_path)
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()

    async def read() -> list[bytes]:
        found: list[bytes] = []
        async with await hocket.aio.connect(f"hocket://{host}:{port}") as client:
            await client.create_topic("t")
            async with (
                await client.producer("t") as producer,
                await client.subscribe("t") as messages,
            ):
                await producer.send_many([b"0", b"1"])
                async for message in messages:
                    found.append(message.value)
                    if len(found) == 2:
                        await producer.send_many([b"2", b"3"])
                        found.append((await messages.receive(timeout=30)).value)
                    if len(found) == 4:
                        break
        return found

    try:
        assert asyncio.run(asyncio.wait_for(read(), 5)) == [b"0", b"1", b"2", b"3"]
    finally:
        broker.close()


@pytest.mark.parametrize("topics", ["a", ["a", "b"]])
def test_a_loop_over_messages_hears_of_damage_behind_the_last_of_them(
    tmp_path: Path, topics: str | list[str]
) -> None:
    """Of several topics, too: it was not told, and waited for ever."""
    broker = Broker(tmp_path)
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()

    async def read() -> list[int]:
        found: list[int] = []
        async with await hocket.aio.connect(f"hocket://{host}:{port}") as client:
            for name in ("a", "b"):
                await client.create_topic(name)
            async with await client.subscribe(topics, index="i") as messages:
                core: Any = messages._core
                (part,) = (core if topics == "a" else core.of("a")).parts()
                await client.publish("a", b"0")
                await client.publish("a", b"1")
                while part.inbound.by_partition[0].expected < 2:
                    await asyncio.sleep(0.001)
                ended = frames.HandleEnded(
                    0, part.handle, "corruptData", "damaged", commits=True, partition=0, start=2,
                    end=3,
                )  # fmt: skip
                messages._engine.do(lambda: part.received(ended, memoryview(b"")))
                loop = _offsets(messages, found)
                with pytest.raises(CorruptData, match="damaged"):
                    await asyncio.wait_for(loop, 5)
        return found

    try:
        assert asyncio.run(read()) == [0, 1]
    finally:
        broker.close()


async def _offsets(messages: Any, found: list[int]) -> None:
    async for message in messages:
        found.append(message.offset)
