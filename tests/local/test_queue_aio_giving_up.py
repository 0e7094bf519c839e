"""Coroutines that give up: cancelled, timed out, or left behind in a loop that is closed."""

import asyncio
import random
import threading

import pytest

from hocket.errors import Aborted, Timeout
from tests.support.queues.listeners import Accepts, History
from tests.support.queues.worlds import PORT, World, drain, fill, mebibyte, numbered
from tests.support.threads import run, settle, until


@pytest.fixture(params=["full-event", "mixed"])
def world(request):
    with World(request.param) as made:
        yield made


async def take(queue, count):
    return [await queue.receive_async(timeout=10) for _ in range(count)]


@pytest.mark.parametrize("give_up", ["timeout", "cancel"])
def test_a_connect_async_given_up_leaves_no_queue_behind(world, give_up):
    late = world.pump("late", start=False)  # so the answer cannot come yet
    client = world.broker("late client", late)
    server = world.broker("server", world.server_pump)
    histories = []

    def heard(_queue):
        histories.append(History())
        return histories[-1]

    server.bind(PORT, Accepts(heard))

    async def main():
        if give_up == "timeout":
            with pytest.raises(Timeout):
                await client.connect_async("server", PORT, timeout=0.01)
        else:
            connecting = asyncio.create_task(client.connect_async("server", PORT))
            await settle()
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting

    run(main())
    late.start()
    world.on_pump(late, lambda: None)
    world.settle()
    until(lambda: client.queues == server.queues == [])
    until(lambda: all(history.reasons for history in histories))
    assert all(type(history.reason) is Aborted for history in histories)


def test_a_connect_async_cancelled_just_after_the_answer_leaves_no_queue_behind(world):
    client, server = world.brokers()
    accepts = Accepts()
    server.bind(PORT, accepts)

    async def main():
        go_on = threading.Event()
        client.pump.post(lambda: go_on.wait(10))
        connecting = asyncio.create_task(client.connect_async("server", PORT))
        await settle()
        go_on.set()
        until(lambda: client.queues and accepts.queues)  # the loop stands still meanwhile
        world.settle()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    run(main())
    until(lambda: client.queues == server.queues == [])


def test_a_cancelled_receive_takes_no_message(world):
    mine, theirs = world.pair()

    async def main():
        waiting = asyncio.create_task(theirs.receive_async())
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        mine.send(b"x")
        assert await theirs.receive_async(timeout=10) == b"x"

    run(main())


def test_a_cancelled_receive_passes_its_wake_up_to_the_next(world):
    mine, theirs = world.pair()

    async def main():
        for number in range(50):
            first = asyncio.create_task(theirs.receive_async())
            second = asyncio.create_task(theirs.receive_async())
            await settle()
            message = b"%d" % number
            mine.send(message)
            first.cancel()  # before or after the wake-up has reached it
            got = await asyncio.wait({first, second}, return_when=asyncio.ALL_COMPLETED, timeout=1)
            done = [task for task in got[0] if not task.cancelled()]
            if first in done:  # it had the message already; the second still waits
                assert first.result() == message
                second.cancel()
            else:
                assert [task.result() for task in done] == [message]
            await asyncio.gather(first, second, return_exceptions=True)

    run(main())


def test_a_cancelled_send_has_sent_nothing_and_lets_the_next_go_on(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=40)

    async def main():
        first = asyncio.create_task(mine.send_async(b"first"))
        second = asyncio.create_task(mine.send_async(b"second"))
        await settle()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        got = await take(theirs, len(taken) + 1)
        await second
        return got

    assert run(main()) == [*taken, b"second"]
    assert theirs.receive() is None


@pytest.mark.parametrize("seed", range(3))
def test_receives_cancelled_at_any_moment_lose_and_double_nothing(world, seed):
    rng = random.Random(f"cancel/{seed}")
    mine, theirs = world.pair()
    messages = numbered(300)

    def send():
        for message in messages:
            mine.send_wait(message, timeout=10)
            if rng.random() < 0.1:
                world.on_pump(world.client_pump, lambda: None)

    async def main():
        got, given_up = [], 0
        while len(got) < len(messages):
            try:
                patience = rng.choice([0, 0.0001, 0.001])
                got.append(await asyncio.wait_for(theirs.receive_async(), patience))
            except TimeoutError:
                given_up += 1
        return got

    sender = world.thread(send)
    assert run(main()) == messages
    sender.result()
    assert theirs.receive() is None


def test_a_waiter_left_behind_in_a_closed_loop_harms_nobody(world):
    mine, theirs = world.pair()
    loop = asyncio.new_event_loop()
    left = loop.create_task(theirs.receive_async())
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    left._log_destroy_pending = False  # it is left behind on purpose
    waiting = world.thread(theirs.receive_wait, 10).parked()
    for message in numbered(3):
        assert mine.send(message) is True
    assert waiting.result() == b"0"
    assert theirs.receive_wait(timeout=10) == b"1"
    assert run(theirs.receive_async(timeout=10)) == b"2"
    mine.close()
    until(lambda: theirs.closed)


def test_a_sender_left_behind_in_a_closed_loop_harms_nobody(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=40)
    loop = asyncio.new_event_loop()
    left = loop.create_task(mine.send_async(b"never"))
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    left._log_destroy_pending = False
    waiting = world.thread(mine.send_wait, b"after", 10).parked()
    assert drain(theirs, len(taken)) == taken
    waiting.result()
    assert theirs.receive_wait(timeout=10) == b"after"
