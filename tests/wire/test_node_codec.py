"""Messages between nodes as Cap'n Proto: every kind there and back, and what is refused."""

from __future__ import annotations

import importlib
import pkgutil
import re
import struct
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import hocket.core
from hocket.core.placement.locator import LeaderIs, WhereIs
from hocket.core.relay.messages import Attach, Detach, Fetch, Fetched, Piece
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Beacon, GetState, Gone, Notify, Ping, Pong, RegistryIs
from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.model import PARTITIONS_MAX, PartitionId
from hocket.node.messages import CODEC, MESSAGES
from hocket.node_frames import Heartbeat, HelloAccepted, HelloRefused, NodeHello
from hocket.wire.node_codec import ITEMS_MAX, PIECES_MAX, REASON_MAX, TEXT_MAX, Envelope, NodeCodec
from hocket.wire.node_schema import node_capnp
from hocket.wire.structs import camel, names_of
from tests.support.wire.node_strategies import lives, messages, messages_of

ROOT = Path(__file__).parents[2]
A = Contact(2**64 - 1, "a", 3, "a:4150", "rack")
PARTITION = PartitionId("orders", 3, 17)
VALUES = (Contact, Beacon, PartitionId)


def there_and_back(message: Any, *lives_: int) -> Envelope:
    header, payload = CODEC.encode(message, *lives_)
    return CODEC.decode(header, b"".join(payload))


# --- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CODEC.classes, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_every_kind_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    envelope = Envelope(data.draw(messages_of(kind)), data.draw(lives), data.draw(lives))
    back = there_and_back(*envelope)
    assert back == envelope
    assert type(back.message) is kind


@settings(max_examples=20)
@given(messages())
def test_a_message_is_one_segment_and_whole_words(message: Any) -> None:
    header, _ = CODEC.encode(message)
    segments, words = struct.unpack_from("<II", header)
    assert (segments, len(header)) == (0, 8 + 8 * words)


def test_a_large_message_is_one_segment_too() -> None:
    message = RegistryIs(1, Beacon(), 500, (A,) * 500)
    header, _ = CODEC.encode(message)
    assert len(header) > 30_000
    assert header[:4] == bytes(4)
    assert CODEC.decode(header).message == message


def test_batches_travel_beside_the_header_and_are_not_copied_by_the_sender() -> None:
    data = [bytes(range(200)) * 50, b"", b"second"]
    pieces = (Piece(0, 5, data[0]), Piece(5, 6, data[1]), Piece(6, 9, data[2]))
    header, payload = CODEC.encode(Fetched(1, PARTITION, pieces, 9, (A,), 2))
    assert len(header) < 400
    assert all(sent is given_ for sent, given_ in zip(payload, data, strict=True))


def test_batches_are_kept_apart_from_the_memory_that_they_arrived_in() -> None:
    message = Fetched(1, PARTITION, (Piece(0, 5, b"first"), Piece(5, 6, b"2nd")), 9, (), 2)
    header, payload = CODEC.encode(message)
    arrived = bytearray(b"".join(payload))
    back = CODEC.decode(header, memoryview(arrived)).message
    arrived[:] = bytes(len(arrived))
    assert back == message
    assert all(type(piece.data) is bytes for piece in back.pieces)


def test_a_message_without_a_request_takes_none() -> None:
    """So that whatever stands there from a newer version is no fault."""
    message = node_capnp.NodeFrame.new_message()
    message.request = 77
    message.init("heartbeat").number = 5
    assert CODEC.decode(message.to_bytes()) == Envelope(Heartbeat(5, 0))


# --- nothing is forgotten ------------------------------------------------------------------------


UNDRIVEN = "hocket.core.raft."  # no node drives this room yet; the first that does removes this


def unions_of_messages() -> dict[str, tuple[type, ...]]:
    """Every union in the cores whose name says that it is one of messages."""
    found = {}
    for module in pkgutil.walk_packages(hocket.core.__path__, "hocket.core."):
        if module.name.startswith(UNDRIVEN):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.endswith("Message") and typing.get_origin(value) is types.UnionType:
                found[f"{module.name}.{name}"] = typing.get_args(value)
    return found


def test_every_message_of_the_cores_can_be_sent() -> None:
    unions = unions_of_messages()
    assert len(unions) >= 3
    missing = {
        name: [each.__name__ for each in kinds if each not in MESSAGES]
        for name, kinds in unions.items()
    }
    assert {name: kinds for name, kinds in missing.items() if kinds} == {}


@pytest.mark.parametrize(
    "module", ["core.ring.messages", "core.relay.messages", "node_frames"], ids=str
)
def test_every_class_in_a_module_of_messages_is_one(module: str) -> None:
    made = vars(importlib.import_module(f"hocket.{module}")).values()
    here = [each for each in made if hasattr(each, "__dataclass_fields__")]
    assert [each for each in here if each not in CODEC.classes] == []


def test_what_has_no_codec_cannot_be_sent() -> None:
    @dataclass
    class Rumour:
        request: int

    with pytest.raises(WrongType, match="no node understands a Rumour"):
        CODEC.encode(Rumour(1))
    with pytest.raises(OutOfRange, match="struct has no such member"):
        NodeCodec([Rumour]).encode(Rumour(1))


# --- the format ----------------------------------------------------------------------------------


GOLDEN = [
    (
        Detach(PARTITION),
        "000000000b000000 0000000004000100 0000000000000000 0100000000000000 0200000000000000"
        "1b00000000000000 0000000000000100 0000000002000100 0300000000000000 1100000000000000"
        "010000003a000000 6f72646572730000",
    ),
    (
        GetState(258),
        "0000000006000000 0000000004000100 0201000000000000 0100000000000000 0200000000000000"
        "0400000000000000 fcffffff00000000",
    ),
]


@pytest.mark.parametrize(("message", "expected"), GOLDEN, ids=["Detach", "GetState"])
def test_the_bytes_are_the_bytes(message: Any, expected: str) -> None:
    assert CODEC.encode(message, 1, 2)[0].hex() == expected.replace(" ", "")


def test_the_schema_has_the_messages_and_no_others() -> None:
    members = node_capnp.NodeFrame.schema.union_fields
    members = [each for each in members if not each.startswith("unused")]
    assert sorted(members) == sorted(camel(kind.__name__) for kind in CODEC.classes)


@pytest.mark.parametrize("kind", [*CODEC.classes, *VALUES], ids=lambda kind: kind.__name__)
def test_a_struct_has_the_fields_of_its_class(kind: type) -> None:
    schema = getattr(node_capnp, kind.__name__).schema
    names = [camel(name) for name in names_of(kind) if name != "request"]
    assert sorted(schema.fieldnames) == sorted(names)


# Never renumbered: a node of an older version must understand.
NUMBERS = [
    "nodeHello",
    "helloAccepted",
    "helloRefused",
    "heartbeat",
    "getState",
    "stateIs",
    "busy",
    "gone",
    "joinAt",
    "welcome",
    "notMine",
    "notify",
    "ping",
    "pong",
    "getCloser",
    "closerAre",
    "leaving",
    "beaconIs",
    "register",
    "deregister",
    "askRoot",
    "getRegistry",
    "registryIs",
    "attach",
    "attached",
    "redirect",
    "notRelaying",
    "detach",
    "fetch",
    "fetched",
    "behind",
    "notAttached",
    "moveUp",
    "publishLeader",
    "whereIs",
    "leaderIs",
]


def test_the_numbers_stay_and_new_ones_come_at_the_end() -> None:
    members = list(node_capnp.NodeFrame.schema.union_fields)
    assert members[: len(NUMBERS)] == NUMBERS
    for number, name in enumerate(members):
        message = node_capnp.NodeFrame.new_message()
        message.init(name)
        with node_capnp.NodeFrameKind.from_bytes(message.to_bytes()) as seen:
            assert seen.kind == number


@pytest.mark.parametrize(
    "message",
    [
        NodeHello(), HelloAccepted(), HelloRefused(), Heartbeat(), Ping(0),
        Attach(0, PartitionId("", 0), 0, 0), Fetch(0, PartitionId("", 0), 0, 0, 0, 0),
        Fetched(0, PartitionId("", 0), (), 0, (), 0), LeaderIs(0, PartitionId("", 0), None),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_what_a_sender_leaves_out_has_the_default_of_the_class(message: Any) -> None:
    frame = node_capnp.NodeFrame.new_message()
    frame.init(camel(type(message).__name__))
    assert CODEC.decode(frame.to_bytes()) == Envelope(message)


def test_every_field_of_the_schema_has_its_comment() -> None:
    source = (ROOT / "src" / "hocket" / "schema" / "node.capnp").read_text()
    body = source.split("\nstruct NodeFrameKind {")[1]
    fields = re.findall(r"^ +\w+ @\d+.*;\n(.*)$", body, re.M)
    assert len(fields) > 70
    assert [after for after in fields if not after.strip().startswith("# ")] == []


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [len(node_capnp.NodeFrame.schema.union_fields), 999, 0xFFFF])
def test_a_kind_of_a_newer_version_is_named(number: int) -> None:
    header = bytearray(CODEC.encode(GetState(7))[0])
    header[40:42] = number.to_bytes(2, "little")
    with pytest.raises(ProtocolError, match=f"node frame kind {number} is unknown to version 1"):
        CODEC.decode(header)


def test_a_kind_that_is_not_permitted_is_refused_unread() -> None:
    header, _ = CODEC.encode(Notify(A))
    with pytest.raises(ProtocolError, match="notify is not allowed before the hello"):
        CODEC.decode_header(header, {NodeHello}, "before the hello")
    assert CODEC.decode_header(header, {Notify}).message == Notify(A)


LONG = "x" * (TEXT_MAX + 1)
TOO_MUCH: list[tuple[Any, str]] = [
    (Notify(A._replace(node=LONG)), "node has 256 characters; at most 255 may be"),
    (Notify(A._replace(address=LONG)), "address has 256 characters"),
    (WhereIs(1, PartitionId(LONG, 0)), "topic has 256 characters"),
    (WhereIs(1, PartitionId("t", PARTITIONS_MAX)), "partition is 4096; at most 4095 may be"),
    (HelloRefused("failed", "x" * (REASON_MAX + 1)), "text has 10001 characters"),
    (NodeHello(features=(LONG,)), "features has 256 characters in one"),
    (RegistryIs(1, Beacon(), 9, (A,) * (ITEMS_MAX + 1)), "members has 1025 items"),
    (Fetched(1, PARTITION, (Piece(7, 7, b"x"),), 9, (), 1), "from offset 7 to 7 has no records"),
    (
        Fetched(1, PARTITION, (Piece(7, 8, b""),) * (PIECES_MAX + 1), 9, (), 1),
        "pieces has 16385 items",
    ),
]


@pytest.mark.parametrize(("message", "complaint"), TOO_MUCH, ids=[each for _, each in TOO_MUCH])
def test_more_than_a_node_takes_is_not_sent_and_not_taken(
    message: Any, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutOfRange, match=complaint):
        CODEC.encode(message)
    with monkeypatch.context() as patched:  # one that does not keep the bounds
        for bound in ("TEXT_MAX", "REASON_MAX", "ITEMS_MAX", "PIECES_MAX"):
            patched.setattr(f"hocket.wire.node_codec.{bound}", 1 << 30)
        patched.setattr("hocket.wire.node_codec._TEXTS_MAX", {})
        patched.setattr("hocket.wire.node_codec._NUMBERS_MAX", {})
        patched.setattr("hocket.wire.node_codec._check_piece", lambda *_: None)
        header, payload = NodeCodec(MESSAGES).encode(message)
    with pytest.raises(ProtocolError, match=complaint):
        CODEC.decode(header, b"".join(payload))


def test_as_much_as_a_node_takes_comes_through() -> None:
    for message in (
        Notify(A._replace(node=LONG[1:], address=LONG[1:], domain=LONG[1:])),
        WhereIs(1, PartitionId(LONG[1:], PARTITIONS_MAX - 1, 2**64 - 1)),
        RegistryIs(1, Beacon(), 9, (A,) * ITEMS_MAX),
        Fetched(1, PARTITION, (Piece(7, 8, b""),) * PIECES_MAX, 9, (), 1),
    ):
        assert there_and_back(message).message == message


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (GetState(-1), OutOfRange),
        (GetState(2**64), OutOfRange),
        (Notify(A._replace(position=2**64)), OutOfRange),
        (Notify(A._replace(incarnation=-1)), OutOfRange),
        (Fetched(1, PARTITION, (Piece(-1, 8, b""),), 9, (), 1), OutOfRange),
        (Fetched(1, PARTITION, (Piece(1, 2**64, b""),), 9, (), 1), OutOfRange),
        (Notify(A._replace(node="\ud800")), OutOfRange),
        (Notify(typing.cast(Any, None)), WrongType),
        (Notify(A._replace(node=typing.cast(Any, 5))), WrongType),
    ],
    ids=repr,
)
def test_a_field_that_does_not_fit_is_an_error_of_ours(
    message: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        CODEC.encode(message)


@pytest.mark.parametrize("length", [0, 4, 6, 1000])
def test_a_payload_is_as_long_as_its_header_says(length: int) -> None:
    header, _ = CODEC.encode(Fetched(1, PARTITION, (Piece(0, 5, b"batch"),), 9, (), 2))
    with pytest.raises(ProtocolError, match=f"a payload of {length} bytes; its header says 5"):
        CODEC.decode(header, bytes(length))
    with pytest.raises(ProtocolError, match="Gone has a payload of 8 bytes; its header says 0"):
        CODEC.decode(CODEC.encode(Gone(1, A, Beacon()))[0], bytes(8))


def test_packed_pieces_must_be_whole() -> None:
    frame = node_capnp.NodeFrame.new_message()
    frame.init("fetched").pieces = bytes(23)
    with pytest.raises(ProtocolError, match="pieces of 23 bytes; it must be a multiple of 24"):
        CODEC.decode(frame.to_bytes())


def test_an_option_of_a_newer_version_is_named() -> None:
    one, other = (CODEC.encode(each)[0] for each in (Ping(7), Ping(7, A)))
    [position] = [
        at for at, (left, right) in enumerate(zip(one, other, strict=False))
        if at >= 48 and left != right and (left, right) == (0, 1)
    ][:1]  # fmt: skip
    damaged = bytearray(one)
    damaged[position] = 77
    with pytest.raises(ProtocolError, match="about is of a kind unknown to version 1"):
        CODEC.decode(damaged)


def test_text_that_is_not_utf_8_is_refused() -> None:
    header = CODEC.encode(HelloRefused("busy", "reason"))[0].replace(b"reason", b"rea\xffon")
    with pytest.raises(ProtocolError, match="malformed frame header: 'utf-8' codec"):
        CODEC.decode(header)


def test_a_list_that_claims_more_than_it_sends_is_refused() -> None:
    """2**29 - 1 contacts without any data of their own take no bytes at all."""
    words = [
        0x0001_0004_0000_0000, 7, 0, 0, 9,  # NodeFrame: a request, welcome
        0x0002_0000_0000_0000,  # Welcome: two pointers
        0x0000_0007_0000_0005,  # a list of structs, 0 words long
        0,
        (2**29 - 1) << 2,  # so many of them, of no size
    ]  # fmt: skip
    with pytest.raises(ProtocolError, match=r"malformed frame header|has 536870911 items"):
        CODEC.decode(struct.pack("<II9Q", 0, 9, *words))


def test_a_pong_is_not_the_pong_of_clients() -> None:
    """The two schemas have names in common, and nothing else."""
    assert there_and_back(Pong(1, True, Beacon(1, 2, 3, "root:1"))).message.beacon.root == "root:1"
