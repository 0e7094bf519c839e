"""The two ends of a link, joined with no network between them; and clients at the same port."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from hocket.core.relay.messages import Fetched, Piece
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Beacon, GetState, Ping, Pong, RegistryIs
from hocket.errors import MessageTooLarge, ProtocolError, WrongType
from hocket.frames import Failure, Hello, Ping as ClientPing, Welcome
from hocket.model import Limits, PartitionId
from hocket.node.messages import CODEC, MESSAGES
from hocket.node_frames import Heartbeat, HelloAccepted, HelloRefused, NodeHello
from hocket.wire import frame_codec
from hocket.wire.connection import Connection
from hocket.wire.framing import (
    HEADER_BYTES_MAX,
    NODE_MARK,
    OPENING_HEADER_BYTES_MAX,
    PREFIX,
    framed,
)
from hocket.wire.node_codec import Envelope
from hocket.wire.node_connection import LINK_RULES, LinkPhase, NodeConnection, Side
from tests.support.threads import LONG, noise
from tests.support.wire.node_strategies import messages_of

HELLO = NodeHello(cluster="c", node="n", position=5, address="n:1", incarnation=7)
A = Contact(2**64 - 1, "a", 3, "a:4150", "rack")
PARTITION = PartitionId("orders", 3, 17)
ROUNDS = 5_000 if LONG else 400


def sent(connection: NodeConnection, message: Any, *lives: int) -> bytes:
    return b"".join(connection.send(message, *lives))


def greeted(**limits: int) -> tuple[NodeConnection, NodeConnection]:
    dialler, acceptor = (
        NodeConnection("dialler", CODEC),
        NodeConnection("acceptor", CODEC, **limits),
    )
    assert acceptor.received(sent(dialler, HELLO)) == [Envelope(HELLO)]
    return dialler, acceptor


def opened(**limits: int) -> tuple[NodeConnection, NodeConnection]:
    dialler, acceptor = greeted(**limits)
    answer = HelloAccepted(node="m", payload_bytes_max=acceptor.payload_bytes_max)
    assert dialler.received(sent(acceptor, answer)) == [Envelope(answer)]
    return dialler, acceptor


def fetched(*sizes: int) -> Fetched:
    pieces = [Piece(at, at + 1, noise(size)) for at, size in enumerate(sizes)]
    return Fetched(1, PARTITION, tuple(pieces), 9, (A,), 2)


def test_a_link_begins_with_a_hello_and_carries_messages_one_way() -> None:
    dialler, acceptor = opened()
    said = [GetState(1), fetched(100, 0, 7), Heartbeat(1, 0), Pong(2, True, Beacon())]
    stream = b"".join(sent(dialler, each, 7, 9) for each in said)
    assert acceptor.received(stream) == [Envelope(each, 7, 9) for each in said]
    assert dialler.received(sent(acceptor, Heartbeat(1, 1))) == [Envelope(Heartbeat(1, 1))]
    acceptor.received_end()


@settings(max_examples=40)
@given(data=st.data())
def test_a_stream_comes_in_any_pieces(data: st.DataObject) -> None:
    said = [
        data.draw(messages_of(data.draw(st.sampled_from(MESSAGES))))
        for _ in range(data.draw(st.integers(1, 4)))
    ] + [fetched(*data.draw(st.lists(st.sampled_from([1, 9, 5000, 20_000]), max_size=3)))]
    dialler, acceptor = opened()
    stream = b"".join(sent(dialler, each) for each in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    heard = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        heard += acceptor.received(stream[start:end])
    assert heard == [Envelope(each) for each in said]


def test_bytes_that_arrive_in_place_are_messages_too() -> None:
    dialler, acceptor = opened()
    rest = memoryview(sent(dialler, fetched(300_000, 10)))
    heard = []
    while rest:
        buffer = acceptor.get_buffer()
        count = min(len(rest), len(buffer))
        buffer[:count], rest = rest[:count], rest[count:]
        heard += acceptor.messages(count)
    assert heard == [Envelope(fetched(300_000, 10))]


def test_batches_are_written_from_where_they_lie() -> None:
    dialler, _ = opened()
    message = fetched(100_000, 16)
    buffers = dialler.send(message)
    assert all(one is piece.data for one, piece in zip(buffers[1:3], message.pieces, strict=True))


# --- who may say what ----------------------------------------------------------------------------

SAMPLES = {NodeHello: HELLO, HelloAccepted: HelloAccepted(), HelloRefused: HelloRefused(),
           Heartbeat: Heartbeat(1), GetState: GetState(1), Fetched: fetched(5)}  # fmt: skip


def in_phase(phase: LinkPhase) -> tuple[NodeConnection, NodeConnection]:
    if phase == "silent":
        return NodeConnection("dialler", CODEC), NodeConnection("acceptor", CODEC)
    if phase == "open":
        return opened()
    pair = greeted()
    if phase == "refused":
        pair[0].received(sent(pair[1], HelloRefused("wrongCluster", "no")))
    return pair


@pytest.mark.parametrize(("phase", "side"), LINK_RULES, ids=str)
def test_each_side_says_only_what_it_may(phase: LinkPhase, side: Side) -> None:
    rule = LINK_RULES[phase, side]
    for kind, message in SAMPLES.items():
        may = kind in rule.kinds or (rule.messages and kind in MESSAGES)
        pair = in_phase(phase)
        speaker, listener = pair if side == "dialler" else pair[::-1]
        assert (speaker.phase, listener.phase) == (phase, phase)
        header, payload = CODEC.encode(message)
        stream = b"".join(framed(header, list(payload), NODE_MARK))
        if may:
            assert sent(speaker, message) == stream
            assert listener.received(stream) == [Envelope(message)]
            assert speaker.phase == listener.phase
            continue
        with pytest.raises(ProtocolError, match=f"{kind.__name__} is not allowed"):
            speaker.send(message)
        with pytest.raises(ProtocolError):
            listener.received(stream)
        with pytest.raises(ProtocolError, match="the connection has failed"):
            listener.get_buffer()


def test_a_message_that_no_node_understands_costs_the_sender_nothing() -> None:
    dialler, acceptor = opened()
    with pytest.raises(WrongType, match="no node understands a Ping"):
        dialler.send(ClientPing(1))
    assert acceptor.received(sent(dialler, Ping(1))) == [Envelope(Ping(1))]


def test_what_came_before_a_breach_is_heard() -> None:
    dialler, acceptor = opened()
    assert acceptor.received(sent(dialler, GetState(1)) + bytes(16)) == [Envelope(GetState(1))]
    assert acceptor.error is not None


def test_who_breaks_the_protocol_before_the_link_is_open_is_told_why() -> None:
    dialler, acceptor = greeted()
    with pytest.raises(ProtocolError):
        acceptor.received(bytes(16))
    [envelope] = dialler.received(b"".join(acceptor.farewell()))
    assert envelope.message.code == "failed"
    assert "the frame of a client is not allowed" in envelope.message.text
    assert dialler.phase == "refused"
    for pair in (opened(), in_phase("refused")):
        with pytest.raises(ProtocolError):
            pair[1].received(bytes(16))
        assert pair[1].farewell() == []
    dialler, _ = opened()
    with pytest.raises(ProtocolError):
        dialler.received(bytes(16))
    assert dialler.farewell() == []


# --- limits --------------------------------------------------------------------------------------


def test_before_the_answer_little_is_taken() -> None:
    for side in ("dialler", "acceptor"):
        for header, payload in ((OPENING_HEADER_BYTES_MAX + 8, 0), (64, 1)):
            prefix = PREFIX.pack(header | NODE_MARK, 0, payload)
            with pytest.raises(ProtocolError, match=r"at most 65536 \+ 0 .* before the answer"):
                NodeConnection(side, CODEC).received(prefix)


def test_what_is_too_large_is_refused_at_once_and_not_sent() -> None:
    for header, payload in ((HEADER_BYTES_MAX + 8, 0), (64, 1001), (2**31 - 1, 2**64 - 1)):
        _, acceptor = opened(payload_bytes_max=1000)
        with pytest.raises(ProtocolError, match=rf"of {header} \+ {payload} bytes; at most"):
            acceptor.received(PREFIX.pack(header | NODE_MARK, 0, payload))
    dialler, acceptor = opened(payload_bytes_max=1000)
    with pytest.raises(MessageTooLarge, match=r"\+ 1001 bytes; at most 1048576 \+ 1000"):
        dialler.send(fetched(1001))
    assert acceptor.received(sent(dialler, fetched(1000))) == [Envelope(fetched(1000))]


def test_a_payload_that_its_header_does_not_announce_is_refused_before_it_arrives() -> None:
    _, acceptor = opened()
    header, _ = CODEC.encode(fetched(5))
    with pytest.raises(ProtocolError, match="a payload of 9 bytes; its header says 5"):
        acceptor.received(PREFIX.pack(len(header) | NODE_MARK, crc32c(header), 9) + header)


def test_a_header_that_does_not_match_its_checksum_is_refused() -> None:
    dialler, acceptor = opened()
    stream = bytearray(sent(dialler, GetState(1)))
    stream[30] ^= 1
    with pytest.raises(ProtocolError, match="does not match its checksum"):
        acceptor.received(stream)


def test_a_list_is_limited_by_the_header() -> None:
    dialler, acceptor = opened()
    message = RegistryIs(1, Beacon(), 1024, (A._replace(node="n" * 255),) * 1024)
    assert acceptor.received(sent(dialler, message)) == [Envelope(message)]


# --- nodes and clients at one port ---------------------------------------------------------------


def test_the_first_word_of_a_connection_says_who_calls() -> None:
    stream = sent(NodeConnection("dialler", CODEC), HELLO)
    door = Connection("server")
    for at in range(3):
        assert door.receive(stream[at : at + 1]) == []
        assert not door.is_of_node
    with pytest.raises(ProtocolError, match="here is none that takes links"):
        door.receive(stream[3:40])
    assert door.is_of_node
    acceptor = NodeConnection("acceptor", CODEC)  # it takes over what the door has received
    assert acceptor.received(door.unread) == []
    assert acceptor.received(stream[40:]) == [Envelope(HELLO)]


def test_a_client_is_no_node() -> None:
    door = Connection("server")
    assert door.receive(b"".join(Connection("client").send(Hello(1))))
    assert not door.is_of_node


def test_a_nodes_frame_in_the_middle_of_a_clients_connection_is_a_breach() -> None:
    client, door = Connection("client"), Connection("server")
    door.receive(b"".join(client.send(Hello(1))))
    client.receive(b"".join(door.send(Welcome(1, 1, "n", "s", (), Limits()))))
    with pytest.raises(ProtocolError, match="frame of a node is not allowed on this connection"):
        door.receive(sent(NodeConnection("dialler", CODEC), HELLO))
    assert not door.is_of_node


def test_a_client_at_a_link_is_a_breach() -> None:
    stream = b"".join(Connection("client").send(Hello(1)))
    with pytest.raises(ProtocolError, match="frame of a client is not allowed on a link of nodes"):
        NodeConnection("acceptor", CODEC).received(stream)


def test_a_broker_that_knows_no_links_refuses_a_node_so_that_it_understands() -> None:
    dialler, door = NodeConnection("dialler", CODEC), Connection("server")
    with pytest.raises(ProtocolError):
        door.receive(sent(dialler, HELLO))
    [envelope] = dialler.received(b"".join(door.farewell()))
    assert envelope.message.code == "protocol"
    assert "here is none that takes links" in envelope.message.text
    assert dialler.phase == "refused"


def test_a_broker_that_takes_nobody_refuses_a_node_before_its_hello() -> None:
    dialler = NodeConnection("dialler", CODEC)
    refusal = b"".join(Connection("server").send(Failure(0, "shuttingDown", "x" * 12_000)))
    [envelope] = dialler.received(refusal)
    assert envelope.message == HelloRefused("shuttingDown", "x" * 10_000)
    assert sent(dialler, HELLO)  # it may have been under way


@pytest.mark.parametrize(
    "answer", [Welcome(1, 1, "n", "s", (), Limits()), ClientPing(1)], ids=["Welcome", "Ping"]
)
def test_a_broker_answers_a_node_with_a_failure_or_not_at_all(answer: Any) -> None:
    dialler, _ = greeted()
    with pytest.raises(ProtocolError, match="not allowed from a broker that a node has called"):
        dialler.received(b"".join(framed(frame_codec.encode(answer), [])))
    dialler, _ = greeted()
    with pytest.raises(ProtocolError, match=r"of 64 \+ 8 bytes; at most 65536 \+ 0"):
        dialler.received(struct.pack("<IIQ", 64, 0, 8))


def test_the_end_in_the_middle_of_a_message_is_a_breach() -> None:
    dialler, acceptor = opened()
    acceptor.received(sent(dialler, GetState(1))[:-1])
    with pytest.raises(ProtocolError, match="ended in the middle of a frame"):
        acceptor.received_end()


@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_bit_is_found_unless_it_is_in_a_batch(seed: int) -> None:
    """A batch has the checksum of its producer, which the receiver of its records checks."""
    chance = random.Random(f"{seed}")
    said = [GetState(1), fetched(40, 8), Heartbeat(1, 0), RegistryIs(1, Beacon(), 2, (A, A))]
    whole = b"".join(sent(opened()[0], each) for each in said)
    for _ in range(ROUNDS):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        acceptor = opened()[1]
        heard = []
        with suppress(ProtocolError):
            heard = acceptor.received(damaged)
            acceptor.received_end()
        for envelope, message in zip(heard, said, strict=False):
            if isinstance(message, Fetched):
                assert replace(envelope.message, pieces=()) == replace(message, pieces=())
            else:
                assert envelope == Envelope(message)
        differs = heard != [Envelope(each) for each in said]
        assert differs or acceptor.error is not None
