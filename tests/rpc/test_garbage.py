"""Where pycapnp's objects are freed, on which the life of the process depends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from hocket.rpc import garbage
from tests.support.rpc.world import Address, Sink, World, of, run, session
from tests.support.threads import until, until_async


async def eventful(address: Address) -> None:
    """A client's life, with errors of all sorts."""
    async with session(address) as one:
        topic = (await one.createTopic("t", existOk=True)).topic
        sinks = [Sink() for _ in range(3)]
        sinks[2].fail = True
        own = (await topic.subscribe({"index": "own"}, sinks[0])).subscription
        shared = (await topic.subscribe({"index": "w", "mode": "shared"}, sinks[1])).subscription
        broken = (await topic.subscribe({}, sinks[2])).subscription
        producer = (await topic.producer({})).producer
        await producer.push(of(b"a", b"b"))
        await producer.flush()
        await sinks[0].received(2)
        await sinks[1].received(2)
        await until_async(lambda: sinks[2].calls)
        wrong = [
            one.deleteTopic("none"),
            one.createTopic("t"),
            one.topic("no name"),
            one.topic("none").topic.publish(of(b"x")),
            one.topic("none").topic.producer({}),
            one.topic("none").topic.subscribe({}, sinks[0]),
            own.ack(0, 0, 99),
            shared.ack(0, 50, 99),
            broken.commit(),
            producer.push({"encoded": bytes(80)}),
            producer.flush(),
        ]
        for call in wrong:
            with pytest.raises(Exception, match="remote exception"):
                await call
        given_up = asyncio.ensure_future(_wait(own.commit()))
        await asyncio.sleep(0)
        given_up.cancel()
        await own.close()
        del shared


async def _wait(promise: object) -> None:
    await promise  # type: ignore[misc]


def test_nothing_of_pycapnps_is_left_in_a_circle(here: World):
    """The client lives in another process, so whatever there is here is the endpoint's."""
    client = [sys.executable, "-m", "tests.rpc.test_garbage", *map(str, here.address)]

    def life() -> None:
        subprocess.run(client, cwd=Path(__file__).parents[2], timeout=60, check=True)
        until(lambda: here.links == 0)

    life()  # what is made once is made now
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        life()
        assert gc.collect() > 0  # the client has circles of its own, which do no harm
        found = Counter(type(each) for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    dangerous = {
        kind.__name__
        for kind in found
        if kind.__module__.startswith(("capnp", "hocket.rpc.capabilities", "hocket.rpc.delivery"))
    }
    assert not dangerous


def test_in_its_own_process_the_endpoint_alone_collects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(garbage, "PAUSE_SECONDS", 0.001)
    threads: set[int] = set()

    def collected(phase: str, _info: dict[str, int]) -> None:
        threads.add(threading.get_ident())

    async def main() -> None:
        collecting = asyncio.ensure_future(garbage.collect_here())
        await asyncio.sleep(0)
        assert not gc.isenabled()
        circles = threading.Thread(target=make_circles)
        circles.start()
        await until_async(lambda: threads)
        circles.join()
        collecting.cancel()
        await asyncio.wait([collecting])

    gc.callbacks.append(collected)
    try:
        asyncio.run(main())
    finally:
        gc.callbacks.remove(collected)
    assert threads == {threading.get_ident()}
    assert gc.isenabled()


def make_circles() -> None:
    for _ in range(10 * gc.get_threshold()[0]):
        circle: list[object] = []
        circle.append(circle)


if __name__ == "__main__":
    run(eventful((sys.argv[1], int(sys.argv[2]))))
