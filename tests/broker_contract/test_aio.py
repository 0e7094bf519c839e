"""The asyncio client, under the same contract; where it waits it must not hold up the loop."""

from __future__ import annotations

import asyncio
import functools

import pytest

import hocket
from hocket.client.lane import Positions
from hocket.errors import (
    Closed,
    Fenced,
    MessageTooLarge,
    OutOfRange,
    Timeout,
    TopicExists,
    UnknownTopic,
    WouldBlock,
    WrongKind,
    WrongType,
)
from hocket.model import MESSAGE_BYTES_MAX, Position, partition_of
from tests.broker_contract.worlds import new_name
from tests.support import noise, run, until_async


def on_loop(test):
    """The test is a coroutine of a client and the name of a new topic with four partitions."""

    @functools.wraps(test)
    def wrapped(world):
        async def main():
            async with world.aio_connect() as client:
                name = new_name()
                await client.create_topic(name, partitions=4)
                await test(client, name)

        run(main())

    del wrapped.__wrapped__  # or pytest would look for the coroutine's arguments
    return wrapped


async def read(client, topic, count, **options):
    async with client.subscribe(topic, **options) as sub:
        return [await sub.receive(timeout=20) for _ in range(count)]


@on_loop
async def test_topics(client, topic):
    assert topic in await client.topics()
    assert len((await client.describe(topic)).partitions) == 4
    await client.alter_topic(topic, partitions=5, disk_retention="1h")
    assert len((await client.describe(topic)).partitions) == 5
    with pytest.raises(TopicExists):
        await client.create_topic(topic)
    await client.create_topic(topic, exist_ok=True)
    await client.delete_topic(topic)
    await client.delete_topic(topic, missing_ok=True)
    with pytest.raises(UnknownTopic):
        await client.describe(topic)
    await client.ping()


@on_loop
async def test_publish(client, topic):
    position = await client.publish(
        topic, b"v", key=b"k", headers={"h": b"1"}, timestamp=7, timeout=20
    )
    assert position == Position(topic, partition_of(b"k", 4), 0)
    (message,) = await read(client, topic, 1)
    assert (message.value, message.key, message.headers) == (b"v", b"k", {"h": b"1"})
    assert (message.timestamp, message.offset, message.topic) == (7, 0, topic)


@on_loop
async def test_many_coroutines_publish_at_once(client, topic):
    positions = await asyncio.gather(
        *(client.publish(topic, b"%d" % n, key=b"%d" % n) for n in range(3000))
    )
    assert len(set(positions)) == 3000
    found = {(m.partition, m.offset): m.value for m in await read(client, topic, 3000)}
    for n, position in enumerate(positions):
        assert found[position.partition, position.offset] == b"%d" % n


@on_loop
async def test_a_producer(client, topic):
    told = []
    async with client.producer(topic, linger=0.001, on_delivery=told.append) as producer:
        for n in range(2000):
            await producer.send(b"%d" % n, key=b"%d" % (n % 5))
        await producer.send_many([b"%d" % n for n in range(2000, 3000)], [b"x"] * 1000)
        future = await producer.send_future(b"3000", partition=2)
        position = await future
        await producer.flush(timeout=20)
    assert position.partition == 2
    await until_async(lambda: sum(each.end - each.start for each in told) == 3001)
    assert all(isinstance(each, Positions) for each in told)
    found = await read(client, topic, 3001)
    for key in {message.key for message in found}:
        numbers = [int(message.value) for message in found if message.key == key]
        assert numbers == sorted(numbers)
    with pytest.raises(Closed):
        await producer.send(b"late")


@on_loop
async def test_a_large_message(client, topic):
    large = noise(20 << 20)
    await client.publish(topic, large, partition=0)
    (message,) = await read(client, topic, 1)
    assert message.value == large
    with pytest.raises(MessageTooLarge):
        await client.publish(topic, bytes(MESSAGE_BYTES_MAX))


@on_loop
async def test_the_window_lets_the_loop_turn(client, topic):
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with client.producer(topic, window_bytes=1, batch_bytes=100, linger=0) as producer:
        for n in range(200):
            await producer.send(b"%d" % n)
    counting.cancel()
    assert turns > 100
    assert len(await read(client, topic, 200)) == 200


@on_loop
async def test_a_subscription(client, topic):
    async with client.producer(topic) as producer:
        await producer.send_many([b"%d" % n for n in range(1000)])
    async with client.subscribe(topic, index="i") as sub:
        count = 0
        async for message in sub:
            await message.ack()
            count += 1
            if count == 500:
                break
        message = await sub.receive(timeout=20)
        await sub.commit()
        count = 501
        async for batch in sub.batches():
            count += batch.count
            await batch.ack()
            if count == 1000:
                break
        with pytest.raises(Timeout):
            await sub.receive(timeout=0.02)
        with pytest.raises(WouldBlock):
            sub.receive_nowait()
        assert sub.lag == 0
    assert await client.lag(topic, "i") == 0
    assert [each.name for each in await client.indexes(topic)] == ["i"]
    await client.seek(topic, "i", "earliest")
    assert await client.lag(topic, "i") == 1000
    await client.delete_index(topic, "i")
    assert await client.find_offsets(topic, "earliest") == [0, 0, 0, 0]


@on_loop
async def test_seeking(client, topic):
    for n in range(10):
        await client.publish(topic, b"%d" % n, partition=0)
    for index in (None, "i"):
        async with client.subscribe(topic, index=index) as sub:
            for _ in range(7):
                await sub.receive(timeout=20)
            await sub.seek(0, 5)
            assert sub.position(0) == 5
            assert int((await sub.receive(timeout=20)).value) == 5
            with pytest.raises(OutOfRange):
                await sub.seek(0, 99)
            assert int((await sub.receive(timeout=20)).value) == 6


@on_loop
async def test_bad_input(client, topic):
    for error, call in [
        (WrongType, lambda: client.publish(topic, "text")),
        (OutOfRange, lambda: client.create_topic("x", partitions=0)),
        (UnknownTopic, lambda: client.publish("nowhere", b"")),
    ]:
        with pytest.raises(error):
            await call()
    with pytest.raises(OutOfRange):
        client.producer(topic, linger=-1)
    with pytest.raises(UnknownTopic):
        await client.subscribe("nowhere")
    with pytest.raises(UnknownTopic):
        async with client.producer("nowhere"):
            pass
    await client.publish(topic, b"x", partition=0)
    async with client.subscribe(topic) as sub:
        with pytest.raises(WrongKind):
            await (await sub.receive(timeout=20)).ack()


@on_loop
async def test_fencing(client, topic):
    first = await client.subscribe(topic, index="i")
    async with client.subscribe(topic, index="i"):
        with pytest.raises(Fenced):
            await first.receive(timeout=20)
    await first.close()


@on_loop
async def test_a_cancelled_receive_loses_nothing(client, topic):
    async with client.subscribe(topic, index="i") as sub:
        for n in range(20):
            waiting = asyncio.create_task(sub.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await client.publish(topic, b"%d" % n, partition=0)
            assert int((await sub.receive(timeout=20)).value) == n


@on_loop
async def test_a_cancelled_publish_harms_no_other(client, topic):
    tasks = [asyncio.create_task(client.publish(topic, b"%d" % n)) for n in range(300)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, Position) for outcome in outcomes[1::2])
    described = await client.describe(topic)
    stored = {m.value for m in await read(client, topic, sum(p.end for p in described.partitions))}
    assert {b"%d" % n for n in range(1, 300, 2)} <= stored


def test_closing_ends_everything(world):
    async def main():
        client = await world.aio_connect()
        name = new_name()
        await client.create_topic(name)
        producer = await client.producer(name, linger=60)
        await producer.send(b"delivered")
        sub = await client.subscribe(name, index="i")
        iterating = asyncio.create_task(anext(aiter(sub)))
        await producer.flush()
        assert (await iterating).value == b"delivered"
        waiting = asyncio.create_task(sub.receive())
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        for call in (waiting, client.topics(), producer.send(b""), sub.receive()):
            with pytest.raises(Closed):
                await call

    run(main())


@pytest.mark.usefixtures("nothing_at_all_left_behind")
def test_an_embedded_broker_for_asyncio(tmp_path):
    async def main():
        async with hocket.aio.embedded(tmp_path / "data") as client:
            await client.create_topic("t")
            await client.publish("t", b"kept")
        client = await hocket.aio.embedded(tmp_path / "data")
        (message,) = await read(client, "t", 1)
        assert message.value == b"kept"
        await client.close()

    run(main())
