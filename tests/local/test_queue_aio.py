"""The asyncio face of the queues, in both worlds: coroutines at one end, threads at the other."""

import asyncio

import pytest

from hocket.errors import (
    Aborted,
    BadName,
    BusyResource,
    Closed,
    OutOfRange,
    PortNotBound,
    Timeout,
    UnknownBroker,
    WrongKind,
    WrongType,
)
from hocket.local import Broker
from hocket.local.aio import MESSAGES_PER_TURN
from tests.support.queues.listeners import Accepts, Connects, Echo, History
from tests.support.queues.worlds import PORT, World, drain, fill, mebibyte, numbered
from tests.support.threads import run, settle, until, until_async


@pytest.fixture(params=["full-event", "mixed"])
def world(request):
    with World(request.param) as made:
        yield made


async def take(queue, count):
    return [await queue.receive_async(timeout=10) for _ in range(count)]


def test_connect_async_gives_the_queue(world):
    client, server = world.brokers()
    accepts = Accepts(Echo)
    server.bind(PORT, accepts)

    async def main():
        queue = await client.connect_async("server", PORT)
        assert client.queues == [queue]
        await queue.send_async(b"hello")
        assert await queue.receive_async() == b"hello"
        return queue

    queue = run(main())
    until(lambda: accepts.queues)
    assert accepts.queues[0].remote_port == queue.local_port


def test_connect_async_raises_the_reason_of_a_refusal(world):
    client, _server = world.brokers()

    async def main():
        with pytest.raises(UnknownBroker):
            await client.connect_async("nobody", PORT)
        with pytest.raises(PortNotBound):
            await client.connect_async("server", PORT, timeout=10)
        with Broker("threads", world.manager), pytest.raises(WrongKind):
            await client.connect_async("threads", PORT)
        client.close()
        with pytest.raises(Closed):
            await client.connect_async("server", PORT)

    run(main())


def test_connect_async_checks_its_arguments(world):
    client, _server = world.brokers()

    async def main():
        for wrong, error in ((("", PORT), BadName), ((5, PORT), WrongType)):
            with pytest.raises(error):
                await client.connect_async(*wrong)
        for wrong, error in (("80", WrongType), (True, WrongType), (-1, OutOfRange)):
            with pytest.raises(error):
                await client.connect_async("server", wrong)
        with pytest.raises(OutOfRange):
            await client.connect_async("server", PORT, timeout=-1)

    run(main())


def test_a_thousand_messages_each_way_between_a_coroutine_and_a_thread(world):
    mine, theirs = world.pair(messages_max=16)
    there, back = numbered(1000), numbered(1000, start=5000)

    def in_thread():
        for message in back:
            theirs.send_wait(message, timeout=10)

    async def main():
        async def send():
            for message in there:
                await mine.send_async(message)

        sending = asyncio.create_task(send())
        got = await take(mine, 1000)
        await sending
        return got

    sender, reader = world.thread(in_thread), world.thread(drain, theirs, 1000)
    assert run(main()) == back
    assert reader.result() == there
    sender.result()


def test_coroutines_at_both_ends_of_a_queue_in_one_loop(world):
    mine, theirs = world.pair(messages_max=4)
    messages = [b"%d:" % n + bytes(50_000) for n in range(100)]

    async def main():
        async def send():
            for message in messages:
                await mine.send_async(message)
            mine.close()

        async def receive():
            return [message async for message in theirs]

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            receiving = group.create_task(receive())
        return receiving.result()

    assert run(main()) == messages


def test_a_coroutine_and_a_listener_that_echoes(world):
    client, server = world.brokers(messages_max=2)
    server.bind(PORT, Accepts(lambda queue: Echo(queue, polite=True)))
    messages = [b"%d:" % n + bytes(n % 5 * 10_000) for n in range(200)]

    async def main():
        queue = await client.connect_async("server", PORT, timeout=10)

        async def send():
            for message in messages:
                await queue.send_async(message, timeout=10)

        sending = asyncio.create_task(send())
        got = await take(queue, len(messages))
        await sending
        return got

    assert run(main()) == messages


def test_async_for_ends_quietly_after_a_graceful_close(world):
    mine, theirs = world.pair()
    for message in numbered(5):
        mine.send(message)
    mine.close()

    async def main():
        return [message async for message in theirs]

    assert run(main()) == numbered(5)
    assert run(main()) == []


def test_async_for_raises_closed_after_an_abort(world):
    mine, theirs = world.pair()

    async def main():
        got = []
        try:
            async for message in theirs:
                got.append(message)
                mine.abort()
        except Closed as closed:
            got.append(type(closed.__cause__))
        return got

    mine.send(b"x")
    assert run(main()) == [b"x", Aborted]


@pytest.mark.parametrize("end", ["close", "abort", "their close", "their abort"])
def test_receive_async_is_woken_by_the_end(world, end):
    mine, theirs = world.pair()

    async def main():
        waiting = [asyncio.create_task(mine.receive_async()) for _ in range(3)]
        await settle()
        queue = theirs if end.startswith("their") else mine
        getattr(queue, end.removeprefix("their "))()
        return await asyncio.gather(*waiting, return_exceptions=True)

    outcomes = run(main())
    assert [type(outcome) for outcome in outcomes] == [Closed] * 3
    causes = [type(outcome.__cause__) for outcome in outcomes]
    assert causes == [Aborted if "abort" in end else type(None)] * 3


def test_receive_async_times_out_and_loses_nothing(world):
    mine, theirs = world.pair()

    async def main():
        for timeout in (0, 0.01):
            with pytest.raises(Timeout):
                await theirs.receive_async(timeout=timeout)
        mine.send(b"x")
        assert await theirs.receive_async(timeout=10) == b"x"
        assert theirs.receive() is None

    run(main())


def test_receive_async_with_a_listener_set_is_refused(world):
    mine, theirs, _, history = world.heard_pair()

    async def main():
        with pytest.raises(BusyResource):
            await theirs.receive_async(timeout=10)
        with pytest.raises(BusyResource):
            async for _ in theirs:
                pass

    run(main())
    mine.send(b"x")
    until(lambda: history.messages == [b"x"])


def test_a_busy_queue_lets_the_loop_turn_to_others(world):
    mine, theirs = world.pair()
    count = 3 * MESSAGES_PER_TURN

    async def main():
        turns = 0
        taken = []

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        competitor = asyncio.create_task(other())
        async for message in theirs:
            taken.append(message)
            if len(taken) == count:
                break
        competitor.cancel()
        return turns, taken

    for message in numbered(count):
        mine.send(message)
    until(lambda: len(theirs._inbound.messages) == count)  # so that no receive has to wait
    turns, taken = run(main())
    assert taken == numbered(count)
    assert turns >= 3


def test_wrong_arguments_of_the_coroutines_are_refused(world):
    mine, theirs = world.pair()

    async def main():
        for wrong in (None, "text", 5):
            with pytest.raises(WrongType):
                await mine.send_async(wrong)
        with pytest.raises(OutOfRange):
            await mine.send_async(b"x", timeout=-1)
        with pytest.raises(OutOfRange):
            await mine.receive_async(timeout=-1)
        await mine.send_async(b"after")
        assert await theirs.receive_async(timeout=10) == b"after"
        assert theirs.receive() is None

    run(main())


def test_send_async_waits_for_room_and_a_timeout_has_sent_nothing(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=40)

    async def main():
        with pytest.raises(Timeout):
            await mine.send_async(b"late", timeout=0.01)
        with pytest.raises(Timeout):
            await mine.send_async(b"later", timeout=0)
        waiting = asyncio.create_task(mine.send_async(b"patient"))
        await settle()
        assert not waiting.done()
        got = await take(theirs, len(taken))
        await waiting
        return got

    assert run(main()) == taken
    assert theirs.receive_wait(timeout=10) == b"patient"
    assert theirs.receive() is None


@pytest.mark.parametrize("end", ["close", "abort", "their abort"])
def test_send_async_is_woken_by_the_end(world, end):
    mine, theirs = world.pair(messages_max=4)
    fill(mine, mebibyte, most=40)

    async def main():
        waiting = [asyncio.create_task(mine.send_async(b"never")) for _ in range(3)]
        await settle()
        queue = theirs if end.startswith("their") else mine
        getattr(queue, end.removeprefix("their "))()
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in run(main())] == [Closed] * 3

    async def later():
        with pytest.raises(Closed):
            await mine.send_async(b"never")

    run(later())


def test_two_loops_in_two_threads_share_one_end(world):
    mine, theirs = world.pair()
    readers = [world.thread(run, take(theirs, 50)) for _ in range(2)]
    for message in numbered(100):
        mine.send(message)
    shares = [reader.result() for reader in readers]
    assert sorted(int(message) for share in shares for message in share) == list(range(100))
    for share in shares:
        assert share == sorted(share, key=int)


def test_many_connects_at_once(world):
    client, server = world.brokers()
    server.bind(PORT, Accepts(Echo))
    count = 50

    async def one(number):
        queue = await client.connect_async("server", PORT, timeout=10)
        await queue.send_async(b"%d" % number)
        got = await queue.receive_async(timeout=10)
        queue.close()
        with pytest.raises(Closed):
            await queue.receive_async(timeout=10)
        return got

    async def main():
        got = await asyncio.gather(*(one(number) for number in range(count)))
        await until_async(lambda: client.queues == server.queues == [])
        return got

    assert run(main()) == numbered(count)


def test_a_listener_and_a_connect_listener_may_wake_coroutines(world):
    client, server = world.brokers()
    connects, accepts = Connects(), Accepts()
    server.bind(PORT, accepts)

    async def main():
        client.connect("server", PORT, connects)
        await until_async(lambda: connects.queues and accepts.queues)
        loop = asyncio.get_running_loop()
        heard = loop.create_future()
        mine, theirs = connects.queues[0], accepts.queues[0]
        theirs.set_listener(
            History(on_received=lambda m: loop.call_soon_threadsafe(heard.set_result, m))
        )
        await mine.send_async(b"x")
        return await heard

    assert run(main()) == b"x"
