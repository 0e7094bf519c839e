"""What a capability stands for lives for as long as it is held, and no longer."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import capnp
import pytest

from hocket.model import Limits
from hocket.node.settings import NodeSettings
from hocket.rpc import connection as connections
from hocket.rpc.schema import rpc_capnp
from tests.support.certificates import made
from tests.support.rpc.world import Sink, World, connected, fails, of, run, session, world
from tests.support.threads import until, until_async


def test_a_session_ends_when_it_is_dropped(here: World):
    async def main() -> None:
        async with connected(here.address) as broker:
            one = (await broker.login("", "a")).session
            two = (await broker.login("", "b")).session
            assert here.links == 2
            del one
            await until_async(lambda: here.links == 1)
            assert list((await two.topics()).names) == []

    run(main())
    until(lambda: here.links == 0)


def test_what_came_of_a_session_keeps_it(here: World):
    async def main() -> None:
        async with connected(here.address) as broker:
            one = (await broker.login("", "a")).session
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({})).producer
            del one, topic
            await producer.push(of(b"x"))
            [end] = (await producer.flush()).ends
            assert end.offset == 1
            del producer, end
            await until_async(lambda: here.links == 0)

    run(main())


def test_calls_can_be_pipelined(here: World):
    """The whole way in one round trip: nothing is awaited but the last."""

    async def main() -> None:
        async with connected(here.address) as broker:
            session = broker.login("", "a").session
            place = await session.createTopic("t").topic.publish(of(b"x"))
            assert place.offset == 0

    run(main())


def test_a_dropped_producer_delivers_what_was_pushed(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({"lingerUs": 60_000_000})).producer
            await producer.push(of(b"x", b"y"))
            del producer
            sink = Sink()
            held = await topic.subscribe({}, sink)
            assert await sink.received(2) == [b"x", b"y"]
            del held

    run(main())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_lost_connection_closes_everything_of_it(here: World, how: str):
    async def main() -> None:
        sock = socket.create_connection(here.address)
        stream = await capnp.AsyncIoStream.create_connection(sock=sock)
        client = capnp.TwoPartyClient(stream)
        broker = client.bootstrap().cast_as(rpc_capnp.Broker)
        one = (await broker.login("", "a")).session
        topic = (await one.createTopic("t")).topic
        producer = (await topic.producer({"lingerUs": 60_000_000})).producer
        await producer.push(of(b"x"))
        held = await topic.subscribe({"index": "i"}, Sink())
        assert here.links == 1
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.close()
        stream.close()
        await until_async(lambda: here.links == 0)
        async with session(here.address) as two:
            sink = Sink()
            reading = await two.topic("t").topic.subscribe({"index": "i"}, sink)
            assert await sink.received(1) == [b"x"]
            del reading
        del held

    run(main())


def test_a_call_given_up_is_given_up_here_too(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({})).producer
            for _ in range(200):
                flushing = asyncio.ensure_future(_wait(producer.flush()))
                await asyncio.sleep(0)
                flushing.cancel()
            await producer.push(of(b"x"))
            [end] = (await producer.flush()).ends
            assert end.offset == 1

    run(main())


async def _wait(promise: Any) -> Any:
    return await promise


# --- limits --------------------------------------------------------------------------------------


def test_a_connection_that_does_not_log_in_is_hung_up_on(
    here: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "LOGIN_SECONDS", 0.05)
    with socket.create_connection(here.address) as sock:
        sock.settimeout(10)
        assert sock.recv(1) == b""


def test_connections_beyond_the_limit_are_refused(tmp_path: Path):
    settings = NodeSettings(limits=replace(Limits(), connections_max=2))
    with world(tmp_path / "data", settings) as here:

        async def main() -> None:
            async with session(here.address), session(here.address):
                with pytest.raises(capnp.KjException):
                    async with session(here.address):
                        raise AssertionError("it was let in")
            await until_async(lambda: here.links == 0)

            async def is_let_in() -> bool:
                try:
                    async with session(here.address):
                        return True
                except capnp.KjException:
                    return False

            while not await is_let_in():
                await asyncio.sleep(0)

        run(main())


def test_logins_beyond_the_limit_are_refused(here: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "LOGINS_MAX", 3)

    async def main() -> None:
        async with connected(here.address) as broker:
            sessions = [(await broker.login("", "")).session for _ in range(3)]
            async with fails("limitExceeded", "3 sessions"):
                await broker.login("", "")
            sessions.pop()
            await until_async(lambda: here.links == 2)
            await broker.login("", "")

    run(main())


def test_a_message_that_is_too_large_costs_its_connection_only(tmp_path: Path):
    settings = NodeSettings(limits=replace(Limits(), frame_bytes_max=1 << 20))
    with world(tmp_path / "data", settings) as here:

        async def main() -> None:
            async with session(here.address) as two:
                async with session(here.address) as one:
                    topic = (await one.createTopic("t")).topic
                    await topic.publish(of(bytes(1 << 19)))
                    with pytest.raises(capnp.KjException):
                        await topic.publish(of(bytes(2 << 20)))
                place = await two.topic("t").topic.publish(of(b"x"))
                assert place.offset == 1

        run(main())


def test_calls_that_flood_in_are_read_as_they_are_done(
    here: World, monkeypatch: pytest.MonkeyPatch
):
    """However many calls a client makes at once, only so many are in progress here."""
    monkeypatch.setattr(connections, "CALLS_MAX", 8)
    most = 0
    call = connections.Connection.call

    def counted(connection: connections.Connection) -> Any:
        nonlocal most
        most = max(most, connection.calls)
        return call(connection)

    monkeypatch.setattr(connections.Connection, "call", counted)

    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            calls = [topic.publish(of(bytes(20_000))) for number in range(300)]
            places = [await each for each in calls]
            assert sorted(place.offset for place in places) == list(range(300))

    run(main())
    # What was read along with the last that was wanted, 64 KiB, comes on top.
    assert 8 <= most <= 16


# --- the endpoint --------------------------------------------------------------------------------


def test_its_loop_is_asyncios_own_whatever_the_program_prefers(tmp_path: Path):
    uvloop = pytest.importorskip("uvloop")
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        with world(tmp_path / "data") as here:
            assert type(here.endpoint._loop) is asyncio.SelectorEventLoop
    finally:
        asyncio.set_event_loop_policy(None)


def test_it_can_be_stopped_twice_and_tells_when_it_has(here: World):
    told: list[str] = []
    here.endpoint.stop(then=lambda: told.append("first"))
    here.endpoint.close()
    here.endpoint.stop(then=lambda: told.append("second"))
    here.endpoint.close()
    assert told == ["first", "second"]


# --- tls -----------------------------------------------------------------------------------------


def test_over_tls(tmp_path: Path):
    files = made(tmp_path)
    with world(tmp_path / "data", tls=files.broker()) as here:

        async def main() -> None:
            async with connected(here.address, ssl=files.client()) as broker:
                one = (await broker.login("", "a")).session
                topic = (await one.createTopic("t")).topic
                large = bytes(3 << 20)
                await topic.publish(of(large))
                sink = Sink()
                held = await topic.subscribe({}, sink)
                assert await sink.received(1) == [large]
                del held
            with pytest.raises(ssl.SSLError):
                await connected(here.address, ssl=ssl.create_default_context()).__aenter__()

        run(main())
        with socket.create_connection(here.address) as plain:
            plain.settimeout(10)
            plain.sendall(bytes(64))
            while plain.recv(100):
                pass  # an alert of TLS, and the end


def test_renewed_certificates_are_shown_to_new_connections(tmp_path: Path):
    files = made(tmp_path)
    with world(tmp_path / "data", tls=files.broker(files.bad_server("expired"))) as here:

        async def main() -> None:
            with pytest.raises(ssl.SSLError, match="expired"):
                await connected(here.address, ssl=files.client()).__aenter__()
            here.endpoint.renew_tls(files.broker())
            async with connected(here.address, ssl=files.client()) as broker:
                await broker.login("", "a")

        run(main())
