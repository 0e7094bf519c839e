"""Somebody publishes as another's producer, at a port: the owner loses nothing by it.

The thief reads a batch, and takes the producer's id, epoch and next sequence from it. Before, the
owner's next batch was taken for a repetition: acknowledged, and never stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
import hocket.aio
from hocket import frames
from hocket.wire.batch import BatchInfo, check_entries, encode
from tests.support.node.running import Speaker, listening

HOW_MANY = 40  # more than the broker remembers of one producer


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with listening(tmp_path / "data") as found:
        with hocket.connect(url_of(found)) as client:
            client.create_topic("orders")
        yield found


@pytest.fixture
def thief(address: tuple[str, int]) -> Iterator[Thief]:
    with Speaker(address) as speaker:
        yield Thief(speaker)


def url_of(address: tuple[str, int]) -> str:
    return f"hocket://{address[0]}:{address[1]}"


class Thief:
    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker.greet()

    def newest(self) -> BatchInfo:
        """The newest batch of the topic, as every consumer gets it."""
        described = self._speaker.ask(frames.DescribeTopic, "orders")
        assert isinstance(described, frames.Topics)
        end = described.topics[0].partitions[0].end
        self._speaker.ask(frames.OpenSubscription, "orders", credit_bytes=1 << 20)
        found: list[BatchInfo] = []
        while not found or found[-1].header.end_offset < end:
            if isinstance(self._speaker.hear(), frames.Deliver):
                found += check_entries(self._speaker.payload)
        return found[-1]

    def publish_as(self, info: BatchInfo, count: int) -> None:
        for number in range(1, count + 1):
            batch = encode(
                [b"stolen"],
                timestamps=1,
                producer_id=info.producer_id,
                epoch=info.epoch,
                sequence=info.sequence + number,
            )
            answer = self._speaker.ask(frames.Publish, "orders", 0, payload=bytes(batch))
            assert isinstance(answer, frames.Published), answer


def stored(address: tuple[str, int]) -> list[bytes]:
    """What the topic holds, without what the thief wrote."""
    with hocket.connect(url_of(address)) as client:
        end = client.describe("orders").partitions[0].end
        with client.subscribe("orders") as subscription:
            found = [next(iter(subscription)).value for _ in range(end)]
    return [value for value in found if value != b"stolen"]


@pytest.mark.parametrize("count", [1, 3, HOW_MANY])
def test_a_producer_loses_nothing(address: tuple[str, int], thief: Thief, count: int, caplog):
    caplog.set_level(logging.WARNING)
    with hocket.connect(url_of(address)) as client, client.producer("orders", linger=0) as producer:
        producer.send(b"first")
        producer.flush()
        thief.publish_as(thief.newest(), count)
        for number in range(10):
            producer.send(b"%d" % number)
        producer.flush()
        position = producer.send_future(b"last").result(10)
    assert stored(address) == [b"first", *(b"%d" % number for number in range(10)), b"last"]
    assert position.offset == 1 + count + 10
    if count < HOW_MANY:
        assert "another batch is stored as batch 1 of this producer" in caplog.text


@pytest.mark.parametrize("count", [1, HOW_MANY])
def test_a_publish_loses_nothing(address: tuple[str, int], thief: Thief, count: int):
    with hocket.connect(url_of(address)) as client:
        client.publish("orders", b"first")
        thief.publish_as(thief.newest(), count)
        assert client.publish("orders", b"second").offset == 1 + count
        assert client.publish("orders", b"third").offset == 2 + count
    assert stored(address) == [b"first", b"second", b"third"]


def test_an_asyncio_producer_loses_nothing(address: tuple[str, int], thief: Thief):
    async def main() -> None:
        async with await hocket.aio.connect(url_of(address)) as client:
            async with await client.producer("orders", linger=0) as producer:
                await producer.send(b"first")
                await producer.flush()
                info = await asyncio.to_thread(thief.newest)
                await asyncio.to_thread(thief.publish_as, info, 1)
                for number in range(10):
                    await producer.send(b"%d" % number)
                await producer.flush()
            await client.publish("orders", b"last")

    asyncio.run(main())
    assert stored(address) == [b"first", *(b"%d" % number for number in range(10)), b"last"]


def test_a_transaction_is_whole_though_somebody_publishes_as_its_producer(
    address: tuple[str, int], thief: Thief
):
    with hocket.connect(url_of(address)) as client:
        with client.transaction("job", number=1) as transaction:
            transaction.send("orders", b"one")
        thief.publish_as(thief.newest()._replace(sequence=-1), 2)
        with client.transaction("job", number=2) as transaction:
            transaction.send("orders", b"two")
    assert stored(address) == [b"one", b"two"]
