"""The connection's rules: who may say what and when, limits, the end, and what an error does."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from hocket.errors import MessageTooLarge, ProtocolError
from hocket.frames import (
    CreateTopic,
    Deliver,
    Done,
    Failure,
    Frame,
    Goodbye,
    Hello,
    Ping,
    Publish,
    Push,
    Topics,
    Welcome,
)
from hocket.model import Limits, TopicConfig
from hocket.wire.connection import RULES, WITH_PAYLOAD, Connection, Role
from hocket.wire.frame_codec import encode
from hocket.wire.framing import HEADER_BYTES_MAX, OPENING_HEADER_BYTES_MAX
from tests.support.wire.frame_strategies import KINDS, frames_of
from tests.support.wire.joined import opened, received, sent

if TYPE_CHECKING:
    from collections.abc import Callable

WELCOME = Welcome(1, 1, "node", "software", (), Limits())


def framed(header: bytes, payload: bytes = b"", *, padding: bytes | None = None) -> bytes:
    """A frame made by hand, right or wrong."""
    prefix = struct.pack("<IIQ", len(header), crc32c(header), len(payload))
    return prefix + header + payload + (bytes(-len(payload) % 8) if padding is None else padding)


def both(role: Role, limits: Limits | None = None) -> tuple[Connection, Connection]:
    """An open connection: the end that has this role, and the other one."""
    client, server = opened(limits)
    return (client, server) if role == "client" else (server, client)


# --- exchange ------------------------------------------------------------------------------------


SENDERS = [
    (role, kind)
    for role in ("client", "server")
    for kind in KINDS
    if kind in RULES["open", role].kinds
]


@pytest.mark.parametrize(
    ("role", "kind"), SENDERS, ids=lambda each: getattr(each, "__name__", each)
)
@settings(max_examples=10)
@given(data=st.data())
def test_every_frame_reaches_the_other_end(
    role: Role, kind: type[Frame], data: st.DataObject
) -> None:
    sender, receiver = both(role)
    frame = data.draw(frames_of(kind))
    payload = data.draw(st.lists(st.binary(max_size=30), max_size=3)) * (kind in WITH_PAYLOAD)
    assert received(receiver, [sent(sender, frame, payload)]) == [(frame, b"".join(payload))]


def test_between_them_the_two_may_send_every_frame() -> None:
    may_be_sent = {kind for rule in RULES.values() for kind in rule.kinds}
    assert may_be_sent == set(KINDS)


def test_a_client_and_a_server_open_a_connection() -> None:
    client, server = Connection("client"), Connection("server")
    hello = Hello(1, client="test", token="secret")
    assert received(server, [sent(client, hello)]) == [(hello, b"")]
    assert (client.phase, server.phase) == ("greeted", "greeted")
    assert received(client, [sent(server, WELCOME)]) == [(WELCOME, b"")]
    assert (client.phase, server.phase) == ("open", "open")


def test_a_frame_on_the_wire() -> None:
    client, _ = opened()
    buffers = client.send(Push(0, handle=5, partition=3), [b"batch", b"es"])
    header = encode(Push(0, handle=5, partition=3))
    assert b"".join(buffers).hex(" ", 8) == (
        f"38000000{crc32c(header).to_bytes(4, 'little').hex()} 0700000000000000 "
        f"{header.hex(' ', 8)} {b'batches'.hex()}00"
    )


def test_a_payload_is_not_copied_on_its_way_out() -> None:
    client, _ = opened()
    one, two = bytearray(b"one"), memoryview(bytearray(b"two"))
    _, first, second, padding = client.send(Push(0, 1, 2), [one, two])
    assert first is one
    assert isinstance(second, memoryview)
    assert second.obj is two.obj
    assert padding == bytes(2)


def test_a_payload_is_measured_in_bytes() -> None:
    client, server = opened()
    numbers = array("Q", [1, 2, 3])
    buffers = client.send(Push(0, 1, 2), [numbers])
    assert [len(memoryview(buffer).cast("B")) for buffer in buffers[1:]] == [24]
    [(_, payload)] = server.receive(b"".join(buffers))
    assert payload == numbers.tobytes()


def test_a_received_payload_cannot_be_written() -> None:
    client, server = opened()
    for size in (8, 100_000):
        [(_, payload)] = server.receive(sent(client, Push(0, 1, 2), [bytes(size)]))
        assert payload.readonly


# --- order ---------------------------------------------------------------------------------------


def silent(role: Role) -> Connection:
    return Connection(role)


def greeted(role: Role) -> Connection:
    """After Hello."""
    client, server = Connection("client"), Connection("server")
    server.receive(sent(client, Hello(1)))
    return client if role == "client" else server


def open_(role: Role) -> Connection:
    return both(role)[0]


FORBIDDEN: list[tuple[Callable[[Role], Connection], Role, Frame, str]] = [
    (silent, "client", Ping(1), "Ping is not allowed from a client before its Hello"),
    (silent, "client", WELCOME, "Welcome is not allowed from a client before its Hello"),
    (silent, "server", WELCOME, "Welcome is not allowed from a server before the client's Hello"),
    (greeted, "client", Hello(2), "Hello is not allowed from a client before the Welcome"),
    (greeted, "client", Ping(2), "Ping is not allowed from a client before the Welcome"),
    (greeted, "server", Done(1), "Done is not allowed as the answer to Hello"),
    (greeted, "server", Goodbye(0, "no"), "Goodbye is not allowed as the answer to Hello"),
    (open_, "client", Hello(2), "Hello is not allowed from a client"),
    (open_, "client", Topics(2, ()), "Topics is not allowed from a client"),
    (open_, "client", Failure(0, "busy", ""), "Failure is not allowed from a client"),
    (open_, "server", WELCOME, "Welcome is not allowed from a server after its Welcome"),
    (open_, "server", Push(0, 1, 2), "Push is not allowed from a server after its Welcome"),
]


@pytest.mark.parametrize(("state", "role", "frame", "complaint"), FORBIDDEN)
def test_what_is_not_allowed_is_not_sent(
    state: Callable[[Role], Connection], role: Role, frame: Frame, complaint: str
) -> None:
    connection = state(role)
    with pytest.raises(ProtocolError, match=complaint):
        connection.send(frame)
    with pytest.raises(ProtocolError, match="the connection has failed: "):
        connection.send(Ping(1))


@pytest.mark.parametrize(("state", "role", "frame", "complaint"), FORBIDDEN)
def test_what_is_not_allowed_is_not_received(
    state: Callable[[Role], Connection], role: Role, frame: Frame, complaint: str
) -> None:
    other = state("server" if role == "client" else "client")
    with pytest.raises(ProtocolError, match=complaint):
        other.receive(framed(encode(frame)))


def test_a_server_may_refuse_before_and_after_hello() -> None:
    refusal = Failure(0, "limitExceeded", "too many connections")
    for greet_first in (False, True):
        client, server = Connection("client"), Connection("server")
        if greet_first:
            server.receive(sent(client, Hello(1)))
        assert received(client, [sent(server, refusal)]) == [(refusal, b"")]
        assert (client.phase, server.phase) == ("refused", "refused")
        assert received(client, [sent(server, Goodbye(0, "bye"))]) == [(Goodbye(0, "bye"), b"")]
        with pytest.raises(ProtocolError, match="not allowed from a client that was refused"):
            client.send(Ping(1))


def test_a_hello_that_crosses_the_refusal_is_no_breach() -> None:
    client, server = Connection("client"), Connection("server")
    hello = sent(client, Hello(1))
    client.receive(sent(server, Failure(0, "busy", "try again later")))
    assert received(server, [hello]) == [(Hello(1), b"")]
    assert server.phase == "refused"


def test_frames_after_hello_must_wait_for_the_welcome() -> None:
    """Even in the same packet: the Hello is delivered, and the next call raises."""
    server = Connection("server")
    stream = framed(encode(Hello(1))) + framed(encode(Ping(2)))
    assert received(server, [stream]) == [(Hello(1), b"")]
    with pytest.raises(ProtocolError, match="Ping is not allowed from a client before the Welcome"):
        server.get_buffer()


# --- limits --------------------------------------------------------------------------------------


def test_before_the_welcome_little_is_taken() -> None:
    for role in ("client", "server"):
        prefix = struct.pack("<IIQ", OPENING_HEADER_BYTES_MAX + 8, 0, 0)
        with pytest.raises(ProtocolError, match=r"at most 65536 \+ 0 .* before the Welcome"):
            Connection(role).receive(prefix)
        prefix = struct.pack("<IIQ", 64, 0, 1)
        with pytest.raises(ProtocolError, match=r"of 64 \+ 1 bytes; .* before the Welcome"):
            Connection(role).receive(prefix)


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_prefix_beyond_the_limits_is_refused_at_once(role: Role) -> None:
    for header, payload in ((HEADER_BYTES_MAX + 8, 0), (64, 1001), (2**32 - 1, 2**64 - 1)):
        connection, _ = both(role, Limits(frame_bytes_max=1000))
        with pytest.raises(ProtocolError, match=rf"of {header} \+ {payload} bytes; at most"):
            connection.receive(struct.pack("<IIQ", header, 0, payload))


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_limits_of_the_server_hold_in_both_directions(role: Role) -> None:
    sender, receiver = both(role, Limits(frame_bytes_max=1000))
    frame = Push(0, 1, 2) if role == "client" else Deliver(0, 1, 2, 3, 4)
    with pytest.raises(MessageTooLarge, match=r"\+ 1001 bytes; at most 1048576 \+ 1000"):
        sender.send(frame, [bytes(1000), b"x"])
    assert received(receiver, [sent(sender, frame, [bytes(1000)])]) == [(frame, bytes(1000))]


def test_a_header_that_is_too_large_is_not_sent_and_nothing_has_happened() -> None:
    client, server = Connection("client"), Connection("server")
    with pytest.raises(MessageTooLarge, match=r"Hello takes .* before the Welcome"):
        client.send(Hello(1, client="x" * OPENING_HEADER_BYTES_MAX))
    assert received(server, [sent(client, Hello(1))]) == [(Hello(1), b"")]
    client, server = opened()
    with pytest.raises(MessageTooLarge, match=r"Goodbye takes .* on this connection"):
        client.send(Goodbye(1, "x" * HEADER_BYTES_MAX))
    assert received(server, [sent(client, Ping(2))]) == [(Ping(2), b"")]


@pytest.mark.parametrize("room", [0, 8, 100_000, HEADER_BYTES_MAX // 2])
def test_a_header_up_to_the_limit_arrives(room: int) -> None:
    client, server = opened()
    frame = Goodbye(1, "x" * (HEADER_BYTES_MAX - 49 - room))
    assert len(encode(frame)) == HEADER_BYTES_MAX - room
    assert received(server, [sent(client, frame), sent(client, Ping(2))]) == [
        (frame, b""),
        (Ping(2), b""),
    ]


@pytest.mark.parametrize("length", [0, 4, 9, 41])
def test_a_header_is_whole_words(length: int) -> None:
    _, server = opened()
    with pytest.raises(ProtocolError, match=f"header of {length} bytes; it must be"):
        server.receive(framed(bytes(length)))


@pytest.mark.parametrize("frame", [Ping(1), CreateTopic(1, "t", TopicConfig())])
def test_a_payload_comes_only_with_frames_that_have_one(frame: Frame) -> None:
    client, server = opened()
    with pytest.raises(ProtocolError, match="has a payload; it may not have one"):
        server.receive(framed(encode(frame), b"payload"))
    with pytest.raises(ProtocolError, match="has a payload; it may not have one"):
        client.send(frame, [b"payload"])


def test_padding_is_zeros() -> None:
    for size in (5, 100_005):
        _, server = opened()
        header = encode(Publish(1, "t"))
        with pytest.raises(ProtocolError, match=f"a payload of {size} bytes is padded with"):
            server.receive(framed(header, bytes(size), padding=b"\0\x01\0"))


# --- the end -------------------------------------------------------------------------------------


def test_an_end_between_frames_is_an_end() -> None:
    client, server = opened()
    server.receive(sent(client, Push(0, 1, 2), [b"batch"]))
    server.received_end()
    server.send(Done(1))  # the other direction is still there


@pytest.mark.parametrize("size", [0, 5, 20_000, 600_000])
def test_an_end_within_a_frame_is_an_error(size: int) -> None:
    client, _ = opened()
    stream = sent(client, Push(0, 1, 2), [bytes(size)])
    for cut in {1, 15, 16, 17, 71, 72, 73, len(stream) // 2, len(stream) - 1}:
        if cut < len(stream):
            _, server = opened()
            server.receive(stream[:cut])
            with pytest.raises(ProtocolError, match="ended in the middle of a frame"):
                server.received_end()


# --- after an error ------------------------------------------------------------------------------


def test_frames_before_the_breach_are_delivered_and_then_it_is_raised() -> None:
    client, server = opened()
    stream = sent(client, Ping(1)) + sent(client, Push(0, 1, 2), [b"batch"])
    broken = bytearray(sent(client, Ping(2)))
    broken[20] ^= 1
    assert received(server, [stream + broken]) == [(Ping(1), b""), (Push(0, 1, 2), b"batch")]
    assert "does not match its checksum" in str(server.error)
    for call in (
        server.get_buffer,
        lambda: server.buffer_updated(1),
        lambda: server.receive(b"x"),
        server.received_end,
        lambda: server.send(Ping(1)),
    ):
        with pytest.raises(ProtocolError, match=r"has failed: .* does not match its checksum"):
            call()


def test_the_farewell_says_why() -> None:
    garbage = struct.pack("<IIQ", 8, 0, 0) + bytes(8)
    reason = "a frame header of 8 bytes does not match its checksum"
    client, server = opened()
    for broken, other in ((client, server), (server, client)):
        with pytest.raises(ProtocolError):
            broken.receive(garbage)
        answer = b"".join(broken.farewell())
        fresh = both(other.role)[0]
        assert received(fresh, [answer]) == [(Goodbye(0, reason), b"")]


def test_the_farewell_of_a_server_before_the_welcome_is_a_failure() -> None:
    garbage = struct.pack("<IIQ", 8, 0, 0) + bytes(8)
    for server in (Connection("server"), greeted("server")):
        with pytest.raises(ProtocolError):
            server.receive(garbage)
        [(failure, _)] = greeted("client").receive(b"".join(server.farewell()))
        assert isinstance(failure, Failure)
        assert (failure.code, failure.request) == ("protocol", 0)
    for client in (Connection("client"), greeted("client")):
        with pytest.raises(ProtocolError):
            client.receive(garbage)
        assert client.farewell() == []
