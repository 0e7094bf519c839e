"""Frames that are almost right: the same ones for the same seed.

A header is damaged the way Cap'n Proto is attacked: bits flipped, words replaced by pointers that
lead elsewhere (out of the message, into themselves, to lists of 2**29 nothings, into segments that
are not there), the segment table changed, the message cut or filled up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from hocket.frames import (
    CreateTopic,
    Failure,
    Frame,
    Hello,
    Indexes,
    OpenSubscription,
    Publish,
    Push,
    PushAcked,
    Topics,
    Welcome,
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
from hocket.wire.frame_codec import encode
from hocket.wire.schema import hocket_capnp

_PARTITION = PartitionDescription(1, 2, 3, 4, 5, 6, 7, 8, "leader", ("one", "another"), "problem")

SAMPLES: list[Frame] = [
    Push(0, 5, 3),
    PushAcked(0, 5, 3, 9, packed(range(5))),
    Publish(4, "orders"),
    Hello(1, 1, 1, "client", ("one", "two", "three"), "token"),
    Welcome(1, 1, "node", "software", ("one",), Limits()),
    Failure(1, "busy", "try again a little later", may_have_happened=True),
    CreateTopic(1, "orders", TopicConfig(4, 3)),
    Topics(
        1,
        (
            TopicDescription("orders", TopicConfig(), (_PARTITION, _PARTITION)),
            TopicDescription("events", TopicConfig(2, disk_retention_us=None), (_PARTITION,)),
        ),
    ),
    Indexes(1, (IndexDescription("all", "key_shared", True, (IndexPartition(1, 2, 3, True),)),)),
    OpenSubscription(1, "orders", "billing", "shared", Start("time", 5), packed([0, 7])),
]


def in_several_segments() -> bytes:
    """With far pointers, which our own encoder does not make."""
    message = hocket_capnp.Frame.new_message(2)
    hello = message.init("hello")
    hello.client = "client"
    hello.features = ["one", "two", "three"]
    hello.token = 20 * "token"
    encoded: bytes = message.to_bytes()
    assert encoded[:4] != bytes(4)
    return encoded


def damaged_headers(seed: int, count: int) -> Iterator[bytes]:
    yield from damaged([*map(encode, SAMPLES), in_several_segments()], seed, count)


def damaged(originals: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    chance = random.Random(f"{seed}")
    for _ in range(count):
        message = bytearray(chance.choice(originals))
        for _ in range(chance.choice([1, 1, 2, 3, 8])):
            damage(chance, message)
        yield bytes(message)


def damage(chance: random.Random, message: bytearray) -> None:
    how = chance.choice([_flip_a_bit, _set_a_byte, _redirect, _redirect, _resize])
    how(chance, message)


def _flip_a_bit(chance: random.Random, message: bytearray) -> None:
    message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)


def _set_a_byte(chance: random.Random, message: bytearray) -> None:
    message[chance.randrange(len(message))] = chance.choice([0, 1, 2, 127, 128, 255])


def _redirect(chance: random.Random, message: bytearray) -> None:
    position = 8 * chance.randrange(len(message) // 8)
    message[position : position + 8] = _pointer(chance).to_bytes(8, "little")


def _resize(chance: random.Random, message: bytearray) -> None:
    """And most of the time with a segment table that agrees."""
    words = max(1, len(message) // 8 + chance.choice([-2, -1, 1, 2, 60]))
    message.extend(bytes(max(0, 8 * words - len(message))))
    del message[8 * words :]
    if chance.random() < 0.8:
        message[:8] = (0).to_bytes(4, "little") + (words - 1).to_bytes(4, "little")


def _pointer(chance: random.Random) -> int:
    near = chance.randrange(-40, 40)
    distance = chance.choice([0, 1, -1, 2, near, near, 2**29 - 1, -(2**29)]) & 0x3FFF_FFFF
    size = chance.choice([0, 1, 2, 9, 0xFFFF])
    count = chance.choice([0, 1, 2, chance.randrange(1000), 2**28, 2**29 - 1])
    return chance.choice(
        [
            distance << 2 | size << 32 | chance.choice([0, 1, 3, 0xFFFF]) << 48,  # to a struct
            distance << 2 | 1 | chance.randrange(8) << 32 | count << 35,  # to a list
            2
            | chance.randrange(2) << 2
            | (distance & 0xFF) << 3
            | chance.randrange(4) << 32,  # far
            3 | chance.randrange(3) << 32,  # to a capability
            chance.getrandbits(64),
        ]
    )
