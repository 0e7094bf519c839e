"""Broker: what `close` wakes and leaves alone, and the asyncio faces of the rendezvous."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from hocket.errors import (
    Closed,
    Disconnected,
    OutOfRange,
    PortInUse,
    Timeout,
    UnknownBroker,
    WrongType,
)
from hocket.local import Broker, BrokerManager
from tests.local.test_broker import assert_joined, waiting
from tests.support.threads import Running, run, until, until_async


@pytest.fixture
def manager() -> BrokerManager:
    return BrokerManager()


@pytest.fixture
def server(manager: BrokerManager) -> Iterator[Broker]:
    with Broker("server", manager) as broker:
        yield broker


@pytest.fixture
def client(manager: BrokerManager) -> Iterator[Broker]:
    with Broker("client", manager) as broker:
        yield broker


# --- close ---------------------------------------------------------------------------------------


def test_closing_wakes_its_blocked_accepts(server: Broker):
    with Running(server.accept, 1) as one, Running(server.accept, 2, timeout=10) as two:
        until(lambda: len(server.rendezvous) == 2)
        one.parked()
        two.parked()
        server.close()
        one.failure(Closed)
        two.failure(Closed)
    assert server.rendezvous == []


def test_closing_wakes_the_connects_that_wait_on_it(server: Broker, client: Broker):
    with (
        Running(client.connect, "server", 1) as one,
        Running(client.connect, "server", 1) as two,
        Running(server.connect, "server", 2) as own,
    ):
        until(lambda: len(server.rendezvous) == 3)
        for connect in (one, two, own):
            connect.parked()
        server.close()
        for connect in (one, two, own):
            connect.failure(Closed)
    assert server.rendezvous == []


def test_closing_wakes_its_own_connects_elsewhere_and_nobody_elses(
    manager: BrokerManager, server: Broker, client: Broker
):
    with (
        Broker("third", manager) as third,
        Running(client.connect, "server", 1) as from_client,
    ):
        until(lambda: len(server.rendezvous) == 1)
        with Running(third.connect, "server", 1) as from_third, Running(server.accept, 2) as accept:
            until(lambda: len(server.rendezvous) == 3)
            client.close()
            from_client.failure(Closed)
            assert sorted(waiting(server)) == [(1, "connect", "third"), (2, "accept", "server")]
            assert_joined(server.accept(1), from_third.result())
            assert_joined(third.connect("server", 2), accept.result())


def test_a_closed_name_is_unknown_and_free(manager: BrokerManager, client: Broker):
    first = Broker("name", manager)
    first.close()
    assert first.closed
    assert manager.find("name") is None
    with pytest.raises(UnknownBroker):
        client.connect("name", 80)
    with Broker("name", manager) as second, Running(second.accept, 80) as accept:
        assert manager.find("name") is second
        first.close()  # idempotent, and without harm to the new owner of the name
        assert manager.find("name") is second
        until(lambda: second.rendezvous)
        assert_joined(client.connect("name", 80), accept.result())


def test_closing_leaves_live_channels_alone(server: Broker, client: Broker):
    with Running(server.accept, 80) as accept:
        near, far = client.connect("server", 80), accept.result()
    near.write_all(b"before")
    server.close()
    client.close()
    assert far.read_exactly(6, timeout=5) == b"before"
    assert_joined(near, far)
    near.disconnect()
    with pytest.raises(Disconnected):
        far.read(bytearray(1), timeout=5)


def test_closing_wakes_nobody_blocked_on_a_live_channel(server: Broker, client: Broker):
    with Running(server.accept, 80) as accept:
        near, far = client.connect("server", 80), accept.result()
    with Running(far.read_exactly, 2) as reader:
        reader.parked()
        server.close()
        client.close()
        assert not reader.done
        near.write_all(b"ok")
        assert reader.result() == b"ok"


def test_a_with_block_closes_at_its_end_and_lets_a_failure_through(manager: BrokerManager):
    def body() -> None:
        with Broker("b", manager) as broker:
            assert not broker.closed
            assert (broker.name, broker.manager) == ("b", manager)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert manager.brokers() == []


def test_closing_twice_or_from_many_threads_is_fine(manager: BrokerManager):
    for _ in range(20):
        broker = Broker("b", manager)
        start = threading.Barrier(3)

        def close(broker: Broker = broker, start: threading.Barrier = start) -> None:
            start.wait(10)
            broker.close()

        with Running(broker.accept, 1) as accept, Running(close), Running(close), Running(close):
            accept.failure(Closed)  # whether it waited already or came too late
        broker.close()
        assert broker.closed
        assert manager.brokers() == []


# --- the asyncio faces ---------------------------------------------------------------------------


def test_two_coroutines_meet_whoever_comes_first(server: Broker, client: Broker):
    async def main() -> None:
        accept = asyncio.ensure_future(server.accept_async(80))
        await until_async(lambda: server.rendezvous)
        assert waiting(server) == [(80, "accept", "server")]
        assert_joined(await client.connect_async("server", 80), await accept)
        connect = asyncio.ensure_future(client.connect_async("server", 80))
        await until_async(lambda: server.rendezvous)
        assert waiting(server) == [(80, "connect", "client")]
        assert_joined(await server.accept_async(80), await connect)
        assert server.rendezvous == []

    run(main())


def test_a_coroutine_meets_a_thread_on_either_side(server: Broker, client: Broker):
    with Running(server.accept, 80) as accept:
        accept.parked()
        assert_joined(run(client.connect_async("server", 80)), accept.result())
    with Running(client.connect, "server", 80) as connect:
        connect.parked()
        assert_joined(run(server.accept_async(80)), connect.result())

    async def accept_first() -> None:
        accept = asyncio.ensure_future(server.accept_async(80))
        await until_async(lambda: server.rendezvous)
        with Running(client.connect, "server", 80) as connect:
            assert_joined(await accept, connect.result())

    run(accept_first())


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_coroutine_that_times_out_leaves_nothing_behind(
    server: Broker, client: Broker, timeout: float
):
    async def main() -> None:
        with pytest.raises(Timeout):
            await server.accept_async(80, timeout=timeout)
        with pytest.raises(Timeout):
            await client.connect_async("server", 80, timeout=timeout)
        assert server.rendezvous == []

    run(main())


def test_cancelling_withdraws_the_rendezvous(server: Broker, client: Broker):
    async def main() -> None:
        first = asyncio.ensure_future(client.connect_async("server", 80))
        await until_async(lambda: len(server.rendezvous) == 1)
        second = asyncio.ensure_future(client.connect_async("server", 80))
        accept = asyncio.ensure_future(server.accept_async(81))
        await until_async(lambda: len(server.rendezvous) == 3)
        first.cancel()
        accept.cancel()
        await asyncio.gather(first, accept, return_exceptions=True)
        assert (first.cancelled(), accept.cancelled()) == (True, True)
        assert waiting(server) == [(80, "connect", "client")]
        assert_joined(await server.accept_async(80), await second)
        with pytest.raises(Timeout):
            await client.connect_async("server", 81, timeout=0)

    run(main())


def test_a_connect_cancelled_just_as_it_is_matched_leaves_no_one_alone(
    server: Broker, client: Broker
):
    async def main() -> None:
        connect = asyncio.ensure_future(client.connect_async("server", 80))
        await until_async(lambda: server.rendezvous)
        near = await server.accept_async(80)  # matched; the other side has not woken up yet
        connect.cancel()
        outcome = (await asyncio.gather(connect, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            with pytest.raises(Disconnected):
                await near.read_async(bytearray(1), timeout=5)
        else:
            assert_joined(near, outcome)

    run(main())


def test_a_coroutine_cancelled_just_as_a_broker_closes_is_cancelled(server: Broker, client: Broker):
    async def main() -> None:
        accept = asyncio.ensure_future(server.accept_async(80))
        connect = asyncio.ensure_future(client.connect_async("server", 81))
        await until_async(lambda: len(server.rendezvous) == 2)
        server.close()  # both are to be woken with Closed, and have not run yet
        accept.cancel()
        connect.cancel()
        await asyncio.wait([accept, connect])
        assert (accept.cancelled(), connect.cancelled()) == (True, True)

    run(main())


def test_closing_wakes_coroutines_too(server: Broker, client: Broker):
    async def main() -> None:
        calls = [
            asyncio.ensure_future(server.accept_async(1)),
            asyncio.ensure_future(client.connect_async("server", 2)),
            asyncio.ensure_future(client.connect_async("server", 2, timeout=10)),
        ]
        await until_async(lambda: len(server.rendezvous) == 3)
        with Running(server.close):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Closed, Closed, Closed]
        with pytest.raises(Closed):
            await server.accept_async(1)
        with pytest.raises(UnknownBroker):
            await client.connect_async("server", 1)

    run(main())


def test_the_coroutines_refuse_what_the_threads_refuse(server: Broker, client: Broker):
    async def main() -> None:
        accept = asyncio.ensure_future(server.accept_async(80))
        await until_async(lambda: server.rendezvous)
        with pytest.raises(PortInUse):
            await server.accept_async(80)
        with pytest.raises(PortInUse):
            server.accept(80)
        for port, error in ((-1, OutOfRange), ("80", WrongType), (True, WrongType)):
            with pytest.raises(error):
                await server.accept_async(port)  # type: ignore[arg-type]
            with pytest.raises(error):
                await client.connect_async("server", port)  # type: ignore[arg-type]
        for timeout, error in ((-1, OutOfRange), (float("nan"), OutOfRange), ("1", WrongType)):
            with pytest.raises(error):
                await server.accept_async(81, timeout=timeout)  # type: ignore[arg-type]
            with pytest.raises(error):
                await client.connect_async("server", 81, timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(UnknownBroker):
            await client.connect_async("nobody", 80)
        assert waiting(server) == [(80, "accept", "server")]
        assert_joined(await client.connect_async("server", 80), await accept)

    run(main())


def test_a_coroutine_left_behind_on_a_closed_loop_does_not_stop_close(
    manager: BrokerManager, server: Broker
):
    loop = asyncio.new_event_loop()
    task = loop.create_task(server.accept_async(80))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(until_async(lambda: server.rendezvous))
    loop.close()
    server.close()
    assert server.rendezvous == []
    with Broker("server", manager):
        assert not task.done()
    del task
    gc.collect()  # the coroutine dies here, quietly: a complaint would be a warning, so an error
