"""Frames as Cap'n Proto messages: every kind there and back, and the format that must not drift."""

from __future__ import annotations

import dataclasses
import struct
import typing
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st

from hocket.errors import OutOfRange, ProtocolError, WrongType
from hocket.frames import (
    AlterTopic,
    Commit,
    CreateTopic,
    Credit,
    Done,
    Failure,
    Frame,
    Goodbye,
    Hello,
    OpenSubscription,
    Ping,
    Publish,
    Push,
    PushAcked,
    SeekIndex,
    Topics,
    packed,
)
from hocket.model import (
    IndexDescription,
    IndexPartition,
    Limits,
    PartitionDescription,
    Start,
    TopicConfig,
    TopicDescription,
)
from hocket.wire.frame_codec import decode, encode
from hocket.wire.schema import hocket_capnp
from hocket.wire.structs import SEGMENTS_MAX, camel
from tests.support.wire.frame_strategies import KINDS, frames, frames_of

NESTED = (
    TopicConfig, TopicDescription, PartitionDescription, IndexDescription, IndexPartition, Start,
    Limits,
)  # fmt: skip


# --- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=12)
@given(data=st.data())
def test_every_kind_comes_back_as_it_was(kind: type[Frame], data: st.DataObject) -> None:
    frame = data.draw(frames_of(kind))
    assert decode(encode(frame)) == frame


@given(frames())
def test_a_message_is_one_segment_and_whole_words(frame: Frame) -> None:
    message = encode(frame)
    segments, words = struct.unpack_from("<II", message)
    assert (segments, len(message)) == (0, 8 + 8 * words)


def test_a_large_message_is_one_segment_too() -> None:
    name = "broker-" + 20 * "x"
    partitions = tuple(
        PartitionDescription(number, 0, 9, 5, 1, 2, 3, 4, name, (name, name, name))
        for number in range(1000)
    )
    frame = Topics(7, (TopicDescription("orders", TopicConfig(partitions=1000), partitions),))
    message = encode(frame)
    assert len(message) > 100_000
    assert message[:4] == bytes(4)
    assert decode(message) == frame


@pytest.mark.parametrize("first_segment_words", [1, 2, 3, 5, 8, 13])
def test_a_message_of_several_segments_is_understood(first_segment_words: int) -> None:
    message = hocket_capnp.Frame.new_message(first_segment_words)
    message.request = 7
    hello = message.init("hello")
    hello.client = "a client"
    hello.features = ["one", "two"]
    hello.token = 100 * "secret"
    encoded = message.to_bytes()
    assert encoded[:4] != bytes(4)
    assert decode(encoded) == Hello(7, 1, 1, "a client", ("one", "two"), 100 * "secret")


def test_any_buffer_at_any_address_is_read() -> None:
    frame = Publish(1, "orders", 3)
    message = encode(frame)
    for shift in range(8):
        assert decode(memoryview(bytearray(bytes(shift) + message))[shift:]) == frame


def test_text_may_hold_any_character() -> None:
    frame = Goodbye(1, "\0 ä 漢字 \N{ROCKET} \x7f")
    assert decode(encode(frame)) == frame


# --- the format ----------------------------------------------------------------------------------


GOLDEN = [
    (
        Push(0, handle=5, partition=3),
        "0000000006000000 0000000002000100 0000000000000000 1000000000000000 0000000002000000"
        "0500000000000000 0300000000000000",
    ),
    (
        Publish(258, "orders"),
        "0000000007000000 0000000002000100 0201000000000000 1300000000000000 0000000001000100"
        "0000000000000000 010000003a000000 6f72646572730000",
    ),
    (
        CreateTopic(1, "t", TopicConfig(4, 3, 7, 8, None, 9, "memory", 10)),
        "000000000f000000 0000000002000100 0100000000000000 0600000000000000 0000000000000200 "
        "0500000012000000 0400000008000000 7400000000000000 0500000001000100 0300000001000100 "
        "0746c32300000000 0800001000000000 0000000000000000 0900000000000000 0a00000400000000 "
        "0000000000000000",
    ),
]
# The same as a client has sent it that knows no delayed messages.
OLD_CREATE_TOPIC = (
    "000000000e000000 0000000002000100 0100000000000000 0600000000000000 0000000000000200 "
    "0500000012000000 0400000007000000 7400000000000000 0500000001000100 0300000001000100 "
    "0746c32300000000 0800001000000000 0000000000000000 0900000000000000 0a00000400000000 "
)


def test_an_old_frame_is_understood() -> None:
    assert decode(bytes.fromhex(OLD_CREATE_TOPIC)) == GOLDEN[-1][0]


@pytest.mark.parametrize(("frame", "expected"), GOLDEN, ids=lambda each: type(each).__name__)
def test_the_bytes_are_the_bytes(frame: Frame, expected: str) -> None:
    assert encode(frame).hex() == expected.replace(" ", "")


def test_the_schema_has_the_frames_and_no_others() -> None:
    members = hocket_capnp.Frame.schema.union_fields
    assert list(members) == [camel(kind.__name__) for kind in KINDS]


@pytest.mark.parametrize("kind", [*KINDS, *NESTED], ids=lambda kind: kind.__name__)
def test_a_struct_has_the_fields_of_its_class(kind: type) -> None:
    schema = getattr(hocket_capnp, kind.__name__).schema
    names = [camel(field.name) for field in dataclasses.fields(kind)]
    assert sorted(schema.fieldnames) == sorted(name for name in names if name != "request")


@pytest.mark.parametrize(
    ("enum", "holder", "attribute"),
    [
        ("Mode", OpenSubscription, "mode"),
        ("Durability", TopicConfig, "durability"),
        ("StartKind", Start, "kind"),
    ],
)
def test_an_enum_has_the_values_of_its_literal(enum: str, holder: type, attribute: str) -> None:
    literal = typing.get_type_hints(holder)[attribute]
    assert typing.get_origin(literal) is Literal
    numbers = getattr(hocket_capnp, enum).schema.enumerants
    assert numbers == {camel(value): n for n, value in enumerate(typing.get_args(literal))}


@pytest.mark.parametrize(
    ("member", "frame"),
    [
        ("hello", Hello(0)),
        ("createTopic", CreateTopic(0, "", TopicConfig())),
        ("alterTopic", AlterTopic(0, "", TopicConfig())),
        ("publish", Publish(0, "")),
        ("openSubscription", OpenSubscription(0, "")),
        ("seekIndex", SeekIndex(0, "", "", Start())),
        ("failure", Failure(0, "", "")),
    ],
)
def test_what_a_sender_leaves_out_has_the_default_of_the_class(member: str, frame: Frame) -> None:
    """So that a client in another language gets a usual topic without setting every field."""
    message = hocket_capnp.Frame.new_message()
    message.init(member)
    assert decode(message.to_bytes()) == frame


def test_limits_left_out_are_the_usual_ones() -> None:
    message = hocket_capnp.Frame.new_message()
    message.init("welcome")
    assert getattr(decode(message.to_bytes()), "limits") == Limits()  # noqa: B009


# --- what a newer or a wrong sender sends --------------------------------------------------------


def patched(frame: Frame, position: int, replacement: bytes) -> bytes:
    message = bytearray(encode(frame))
    message[position : position + len(replacement)] = replacement
    return bytes(message)


@pytest.mark.parametrize("number", [len(KINDS), 999, 0xFFFF])
def test_a_kind_of_a_newer_version_is_named(number: int) -> None:
    message = patched(Ping(7), 24, number.to_bytes(2, "little"))
    with pytest.raises(ProtocolError, match=f"frame kind {number} is unknown to version 1"):
        decode(message)


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_every_kind_has_the_number_that_frame_kind_reads(number: int) -> None:
    message = hocket_capnp.Frame.new_message()
    message.init(camel(KINDS[number].__name__))
    with hocket_capnp.FrameKind.from_bytes(message.to_bytes()) as seen:
        assert seen.kind == number


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """A struct that is longer than ours, in data and in pointers."""
    words = [
        0x0001_0002_0000_0000,  # Frame: 2 words of data, 1 pointer
        7,  # request
        16,  # push
        0x0001_0003_0000_0000,  # Push, but with 3 words and a pointer
        5, 3, 99, 0,
    ]  # fmt: skip
    message = struct.pack("<II8Q", 0, 8, *words)
    assert decode(message) == Push(7, 5, 3)


def only_difference(one: Frame, other: Frame) -> int:
    """The position of the one byte in which two frames differ."""
    pairs = enumerate(zip(encode(one), encode(other), strict=True))
    [position] = [position for position, (left, right) in pairs if left != right]
    return position


def test_an_enum_of_a_newer_version_is_named() -> None:
    frame = OpenSubscription(1, "orders", mode="own")
    position = only_difference(frame, OpenSubscription(1, "orders", mode="shared"))
    with pytest.raises(ProtocolError, match="mode number 77 is unknown to version 1"):
        decode(patched(frame, position, bytes([77])))


def test_an_option_of_a_newer_version_is_named() -> None:
    frame = CreateTopic(1, "orders", TopicConfig(replication=None))
    position = only_difference(frame, CreateTopic(1, "orders", TopicConfig(replication=0)))
    with pytest.raises(ProtocolError, match="replication is of a kind unknown to version 1"):
        decode(patched(frame, position, bytes([77])))


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (Commit(1, 2, packed([0, 7])[:-8]), "positions of 8 bytes; it must be a multiple of 16"),
        (PushAcked(0, 1, 2, 3, b"1234567"), "offsets of 7 bytes; it must be a multiple of 8"),
    ],
)
def test_packed_numbers_must_be_whole(frame: Frame, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(encode(frame))


def test_text_that_is_not_utf_8_is_refused() -> None:
    message = encode(Goodbye(1, "reason")).replace(b"reason", b"rea\xffon")
    with pytest.raises(ProtocolError, match="malformed frame header: 'utf-8' codec"):
        decode(message)


def test_an_error_says_nothing_of_addresses() -> None:
    message = patched(Goodbye(1, "reason"), 32, b"\xff" * 8)
    with pytest.raises(ProtocolError, match="malformed frame header") as caught:
        decode(message)
    assert "stack:" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_kind_that_is_not_permitted_is_refused_unread() -> None:
    broken = patched(Goodbye(1, "reason"), 32, b"\xff" * 8)
    with pytest.raises(ProtocolError, match="Goodbye is not allowed from a cat"):
        decode(broken, {Ping}, "from a cat")
    assert decode(encode(Ping(1)), {Ping}) == Ping(1)


# --- what does not fit into a frame --------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "error", "complaint"),
    [
        (Credit(0, 1, -1), OutOfRange, "Credit"),
        (Credit(0, 1, 2**64), OutOfRange, "Credit"),
        (Push(0, 1, 2**32), OutOfRange, "Push"),
        (Publish(0, "t", 2**31), OutOfRange, "Publish"),
        (Publish(0, "\ud800"), OutOfRange, "surrogates"),
        (Publish(0, typing.cast(Any, 5)), OutOfRange, "Publish"),
        (Publish(0, typing.cast(Any, object())), OutOfRange, "Publish"),
        (CreateTopic(0, "t", typing.cast(Any, None)), WrongType, "CreateTopic"),
        (OpenSubscription(0, "t", mode=typing.cast(Any, "mine")), OutOfRange, "not 'mine'"),
    ],
)
def test_a_field_that_does_not_fit_is_an_error_of_ours(
    frame: Frame, error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        encode(frame)


def test_a_secret_is_not_in_the_error() -> None:
    with pytest.raises(OutOfRange) as caught:
        encode(Hello(-1, token="a secret"))
    assert "a secret" not in str(caught.value)


# --- limits --------------------------------------------------------------------------------------


def test_a_message_must_be_whole_words() -> None:
    for length in (0, 1, 4, 7, 9, 41):
        with pytest.raises(ProtocolError, match=f"a frame header of {length} bytes"):
            decode(bytes(length))


@pytest.mark.parametrize("count", [SEGMENTS_MAX + 1, 2**31, 2**32])
def test_a_segment_table_may_not_be_a_bomb(count: int) -> None:
    message = struct.pack("<I", count - 1) + bytes(4 * SEGMENTS_MAX + 4)
    with pytest.raises(ProtocolError, match=f"of {count} segments; at most 512"):
        decode(message + bytes(-len(message) % 8))


def test_a_segment_table_may_not_be_cut_short() -> None:
    with pytest.raises(ProtocolError, match="ends within its segment table"):
        decode(struct.pack("<II", SEGMENTS_MAX - 1, 0))


@pytest.mark.parametrize("words", [0, 3, 5, 2**32 - 1])
def test_a_segment_is_as_long_as_the_table_says(words: int) -> None:
    message = bytearray(encode(Done(1)))
    assert message[4:8] == struct.pack("<I", 4)
    message[4:8] = struct.pack("<I", words)
    with pytest.raises(ProtocolError, match="its segments take"):
        decode(message)


def test_as_many_segments_as_are_allowed_are_read() -> None:
    table = struct.pack("<II", SEGMENTS_MAX - 1, 4) + bytes(4 * SEGMENTS_MAX - 4)
    table += bytes(-len(table) % 8)
    assert decode(table + encode(Done(9))[8:]) == Done(9)


def test_a_list_that_claims_more_than_it_sends_is_refused() -> None:
    """2**29 - 1 topics without any data of their own take no bytes at all."""
    words = [
        0x0001_0002_0000_0000, 7, 11,  # Frame: a request, Topics
        0x0001_0000_0000_0000,  # Topics: one pointer
        0x0000_0007_0000_0001,  # a list of structs, 0 words long
        (2**29 - 1) << 2,  # so many of them, of no size
    ]  # fmt: skip
    with pytest.raises(ProtocolError, match="malformed frame header"):
        decode(struct.pack("<II6Q", 0, 6, *words))
