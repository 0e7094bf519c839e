"""Hostile frames and batches, made from good ones: the same ones for the same seed.

Frames are made from their dataclasses, so that a new kind is attacked the moment it is there.
"""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from typing import Any, Literal

from crc32c import crc32c

from hocket import frames
from hocket.errors import HocketError
from hocket.frames import Frame, packed
from hocket.model import Grant, Participant, Start, TopicConfig
from hocket.tickets import KEY_BYTES, LEASE_BYTES
from hocket.wire.batch import PRELUDE, encode
from hocket.wire.connection import _BY_CLIENT
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header
from hocket.wire.frame_codec import encode as encode_frame
from tests.attack.place import EVES_NAME, OPEN, VICTIM
from tests.support.wire.damaged_headers import damage

NOBODY = "nobody"  # a role that there is not, so that no frame makes an admin
# Names that are only used up: what has them may be deleted by whoever may.
LITTER = ["litter-1", "litter-2"]
# What these do to a topic is allowed to everybody while access control is off.
DESTRUCTIVE = (
    frames.DeleteTopic, frames.AlterTopic, frames.SeekIndex, frames.SkipUnreadable,
    frames.DeleteIndex, frames.CreateTopic, frames.OpenSubscription, frames.Revive,
    frames.DeleteMessages,
)  # fmt: skip

NUMBERS = [
    0, 1, 2, 7, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63,
    2**64 - 1, -1, -(2**31), -(2**63),
]  # fmt: skip
# Not 4096, which is allowed, and would make as many logs.
PARTITIONS = [0, 3, 4097, 65_535, 2**31 - 1]
WORDS = [
    "", OPEN, "no-such-topic", "x" * 255, "x" * 256, "x" * 10_000, "a/b", "..", "\0", "\u00fc",
    "*", "/", "hocket:\0", "%s%n", "\U0001f4a5", ".dlq", "open.dlq",
]  # fmt: skip

SAMPLES: list[Frame] = [
    frames.Ping(1),
    frames.CreateTopic(1, LITTER[0], TopicConfig(2)),
    frames.AlterTopic(1, LITTER[0], TopicConfig(2)),
    frames.DeleteTopic(1, LITTER[1]),
    frames.ListTopics(1),
    frames.DescribeRing(1),
    frames.LookUpKey(1, "a key"),
    frames.ListNodes(1),
    frames.FindLeaders(1, OPEN),
    frames.DescribeTree(1, OPEN),
    frames.ReadAudit(1, 0),
    frames.DescribeCluster(1),
    frames.SetCluster(1, 9),
    frames.DescribePlugins(1),
    frames.DescribeTopic(1, OPEN),
    frames.FindOffsets(1, OPEN, Start("time", 5)),
    frames.ListIndexes(1, OPEN),
    frames.OpenProducer(1, OPEN),
    frames.OpenProducer(1, OPEN, b"p" * 16, 1, "job", 3),
    frames.Push(0, 1, 0),
    frames.Publish(1, OPEN, 0),
    frames.CloseHandle(1, 3),
    frames.OpenSubscription(1, OPEN, credit_bytes=1000),
    frames.OpenSubscription(
        1, OPEN, "eve-shared", "shared", consumer=b"c" * 16, prefetch=5, held=packed([0, 0, 1])
    ),
    frames.OpenFeed(1, OPEN, "", packed([0, 1, 0]), 1000),
    frames.Credit(0, 2, 1000),
    frames.Commit(1, 2, packed([0, 0])),
    frames.Settle(1, 3, "ack", packed([0, 0, 1])),
    frames.SeekIndex(1, OPEN, "eve-own", Start("earliest")),
    frames.SkipUnreadable(1, OPEN, "eve-own", 0, 0),
    frames.DeleteIndex(1, OPEN, "eve-other"),
    frames.Revive(1, OPEN, "eve-shared", 0, packed([0, 1]), packed([0, 1]), 0),
    frames.DeleteMessages(1, LITTER[0], packed([0, 0])),
    frames.CommitTransaction(1, "job", 3, (Participant(OPEN, 0, b"p" * 16, 1, 1, 1),)),
    frames.NameParticipants(1, "job", 3, 0, (Participant(OPEN, 0, b"p" * 16, 1, 1, 1),)),
    frames.AbortTransaction(1, "job", 3, (b"p" * 16,)),
    frames.CreateUser(1, "mallory", (NOBODY,)),
    frames.RenewToken(1, "mallory"),
    frames.DeleteUser(1, "mallory"),
    frames.SetRoles(1, "mallory", (NOBODY,)),
    frames.CreateRole(1, "mallory"),
    frames.DeleteRole(1, "mallory"),
    frames.AddGrant(1, "mallory", Grant("publish", "*")),
    frames.RemoveGrant(1, "mallory", Grant("publish", "*")),
    frames.DescribeAccess(1),
    frames.ExplainAccess(1, "eve", "publish", OPEN),
    frames.RegisterName(1, EVES_NAME, "full-event", b"l" * LEASE_BYTES, b"k" * KEY_BYTES),
    frames.RegisterName(
        1, EVES_NAME, "thread", b"m" * LEASE_BYTES, b"k" * KEY_BYTES, "127.0.0.1:1", bytes(32)
    ),
    frames.ReleaseName(1, EVES_NAME, b"l" * LEASE_BYTES),
    frames.FindName(1, EVES_NAME),
    frames.ListNames(1),
    frames.OpenPipe(1, EVES_NAME),
    frames.TakePipe(1, b"p" * 16),
]
ENDING = (frames.Goodbye, frames.Done)  # of either side; nothing can be wrong with them


def missing_samples() -> set[str]:
    """The kinds that a client may send and that nothing here is made of."""
    made = {type(sample) for sample in SAMPLES}
    return {kind.__name__ for kind in _BY_CLIENT - made - set(ENDING)}


# --- frames --------------------------------------------------------------------------------------


def absurd_frame(chance: random.Random, *, guarded: bool) -> Frame:
    """A frame with some fields that make no sense."""
    while True:
        sample = chance.choice(SAMPLES)
        frame = dataclasses.replace(sample)
        names = [field.name for field in dataclasses.fields(frame) if field.name != "request"]
        for name in chance.sample(names, min(len(names), chance.choice([1, 1, 2, 4]))):
            hint = typing.get_type_hints(type(frame))[name]
            setattr(frame, name, _absurd(chance, name, hint, getattr(frame, name), guarded=guarded))
        _spare(frame, sample)
        try:
            encode_frame(frame)
        except (HocketError, OverflowError):
            continue  # even the format cannot say this
        return frame


def _spare(frame: Frame, sample: Frame) -> None:
    """Keep frames from doing what anybody may, and what would only end the experiment."""
    if isinstance(frame, DESTRUCTIVE) and frame.topic == OPEN:
        frame.topic = sample.topic  # type: ignore[union-attr]
    if isinstance(frame, frames.CreateUser | frames.SetRoles):
        frame.roles = (NOBODY, *frame.roles)


def _absurd(chance: random.Random, name: str, hint: Any, value: Any, *, guarded: bool) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        inner = dataclasses.replace(value)
        hints = typing.get_type_hints(hint)
        changes = {
            each.name: _absurd(
                chance, each.name, hints[each.name], getattr(value, each.name), guarded=guarded
            )
            for each in dataclasses.fields(value)
            if chance.random() < 0.3
        }
        return dataclasses.replace(inner, **changes)
    if origin is Literal:
        return chance.choice(arguments)
    if origin is types.UnionType:
        return chance.choice([None, *NUMBERS])
    if origin is tuple:
        return tuple(value) * chance.choice([0, 2, 300])
    if hint is bool:
        return not value
    if hint is int:
        return chance.choice(PARTITIONS if name == "partitions" else NUMBERS)
    if hint is bytes:
        numbers = packed(abs(chance.choice(NUMBERS)) for _ in range(chance.choice([1, 2, 3, 6])))
        sizes = [0, 1, 7, 15, 16, 17, 24, 4096]
        return chance.choice([numbers, chance.randbytes(chance.choice(sizes)), bytes(4800)])
    if name == "role" or name == "name":
        return chance.choice(["mallory", EVES_NAME, *WORDS])
    return chance.choice([*WORDS, VICTIM] if guarded else WORDS)


def flipped_header(chance: random.Random) -> bytes:
    """The header of a frame with some bits turned over."""
    message = bytearray(encode_frame(chance.choice(SAMPLES)))
    for _ in range(chance.choice([1, 1, 2, 5])):
        message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
    return bytes(message)


def redirected_header(chance: random.Random) -> bytes:
    """The header of a frame whose pointers lead elsewhere."""
    message = bytearray(encode_frame(chance.choice(SAMPLES)))
    for _ in range(chance.choice([1, 2, 3])):
        damage(chance, message)
    return bytes(message)


# --- batches -------------------------------------------------------------------------------------


def good_batch(chance: random.Random, **stamp: Any) -> bytes:
    how_many = chance.choice([1, 3, 20])
    values = [chance.randbytes(chance.randrange(40)) for _ in range(how_many)]
    keys = [chance.choice([None, b"k"]) for _ in values] if chance.random() < 0.5 else None
    headers = [(("h", b"v"),) for _ in values] if chance.random() < 0.3 else None
    codec = chance.choice(["none", "lz4", "zstd"])
    return bytes(
        encode(
            values, timestamps=1_700_000_000_000_000, keys=keys, headers=headers, codec=codec,
            **stamp,
        )
    )  # fmt: skip


def sealed(header: dict[str, int], body: bytes) -> bytes:
    """An entry of these, with checksums that are right."""
    fields = {**header, "body_crc": crc32c(body)}
    return pack_header(**fields) + body + bytes(-len(body) % 8)


def opened(entry: bytes) -> tuple[dict[str, int], bytes]:
    header = unpack_header(entry)
    fields = {name: getattr(header, name) for name in header._fields if name != "crc"}
    return fields, entry[HEADER_BYTES : HEADER_BYTES + header.length]


def batch_with_an_absurd_header(chance: random.Random, **stamp: Any) -> bytes:
    header, body = opened(good_batch(chance, **stamp))
    name = chance.choice([name for name in header if name != "body_crc"])
    widths = {"kind": 8, "codec": 8, "flags": 16, "length": 32, "count": 32, "previous_crc": 32}
    header[name] = abs(chance.choice(NUMBERS)) % 2 ** widths.get(name, 64)
    return sealed(header, body)


def batch_with_an_absurd_prelude(chance: random.Random, **stamp: Any) -> bytes:
    header, body = opened(good_batch(chance, **stamp))
    fields = list(PRELUDE.unpack_from(body))
    at = chance.randrange(len(fields))
    widths = [128, 32, 32, 64, 64]
    number = abs(chance.choice(NUMBERS)) % 2 ** widths[at]
    fields[at] = number.to_bytes(16, "little") if at == 0 else number
    return sealed(header, PRELUDE.pack(*fields) + body[PRELUDE.size :])


def batch_with_flipped_bits(chance: random.Random, **stamp: Any) -> bytes:
    """In its columns, under a right checksum: the broker cannot know better."""
    header, body = opened(good_batch(chance, **stamp))
    damaged = bytearray(body)
    for _ in range(chance.choice([1, 3, 10])):
        at = chance.randrange(PRELUDE.size, len(damaged))
        damaged[at] ^= 1 << chance.randrange(8)
    return sealed(header, bytes(damaged))


def batch_under_a_wrong_checksum(chance: random.Random, **stamp: Any) -> bytes:
    entry = bytearray(good_batch(chance, **stamp))
    length = unpack_header(entry).length
    entry[chance.randrange(HEADER_BYTES + length)] ^= 1 << chance.randrange(8)
    return bytes(entry)


def batch_cut_or_filled_up(chance: random.Random, **stamp: Any) -> bytes:
    entry = good_batch(chance, **stamp)
    return chance.choice(
        [
            entry[: chance.randrange(len(entry))],
            entry + chance.randbytes(chance.randrange(1, 100)),
            entry + entry[: HEADER_BYTES + 8],
            b"",
            bytes(len(entry)),
        ]
    )


def entry_of_another_kind(chance: random.Random, **_stamp: Any) -> bytes:
    """What only a broker may write into a log."""
    kind = chance.choice([0, 2, 3, 4, 5, 6, 7, 8, 200, 255])
    body = chance.choice(
        [
            b'{"owners": {"00000000000000000000000000000001": "eve"}}',
            b'{"log_start": 1000}',
            b'{"forget": []}',
            b'{"billing": [0, 0, true, "own"]}',
            b'{"kind": "createUser", "name": "mallory", "roles": ["admin"]}',
        ]
    )
    return sealed({"length": len(body), "kind": kind, "count": chance.choice([0, 1])}, body)
