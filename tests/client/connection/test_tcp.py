"""The clients at real sockets: what does not answer, breaks, is full, or speaks nonsense."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import threading
import time
import warnings

import pytest

import hocket
from hocket import frames
from hocket.client.connection.tls import client_context
from hocket.client.engines import timeouts
from hocket.client_core.calls.call import Call
from hocket.errors import (
    BadName,
    Closed,
    NoConnection,
    NotAllowed,
    OutcomeUnknown,
    OutOfRange,
    ReplyLost,
    Timeout,
    WrongVersion,
)
from hocket.model import Start
from tests.support.certificates import made
from tests.support.client.sockets import ScriptedServer, usual
from tests.support.threads import Running, run, until, until_async, wait_parked


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def mute(*kinds):
    """A broker that does not answer these."""

    def answer(frame, payload):
        return () if isinstance(frame, kinds) else usual(frame, payload)

    return answer


class Blocking:
    """Both clients by one name each, so that a test is written once."""

    @staticmethod
    def connect(*arguments, **options):
        hocket.connect(*arguments, **options).close()


class Asyncio:
    @staticmethod
    def connect(*arguments, **options):
        async def main():
            async with hocket.aio.connect(*arguments, **options):
                pass

        run(main())


both = pytest.mark.parametrize("style", [Blocking, Asyncio])


# --- connecting ----------------------------------------------------------------------------------


@both
def test_nobody_there(style):
    port = free_port()
    begun = time.monotonic()
    with pytest.raises(NoConnection) as caught:
        style.connect(f"hocket://127.0.0.1:{port}")
    assert time.monotonic() - begun < 5
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "Is it running? Start one with: hocket serve" in str(caught.value)
    assert not caught.value.may_have_happened


@both
def test_a_host_that_does_not_exist(style):
    with pytest.raises(NoConnection, match=r"nowhere\.invalid"):
        style.connect("hocket://nowhere.invalid:1")


@both
def test_somebody_who_does_not_answer(style):
    with ScriptedServer(mute(frames.Hello)) as server:
        with pytest.raises(NoConnection, match="hocket serve"):
            style.connect(server.url, timeout=0.2)
        until(lambda: server.kinds() == ["Hello"])


@both
def test_somebody_who_speaks_something_else(style):
    def rude(frame, payload):
        server.say(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        return ()

    with ScriptedServer(rude) as server, pytest.raises(NoConnection):
        style.connect(server.url)


@both
def test_the_next_address_is_tried(style):
    with ScriptedServer() as server:
        style.connect(f"hocket://127.0.0.1:{free_port()},127.0.0.1:{server.port}")
        assert server.kinds()[0] == "Hello"


@both
def test_an_address_that_is_silent_holds_up_nobody_for_long(style):
    """As that of a node that stands still: the system accepts connections, and nobody answers."""
    with ScriptedServer(mute(frames.Hello)) as silent, ScriptedServer() as server:
        begun = time.monotonic()
        style.connect(f"{silent.url},127.0.0.1:{server.port}", timeout=8)
        assert time.monotonic() - begun < 6
        assert silent.kinds() == ["Hello"]


@both
@pytest.mark.parametrize(
    ("code", "error"), [("notAllowed", NotAllowed), ("wrongVersion", WrongVersion)]
)
def test_a_broker_that_refuses(style, code, error):
    def refuse(frame, payload):
        yield frames.Failure(frame.request, code, "not with that token")

    with ScriptedServer(refuse) as server, pytest.raises(error, match="not with that token"):
        style.connect(server.url, token="wrong")


def test_name_and_token_are_in_the_hello():
    with ScriptedServer() as server, hocket.connect(server.url, name="me", token="secret"):
        hello = server.received[0]
        assert (hello.client, hello.token) == ("me", "secret")
        assert "secret" not in repr(hello)


def test_closing_gives_up_a_link_that_is_being_opened():
    """Losing the broker and closing while nobody answers must not take the time of a connect."""
    with ScriptedServer() as server:
        client = hocket.connect(server.url)
        server.answer = mute(frames.Hello)
        server.cut()
        until(lambda: server.kinds().count("Hello") == 2)
        begun = time.monotonic()
        client.close()
        assert time.monotonic() - begun < 5


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def certificates(tmp_path):
    return made(tmp_path)


def server_context(certificates, *, demand=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    if demand:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)
    return context


@both
def test_tls(style, certificates):
    with ScriptedServer(tls=server_context(certificates)) as server:
        style.connect(server.url, tls_ca=certificates.authority)
        assert server.kinds()[0] == "Hello"


@both
def test_tls_with_a_certificate_of_ones_own(style, certificates):
    with ScriptedServer(tls=server_context(certificates, demand=True)) as server:
        style.connect(
            server.url,
            tls_ca=certificates.authority,
            tls_cert=certificates.alice.certificate,
            tls_key=str(certificates.alice.key),
        )
        assert server.kinds()[0] == "Hello"


@both
def test_a_broker_whose_certificate_is_nobodys(style, certificates):
    with (
        ScriptedServer(tls=server_context(certificates)) as server,
        pytest.raises(NoConnection, match="certificate is not good: unable to get local issuer"),
    ):
        style.connect(server.url)


@both
def test_a_broker_without_tls(style, certificates):
    with ScriptedServer() as server, pytest.raises(NoConnection):
        style.connect(
            f"hockets://127.0.0.1:{server.port}", tls_ca=certificates.authority, timeout=2
        )


def test_much_goes_both_ways_under_tls(certificates):
    stored = []

    def store(frame, payload):
        if isinstance(frame, frames.Push):
            stored.append(len(payload))
            sequence = len(stored) - 1
            yield frames.PushAcked(0, 1, 0, sequence, frames.packed([sequence]))
        yield from usual(frame, payload)

    with (
        ScriptedServer(store, tls=server_context(certificates)) as server,
        hocket.connect(server.url, tls_ca=certificates.authority) as client,
    ):

        def ask():
            for _ in range(100):
                assert client.topics() == []

        with Running(ask), Running(ask), client.producer("t", batch_bytes=100_000) as producer:
            for _ in range(200):
                producer.send(bytes(50_000))
    assert sum(stored) > 200 * 50_000


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("hocket://a", {"tls_ca": "x"}, "hockets://"),
        ("hocket://a", {"tls_cert": "x"}, "hockets://"),
        ("hockets://a", {"tls_ca": "/no/such/file"}, "tls_ca='/no/such/file'"),
        ("hockets://a", {"tls_cert": "/no/such/file"}, "tls_cert='/no/such/file'"),
        ("hockets://a", {"tls_key": "x"}, "without tls_cert"),
    ],
)
@both
def test_bad_tls_options(style, url, options, words):
    with pytest.raises(BadName) as caught:
        style.connect(url, **options)
    assert words in str(caught.value)


def test_without_an_authority_the_systems_are_used():
    context = client_context(None, None, None)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


# --- waiting -------------------------------------------------------------------------------------


def test_a_request_that_is_not_answered():
    with (
        ScriptedServer(mute(frames.CreateTopic, frames.ListTopics)) as server,
        hocket.connect(server.url) as client,
    ):
        with pytest.raises(Timeout) as caught:
            client.topics(timeout=0.05)
        assert type(caught.value) is Timeout
        assert not caught.value.may_have_happened
        with pytest.raises(Timeout, match="may have been carried out") as caught:
            client.create_topic("t", timeout=0.05)
        assert type(caught.value) is OutcomeUnknown
        assert caught.value.may_have_happened
        client.ping()


def test_a_request_that_cannot_be_sent():
    with ScriptedServer() as server:
        client = hocket.connect(server.url)
    until(lambda: client._engine.session.link is None)
    for call in (
        lambda: client.topics(timeout=0.05),
        lambda: client.create_topic("t", timeout=0.05),
        lambda: client.producer("t", timeout=0.05),
        lambda: client.subscribe("t", timeout=0.05),
        lambda: client.publish("t", b"", timeout=0.05),
    ):
        with pytest.raises(NoConnection) as caught:
            call()
        assert not caught.value.may_have_happened
    client.close()


def test_an_answer_that_is_lost():
    with (
        ScriptedServer(mute(frames.CreateTopic, frames.ListTopics)) as server,
        hocket.connect(server.url) as client,
        Running(client.create_topic, "t") as creating,
        Running(client.topics) as listing,
    ):
        until(lambda: {"CreateTopic", "ListTopics"} <= set(server.kinds()))
        server.answer = usual
        server.cut()
        assert creating.failure(ReplyLost).may_have_happened
        assert listing.result() == []  # which only reads, and so was asked again


def test_a_request_that_fits_no_frame_costs_nobody_else_the_link():
    call = Call(
        frames.FindOffsets(0, "t", Start("offset", 2**70)), lambda answer: answer, frames.Offsets
    )
    with ScriptedServer() as server:
        with hocket.connect(server.url) as client:
            with pytest.raises(OutOfRange, match="does not fit"):
                client._engine.call(call, 5)
            client.ping()

        async def main():
            async with hocket.aio.connect(server.url) as client:
                with pytest.raises(OutOfRange, match="does not fit"):
                    await client._engine.call(call, 5)
                await client.ping()

        run(main())
        assert server.kinds() == ["Hello", "Ping"] * 2


def test_it_comes_back_by_itself():
    with ScriptedServer() as server, hocket.connect(server.url) as client:
        for _ in range(5):
            server.cut()
            assert client.topics(timeout=20) == []
        assert server.kinds().count("Hello") >= 5


def test_a_broker_that_does_not_read_holds_up_nobody_for_longer_than_he_wants():
    """Far more is sent than the sockets take; no call waits in the network itself."""
    with ScriptedServer() as server:
        client = hocket.connect(server.url)
        producer = client.producer("t", window_bytes="32MiB", send_timeout=0.1)
        server.deaf.set()

        def fill():
            for _ in range(100):
                producer.send(bytes(1 << 20))

        with pytest.raises(Timeout, match="window") as caught:
            fill()
        assert type(caught.value) is Timeout
        assert not caught.value.may_have_happened
        with pytest.raises(OutcomeUnknown):
            producer.flush(timeout=0.05)
        with pytest.raises(Timeout):
            client.topics(timeout=0.05)
        with pytest.raises(Timeout):
            producer.send_many([bytes(1 << 20)] * 3)
        begun = time.monotonic()
        with pytest.raises(Timeout):
            client.close(timeout=0.1)
        assert time.monotonic() - begun < 5
        with pytest.raises(Closed):
            producer.send(b"late")


def test_when_it_reads_again_everything_leaves():
    pushed = []

    def store(frame, payload):
        if isinstance(frame, frames.Push):
            pushed.append(len(payload))
            yield frames.PushAcked(0, 1, 0, len(pushed) - 1, frames.packed([0]))
        yield from usual(frame, payload)

    with ScriptedServer(store) as server, hocket.connect(server.url) as client:
        with client.producer("t", window_bytes="64MiB") as producer:
            server.deaf.set()
            for _ in range(40):
                producer.send(bytes(1 << 20))
            server.deaf.clear()
            producer.flush(timeout=30)
        assert sum(pushed) > 40 << 20


def test_an_interrupt_leaves_everything_working():
    with ScriptedServer() as server, hocket.connect(server.url) as client:
        producer = client.producer("t", window_bytes=1, linger=0)
        producer.send(b"fills the window")
        main = threading.main_thread()

        def interrupt():
            wait_parked(main)
            signal.pthread_kill(main.ident, signal.SIGINT)

        server.answer = mute(frames.ListTopics)
        for call in (client.topics, producer.flush, lambda: producer.send(bytes(100))):
            with Running(interrupt), pytest.raises(KeyboardInterrupt):
                call()
        server.answer = usual
        assert client.topics() == []
        with pytest.raises(Timeout):
            producer.close(timeout=0.01)


@pytest.fixture
def soon_given_up(monkeypatch):
    monkeypatch.setattr(timeouts, "ABANDONED_SECONDS", 0.2)


LOST = "a client was dropped without being closed: 1 message for topic 't' could not be delivered"


@pytest.mark.usefixtures("soon_given_up")
def test_a_client_that_is_dropped_says_so_and_leaves_nothing(caplog):
    with ScriptedServer() as server:
        opened = [hocket.connect(server.url)]
        until(lambda: server.connections == 1)
        opened.append(opened[0].producer("t"))
        opened[1].send_future(b"never acknowledged")
        opened.clear()
        with pytest.warns(ResourceWarning, match="was not closed"):
            gc.collect()
        until(lambda: LOST in caplog.text)
        # its threads end by themselves, as the check around every test confirms


# --- asyncio -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("soon_given_up")
def test_an_asyncio_client_that_is_dropped_says_so_and_leaves_nothing(caplog):
    async def main(server):
        opened = [await hocket.aio.connect(server.url)]
        await until_async(lambda: server.connections == 1)
        opened.append(await opened[0].producer("t"))
        opened.append(await opened[1].send_future(b"never acknowledged"))
        opened.clear()
        with pytest.warns(ResourceWarning, match="AsyncClient of .* was not closed"):
            gc.collect()
        await until_async(lambda: not any(each.is_alive() for each in server._threads[1:]))
        assert LOST in caplog.text

    with ScriptedServer() as server:
        run(main(server))


def test_an_embedded_broker_ends_with_an_asyncio_client_that_is_dropped(tmp_path):
    async def main():
        await hocket.aio.embedded(tmp_path)  # dropped at once, and the loop ends then

    with pytest.warns(ResourceWarning, match="AsyncClient of .* was not closed"):
        run(main())
    hocket.embedded(tmp_path).close()  # nobody else is there


def test_an_asyncio_client_that_is_dropped_with_its_loop_says_so():
    async def main(server):
        return await hocket.aio.connect(server.url)

    with ScriptedServer() as server:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opened = [asyncio.run(main(server))]
            opened.clear()
            gc.collect()
            said = [str(each.message) for each in caught]
            caught.clear()  # a warning keeps what it is about
            gc.collect()
        assert any("AsyncClient of" in each and "was not closed" in each for each in said)
        until(lambda: not any(each.is_alive() for each in server._threads[1:]))


def test_asyncio_waiting_and_losing():
    async def main(server):
        async with hocket.aio.connect(server.url) as client:
            with pytest.raises(Timeout) as caught:
                await client.topics(timeout=0.02)
            assert not caught.value.may_have_happened
            creating = asyncio.create_task(client.create_topic("t"))
            listing = asyncio.create_task(client.topics())
            await until_async(lambda: server.kinds().count("ListTopics") == 2)
            server.answer = usual
            server.cut()
            with pytest.raises(ReplyLost):
                await creating
            assert await listing == []
            for _ in range(3):
                server.cut()
                assert await client.topics(timeout=20) == []

    with ScriptedServer(mute(frames.CreateTopic, frames.ListTopics)) as server:
        run(main(server))


def test_asyncio_without_a_connection():
    async def main():
        with ScriptedServer() as server:
            client = await hocket.aio.connect(server.url)
        await until_async(lambda: client._engine.session.link is None)
        for call in (
            client.topics(timeout=0.02),
            client.create_topic("t", timeout=0.02),
            client.publish("t", b"", timeout=0.02),
        ):
            with pytest.raises(NoConnection):
                await call
        with pytest.raises(NoConnection):
            await client.producer("t", timeout=0.02)
        await client.close()

    run(main())


def test_asyncio_and_a_broker_that_does_not_read():
    async def main(server):
        client = await hocket.aio.connect(server.url)
        producer = await client.producer("t", window_bytes="32MiB", send_timeout=0.1)
        server.deaf.set()

        async def fill():
            for _ in range(100):
                await producer.send(bytes(1 << 20))

        with pytest.raises(Timeout, match="window"):
            await fill()
        with pytest.raises(Timeout):
            await producer.flush(timeout=0.05)
        with pytest.raises(Timeout):
            await client.close(timeout=0.1)

    with ScriptedServer() as server:
        run(main(server))


def test_asyncio_callbacks_that_raise_harm_nobody(caplog):
    pushed = []

    def store(frame, payload):
        if isinstance(frame, frames.Push):
            pushed.append(payload)
            yield frames.PushAcked(0, 1, 0, len(pushed) - 1, frames.packed([0]))
        yield from usual(frame, payload)

    def fail(outcome):
        raise RuntimeError("on purpose")

    async def main(server):
        async with (
            hocket.aio.connect(server.url) as client,
            client.producer("t", on_delivery=fail) as producer,
        ):
            await producer.send(b"a")
            await producer.flush()
            await until_async(lambda: "on purpose" in caplog.text)

    with ScriptedServer(store) as server:
        run(main(server))
    assert len(pushed) == 1
