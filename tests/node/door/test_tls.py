"""TLS at the port: real brokers and clients, good and bad certificates, and bad manners."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import select
import shutil
import socket
import ssl
import subprocess
import time
import warnings
from contextlib import suppress

import pytest

import hocket
import hocket.aio
from hocket import frames
from hocket.adapters.tls import JOINED_BYTES, joined, server_context
from hocket.core.session.session import Caller
from hocket.errors import BadName, NoConnection
from hocket.model import Limits, TopicConfig
from hocket.node.node import Node
from hocket.node.settings import HELLO_TIMEOUT_US, NodeSettings
from hocket.wire import batch as batches
from hocket.wire.connection import Connection
from tests.support.certificates import made
from tests.support.node.running import RawConnection, Speaker, listening, running
from tests.support.threads import PATIENCE, Running, run, until

SOON = NodeSettings(hello_timeout_us=300_000)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def address(tmp_path, certificates):
    with listening(tmp_path / "data", tls=certificates.broker(asks=True)) as where:
        yield where


@pytest.fixture
def callers(monkeypatch):
    """Everybody that the node hears of."""
    found: list[Caller] = []
    connected = Node.connected

    def hear(self: Node, connection: int, caller: Caller) -> None:
        found.append(caller)
        connected(self, connection, caller)

    monkeypatch.setattr(Node, "connected", hear)
    return found


def url_of(address: tuple[str, int], scheme: str = "hockets") -> str:
    return f"{scheme}://{address[0]}:{address[1]}"


def connect(style: str, url: str, **options: object) -> None:
    """Say one thing, in this style of client, and go."""
    if style == "blocking":
        with hocket.connect(url, **options) as client:
            client.topics()
        return

    async def main() -> None:
        async with hocket.aio.connect(url, **options) as client:
            await client.topics()

    run(main())


both = pytest.mark.parametrize("style", ["blocking", "asyncio"])


# --- data ----------------------------------------------------------------------------------------


def values(seed: str, count: int, size: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.randrange(size)) for _ in range(count)]


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_megabytes_go_both_ways_at_once(address, certificates):
    """Produced and consumed at the same time, on one connection."""
    sent = values("blocking", 400, 150_000)
    with hocket.connect(url_of(address), tls_ca=certificates.authority) as client:
        client.create_topic("t")

        def consume() -> None:
            with client.subscribe("t") as messages:
                found = [bytes(messages.receive(timeout=30).value) for _ in sent]
            assert digest(found) == digest(sent)

        with Running(consume), client.producer("t", batch_bytes=300_000) as producer:
            for value in sent:
                producer.send(value)


def test_megabytes_go_both_ways_for_asyncio(address, certificates):
    sent = values("asyncio", 200, 150_000)

    async def main() -> None:
        url = url_of(address)
        async with hocket.aio.connect(url, tls_ca=certificates.authority) as client:
            await client.create_topic("t")

            async def produce() -> None:
                async with client.producer("t") as producer:
                    for value in sent:
                        await producer.send(value)

            async with asyncio.TaskGroup() as tasks, client.subscribe("t") as messages:
                tasks.create_task(produce())
                found = [bytes((await messages.receive(timeout=30)).value) for _ in sent]
        assert digest(found) == digest(sent)

    run(main())


def test_a_large_frame_in_odd_pieces(address, certificates):
    chance = random.Random("pieces")
    value = chance.randbytes(3_000_000)
    entry = batches.encode([value], timestamps=time.time_ns() // 1000)
    with Speaker(address, certificates.client()) as speaker:
        speaker.greet()
        speaker.say(frames.CreateTopic(2, "t", TopicConfig()))
        assert isinstance(speaker.hear(), frames.Topics | frames.Done)
        data = b"".join(
            speaker.wire.send(
                frames.Publish(3, "t", 0), [entry]
            )
        )  # fmt: skip
        while data:
            size = chance.choice([1, 7, 1000, 16_384, 50_001])
            speaker.send(data[:size])
            data = data[size:]
        published = speaker.hear()
        assert isinstance(published, frames.Published), published
    with (
        hocket.connect(url_of(address), tls_ca=certificates.authority) as client,
        client.subscribe("t") as messages,
    ):
        assert bytes(messages.receive(timeout=10).value) == value


def test_one_that_does_not_read_holds_up_nobody_and_gets_everything_when_it_does(
    address, certificates
):
    """What OpenSSL took only in part is offered to it again, whole and unchanged."""
    sent = values("lazy", 300, 200_000)
    authority = certificates.authority
    with (
        hocket.connect(url_of(address), tls_ca=authority) as client,
        Speaker(address, certificates.client()) as lazy,
    ):
        client.create_topic("t")
        lazy.greet()
        lazy.say(frames.OpenSubscription(2, "t", credit_bytes=64 << 20))
        with client.producer("t") as producer:
            producer.send_many(sent)
        with client.subscribe("t") as messages:
            assert digest([bytes(messages.receive(timeout=30).value) for _ in sent]) == digest(sent)
        assert isinstance(lazy.hear(), frames.SubscriptionOpened)
        found: list[bytes] = []
        for frame, payload in received(lazy):
            assert isinstance(frame, frames.Deliver)
            for at, header in batches.iterate_entries(payload):
                batch = batches.parse(payload[at : at + header.size])
                found += [bytes(value) for value in batch.values()]
            if len(found) == len(sent):
                break
        assert digest(found) == digest(sent)


def received(speaker: Speaker):
    while True:
        data = speaker.socket.recv(10_000)
        assert data, "the broker closed the connection"
        yield from speaker.wire.receive(data)


def test_nothing_is_stuck_when_the_broker_takes_a_rest(tmp_path, certificates, monkeypatch):
    """What TLS has decrypted already when the broker stops reading is announced by no socket."""
    left: list[int] = []  # such bytes, at each rest
    with (
        running(tmp_path / "data", tls=certificates.broker()) as (broker, address),
        Speaker(address, certificates.client()) as speaker,
    ):
        network = broker._connections
        received = broker.node.received
        speaker.greet()

        def resume() -> None:
            left.extend(peer._transport.unread for peer in network._peers.values())
            network.resume()

        def rest(connection: int, frame: frames.Frame, payload: memoryview) -> None:
            network.pause()
            broker.post(resume)
            received(connection, frame, payload)

        monkeypatch.setattr(broker.node, "received", rest)
        numbers = range(2, 150)  # which fit into one record
        pings = [speaker.wire.send(frames.Ping(number)) for number in numbers]
        speaker.send(b"".join(buffer for buffers in pings for buffer in buffers))
        for number in numbers:
            assert speaker.hear() == frames.Done(number)
    assert max(left) > 1000


def test_two_hundred_connections_at_once(address, certificates):
    context = certificates.client()
    speakers = [Speaker(address, context) for _ in range(200)]
    try:
        for speaker in speakers:
            speaker.greet()
        for number, speaker in enumerate(speakers, start=2):
            speaker.say(frames.Ping(number))
        for number, speaker in enumerate(speakers, start=2):
            assert speaker.hear() == frames.Done(number)
    finally:
        for speaker in speakers:
            speaker.socket.close()


@pytest.mark.parametrize("size", [0, 1, 2])
def test_views_are_joined_without_going_beyond_what_fits(size):
    small = [memoryview(bytes([number]) * 50_000) for number in range(20)]
    views = [memoryview(b"x" * (JOINED_BYTES - 1 + size)), *small]
    for first in (views, small, small[:3]):
        assert bytes(joined(first)) == b"".join(first)[:JOINED_BYTES]


# --- versions and keys ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_versions_of_today_are_spoken(address, certificates, version):
    context = certificates.client()
    context.minimum_version = context.maximum_version = version
    with Speaker(address, context) as speaker:
        speaker.greet()
        assert speaker.socket.version() == version.name.replace("_", ".")


def test_the_newest_version_is_preferred(address, certificates):
    with Speaker(address, certificates.client()) as speaker:
        assert speaker.socket.version() == "TLSv1.3"


def test_old_versions_are_refused(address, certificates):
    context = certificates.client()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of them as well
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")  # else we would not even ask
    with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
        Speaker(address, context)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_new_keys_in_the_middle_of_a_connection(address, certificates):
    """A client may change its keys and ask us to do the same."""
    wire = Connection("client")
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"{address[0]}:{address[1]}", "-CAfile",
         str(certificates.authority), "-tls1_3"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = b""

        def see(what: bytes) -> None:
            nonlocal seen
            while what not in seen:
                data = process.stdout.read(65536)
                assert data, seen
                seen += data
            seen = seen.partition(what)[2]

        see(b"Verify return code: 0")
        process.stdin.write(b"".join(wire.send(frames.Hello(1))))
        see(b"hocket ")  # the broker's software, in its Welcome
        for number in range(3):
            process.stdin.write(b"K")
            see(b"KEYUPDATE")
            wire.phase = "open"
            process.stdin.write(b"".join(wire.send(frames.Ping(100 + number))))
            see(bytes([100 + number]))  # in the Done
        process.kill()


# --- certificates --------------------------------------------------------------------------------

BAD_SERVERS = {
    "wrong authority": "unable to get local issuer certificate",
    "wrong host": "certificate is not valid for '127.0.0.1'",
    "expired": "certificate has expired",
    "not yet valid": "certificate is not yet valid",
    "self-signed": "self-signed certificate",
    "of a client": "unsuitable certificate purpose",
}
BAD_CLIENTS = {
    "wrong authority": "unknown ca",
    "expired": "certificate expired",
    "not yet valid": "bad certificate",
    "self-signed": "unknown ca",
    "of a broker": "unsupported certificate",
}


@both
@pytest.mark.parametrize("kind", BAD_SERVERS)
def test_a_broker_with_a_bad_certificate_is_not_trusted(tmp_path, certificates, style, kind):
    directory = tmp_path / "certificates"
    shutil.copytree(certificates.directory, directory)
    certificates = type(certificates)(directory, directory / "ca.pem", None, None)
    context = certificates.broker(certificates.bad_server(kind))
    with listening(tmp_path / "data", tls=context) as address:
        with pytest.raises(NoConnection) as caught:
            connect(style, url_of(address), tls_ca=certificates.authority)
        assert "the broker's certificate is not good" in str(caught.value)
        assert BAD_SERVERS[kind] in str(caught.value)
        assert "Is it running" not in str(caught.value)


@both
def test_a_client_is_whom_its_certificate_names(address, certificates, callers, style):
    connect(
        style,
        url_of(address),
        tls_ca=certificates.authority,
        tls_cert=certificates.alice.certificate,
        tls_key=certificates.alice.key,
    )
    assert callers == [Caller("127.0.0.1", certified="alice")]


def test_a_client_may_come_without_a_certificate(address, certificates, callers):
    connect("blocking", url_of(address), tls_ca=certificates.authority)
    assert callers == [Caller("127.0.0.1")]


def test_a_certificate_nobody_asked_for_says_nothing(tmp_path, certificates, callers):
    with (
        listening(tmp_path / "data", tls=certificates.broker(asks=False)) as address,
        Speaker(address, certificates.client(of=certificates.alice)) as speaker,
    ):
        speaker.greet()
    assert callers == [Caller("127.0.0.1")]


@both
@pytest.mark.parametrize("kind", BAD_CLIENTS)
def test_a_client_with_a_bad_certificate_is_refused(
    tmp_path, address, certificates, callers, style, kind
):
    directory = tmp_path / "certificates"
    shutil.copytree(certificates.directory, directory)
    bad = type(certificates)(directory, directory / "ca.pem", None, None).bad_client(kind)
    with pytest.raises(NoConnection) as caught:
        connect(
            style,
            url_of(address),
            tls_ca=certificates.authority,
            tls_cert=bad.certificate,
            tls_key=bad.key,
        )
    assert "the broker does not accept the certificate in tls_cert" in str(caught.value)
    assert BAD_CLIENTS[kind] in str(caught.value)
    assert callers == []
    connect("blocking", url_of(address), tls_ca=certificates.authority)


def test_certificates_are_renewed_without_cutting_anybody(tmp_path, certificates):
    directory = tmp_path / "new"
    directory.mkdir()
    renewed = made(directory)
    with (
        running(tmp_path / "data", tls=certificates.broker()) as (broker, address),
        Speaker(address, certificates.client()) as before,
    ):
        before.greet()
        broker.post(lambda: broker.renew_tls(renewed.broker()))

        def is_new() -> bool:
            try:
                with Speaker(address, renewed.client()) as after:
                    after.greet()
            except ssl.SSLCertVerificationError:
                return False
            return True

        until(is_new)
        with pytest.raises(ssl.SSLCertVerificationError):
            Speaker(address, certificates.client())
        before.say(frames.Ping(2))
        assert before.hear() == frames.Done(2)


def test_a_port_without_tls_stays_without(tmp_path, certificates):
    with running(tmp_path / "data") as (broker, address):
        broker.post(lambda: broker.renew_tls(certificates.broker()))
        with Speaker(address) as speaker:
            speaker.greet()


def test_files_that_cannot_be_used_are_named(tmp_path, certificates):
    certificate, key = certificates.server.certificate, certificates.server.key
    nothing, empty, locked = tmp_path / "nothing", tmp_path / "empty", tmp_path / "locked"
    empty.write_text("")
    write_encrypted_key(locked)
    for files, words in (
        ((nothing, key), ["certificate", str(nothing), "No such file"]),
        ((certificate, nothing), ["key", str(nothing), "No such file"]),
        ((empty, key), [str(empty), "PEM"]),
        ((certificate, certificates.alice.key), ["key values mismatch", "belong together"]),
        ((certificate, locked), [str(locked), "encrypted"]),
        ((certificate, key, nothing), ["authority", str(nothing), "No such file"]),
        ((certificate, key, empty), ["authority", str(empty), "PEM"]),
    ):
        with pytest.raises(BadName) as caught:
            server_context(*files)
        for word in words:
            assert word in str(caught.value)


def write_encrypted_key(path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


# --- the wrong scheme ----------------------------------------------------------------------------


@both
def test_a_client_without_tls_at_a_port_with_tls_is_told(address, style, caplog):
    caplog.set_level(logging.INFO, "hocket.node")
    with pytest.raises(NoConnection) as caught:
        connect(style, url_of(address, "hocket"))
    assert str(caught.value).endswith("this port speaks TLS: use hockets:// instead of hocket://.")
    until(lambda: [record.levelname for record in caplog.records] == ["WARNING"])
    assert re.fullmatch(
        r"127\.0\.0\.1:\d+ does not speak TLS, and this port does: it must use hockets:// .*",
        caplog.messages[0],
    )


@both
def test_a_client_with_tls_at_a_port_without_is_told(tmp_path, certificates, style, caplog):
    with listening(tmp_path / "data") as address, pytest.raises(NoConnection) as caught:
        connect(style, url_of(address), tls_ca=certificates.authority)
    assert "this port does not speak TLS: use hocket:// instead of hockets://" in str(caught.value)
    assert "Is it running" not in str(caught.value)
    assert re.fullmatch(
        r"127\.0\.0\.1:\d+ speaks TLS, and this port does not: it must use hocket:// .*",
        caplog.messages[0],
    )


# --- bad manners ---------------------------------------------------------------------------------


def test_garbage_and_half_handshakes_cost_their_own_connection_only(address, certificates):
    chance = random.Random("garbage")
    hello = client_hello(certificates.client())
    with Speaker(address, certificates.client()) as healthy:
        healthy.greet()
        for number in range(60):
            with RawConnection(address) as hostile:
                if number % 3 == 0:
                    data = chance.randbytes(chance.randrange(1, 300))
                elif number % 3 == 1:
                    data = b"\x16" + chance.randbytes(chance.randrange(1, 300))
                else:
                    damaged = bytearray(hello)
                    damaged[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
                    data = bytes(damaged[: chance.randrange(1, len(hello) + 1)])
                hostile.send(data)
                with suppress(OSError):  # it may have been hung up on already
                    hostile.socket.shutdown(socket.SHUT_WR)
                while not hostile.at_end():  # it may be told why first
                    pass
        healthy.say(frames.Ping(2))
        assert healthy.hear() == frames.Done(2)


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first flight of a handshake."""
    outgoing = ssl.MemoryBIO()
    state = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        state.do_handshake()
    return outgoing.read()


def test_whoever_does_not_finish_its_handshake_is_hung_up_on(tmp_path, certificates, callers):
    hello = client_hello(certificates.client())
    with (
        listening(tmp_path / "data", SOON, certificates.broker()) as address,
        Speaker(address, certificates.client()) as healthy,
    ):
        healthy.greet()
        begun = time.monotonic()
        silent = [RawConnection(address) for _ in range(20)]
        slow = RawConnection(address)
        half = RawConnection(address)
        half.send(hello)
        for at in range(len(hello)):  # one byte at a time does not buy any time
            try:
                slow.send(hello[at : at + 1])
            except ConnectionError:
                break
            if (
                half.socket in readable(half.socket, seconds=0.01)
                and half.socket.recv(65536) == b""
            ):
                break
        else:
            pytest.fail(f"{len(hello)} turns of 10 ms, and nobody has hung up")
        for each in (*silent, slow):
            assert each.at_end()
            each.socket.close()
        half.socket.close()
        assert time.monotonic() - begun > 0.25
        healthy.say(frames.Ping(2))
        assert healthy.hear() == frames.Done(2)
    assert len(callers) == 1  # the node has never heard of the others


def readable(sock: socket.socket, *, seconds: float) -> list[socket.socket]:
    return select.select([sock], [], [], seconds)[0]


@pytest.mark.parametrize("tls", [True, False])
def test_whoever_never_says_hello_is_told_and_hung_up_on(tmp_path, certificates, tls):
    context = certificates.broker() if tls else None
    with listening(tmp_path / "data", SOON, context) as address:
        begun = time.monotonic()
        with Speaker(address, certificates.client() if tls else None) as silent:
            answer = silent.hear()
            assert isinstance(answer, frames.Failure)
            assert "no Hello in time" in answer.message
            assert silent.at_end()
        assert 0.25 < time.monotonic() - begun < HELLO_TIMEOUT_US / 1e6


def test_whoever_has_said_hello_may_be_silent(tmp_path, certificates):
    with (
        listening(tmp_path / "data", SOON, certificates.broker()) as address,
        Speaker(address, certificates.client()) as quiet,
    ):
        quiet.greet()
        with Speaker(address, certificates.client()) as silent:  # came later, leaves earlier
            silent.hear()
            assert silent.at_end()
        quiet.say(frames.Ping(2))
        assert quiet.hear() == frames.Done(2)


def test_a_hello_that_the_broker_did_not_take_yet_is_not_held_against_anybody(tmp_path):
    with running(tmp_path / "data", SOON) as (broker, address):
        network = broker._connections
        broker.post(network.pause)
        with Speaker(address) as patient:
            patient.say(frames.Hello(1))
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > 0.8)  # more than twice its time
            broker.post(network.resume)
            assert isinstance(patient.hear(), frames.Welcome)


def test_one_that_is_hung_up_on_and_does_not_read_is_let_go_in_time(tmp_path, certificates, caplog):
    caplog.set_level(logging.INFO, "hocket.node")
    with listening(tmp_path / "data", SOON, certificates.broker()) as address:
        with hocket.connect(url_of(address), tls_ca=certificates.authority) as client:
            client.create_topic("t")
            with client.producer("t") as producer:
                producer.send_many([bytes(100_000)] * 300)
        with Speaker(address, certificates.client()) as lazy:
            lazy.greet()
            lazy.say(frames.OpenSubscription(2, "t", credit_bytes=64 << 20))
            lazy.hear()
            lazy.say(frames.Goodbye(0, "and I shall not read what you have for me"))
            until(lambda: "it does not take what it is sent" in caplog.text)


def test_connections_in_the_middle_of_their_handshake_count(tmp_path, certificates):
    settings = NodeSettings(limits=Limits(connections_max=2))
    with listening(tmp_path / "data", settings, certificates.broker()) as address:
        held = [RawConnection(address) for _ in range(2)]
        with RawConnection(address) as one_too_many:
            assert one_too_many.at_end()
        for each in held:
            each.socket.close()

        def room() -> bool:
            try:
                with Speaker(address, certificates.client()) as again:
                    again.greet()
            except (AssertionError, OSError):
                return False
            return True

        until(room)


def test_a_handshake_that_hangs_does_not_hold_up_the_end(tmp_path, certificates, monkeypatch):
    monkeypatch.setattr("hocket.node.broker.GOODBYE_SECONDS", PATIENCE)
    with (
        running(tmp_path / "data", tls=certificates.broker()) as (broker, address),
        Speaker(address, certificates.client()) as known,
        RawConnection(address) as stranger,
    ):
        known.greet()
        stranger.send(client_hello(certificates.client())[:50])
        begun = time.monotonic()
        with Running(broker.close):
            assert isinstance(known.hear(), frames.Goodbye)
            assert known.at_end()
            assert stranger.at_end()
        assert time.monotonic() - begun < PATIENCE
