"""What a program does that uses all levels: channels, queues, asyncio, and a broker at argv[1]."""

from __future__ import annotations

import asyncio
import os
import select
import sys

import hocket
from hocket.local import Broker, BrokerManager, EventPump, MessageQueue, QueueBroker, Task

TOTAL = 200_000  # bytes: more than a ring holds, so that both sides wait for each other


def channels() -> None:
    manager = BrokerManager()
    with Broker("left", manager) as left, Broker("right", manager) as right:
        with Task(right.accept, 80) as accepting:
            near = left.connect("right", 80)
        far = accepting.result
        with Task(near.write_all, b"x" * TOTAL):
            assert len(far.read_exactly(TOTAL)) == TOTAL
        near.disconnect()
        far.disconnect()


class Accepted:
    def __init__(self) -> None:
        self.queues: list[MessageQueue] = []

    def accepted(self, queue: MessageQueue) -> None:
        self.queues.append(queue)


async def queues() -> None:
    manager, accepted = BrokerManager(), Accepted()
    with EventPump("pump") as pump:
        left, right = QueueBroker("left", pump, manager), QueueBroker("right", pump, manager)
        right.bind(80, accepted)
        near = await left.connect_async("right", 80)
        (far,) = accepted.queues
        for number in range(1000):
            await near.send_async(b"%d" % number)
            assert bytes(await far.receive_async()) == b"%d" % number
        near.close()


async def topics(url: str) -> None:
    async with hocket.aio.connect(url) as client:
        await client.create_topic("t", partitions=2)
        async with client.producer("t") as producer:
            for number in range(1000):
                await producer.send(b"%d" % number, key=b"%d" % (number % 7))
        async with client.subscribe("t", index="i", mode="shared") as messages:
            for _ in range(1000):
                await (await messages.receive(timeout=30)).ack()
            await messages.commit()
        assert await client.lag("t", "i") == 0


def embedded() -> None:
    with hocket.embedded() as client:
        client.create_topic("t")
        client.publish("t", {"n": 1}, value=dict)
        with client.subscribe("t", value=dict) as messages:
            assert messages.receive(timeout=30).value == {"n": 1}


if __name__ == "__main__":
    assert not hasattr(os, "eventfd")
    assert not hasattr(select, "epoll")
    channels()
    asyncio.run(queues())
    asyncio.run(topics(sys.argv[1]))
    embedded()
    sys.stdout.write("done\n")
