"""A busy RPC client in a process of its own, to be killed: `storm_client HOST PORT NAME`.

It pushes, publishes, subscribes, acknowledges and drops what it has, until somebody ends it.
"""

from __future__ import annotations

import asyncio
import random
import sys

import capnp

from tests.support.rpc.world import Sink, of, session

SMALL = {"memoryBytesMax": 1 << 20}  # what the broker keeps in memory is to be seen


async def main(host: str, port: str, name: str) -> None:
    chance = random.Random(name)
    async with capnp.kj_loop():
        while True:
            async with session((host, int(port))) as one:
                topic = (await one.createTopic("storm", SMALL, existOk=True)).topic
                producer = (await topic.producer({"windowBytes": 100_000})).producer
                sink = Sink()
                mode = chance.choice(["own", "shared", "keyShared"])
                options = {"index": f"storm-{mode}", "mode": mode, "windowBytes": 50_000}
                reading = (await topic.subscribe(options, sink)).subscription
                sys.stdout.write("busy\n")
                sys.stdout.flush()
                for _ in range(chance.randrange(20, 60)):
                    pushes = [producer.push(of(*[bytes(500)] * 50)) for _ in range(5)]
                    await topic.publish({"records": [{"key": b"%d" % _, "value": bytes(100)}]})
                    await pushes[chance.randrange(5)]
                    if sink.records and chance.random() < 0.3:
                        last = sink.records[-1]["offset"] + 1
                        await asyncio.wait([asyncio.ensure_future(_quiet(reading.ack(0, 0, last)))])


async def _quiet(promise: object) -> None:
    try:
        await promise  # type: ignore[misc]
    except capnp.KjException:
        return  # it was taken over, or not held any more


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
