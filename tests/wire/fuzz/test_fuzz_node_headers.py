"""Whatever a node sends another: a message or a ProtocolError, soon, and nothing else."""

from __future__ import annotations

import collections
import random
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hocket.core.placement.locator import LeaderIs, PublishLeader
from hocket.core.relay.messages import Attach, Fetch, Fetched, Piece
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Beacon, CloserAre, Leaving, Ping, Pong, RegistryIs, StateIs
from hocket.errors import ProtocolError
from hocket.model import PartitionId
from hocket.node.messages import CODEC
from hocket.node_frames import HelloAccepted, NodeHello
from hocket.wire.node_schema import node_capnp
from tests.support.threads import LONG
from tests.support.wire.damaged_headers import damaged

COUNT = 100_000 if LONG else 2_000
SECONDS_MAX = 2.0  # for one header of a few hundred bytes; a bomb would take minutes

A = Contact(2**63, "a", 3, "a:4150", "rack")
PARTITION = PartitionId("orders", 3, 17)
BEACON = Beacon(1, 2, 3, "root:4150")
SAMPLES: list[Any] = [
    NodeHello(1, 1, "cluster", "store", "name", "software", 5, "a:1", "rack", 7, ("one", "two")),
    HelloAccepted(1, "cluster", "store", "name", "software", 7, 1 << 20, ("one",)),
    StateIs(7, A, (A, A, A), BEACON),
    Ping(7, A),
    Pong(7, True, BEACON),
    CloserAre(7, (A,), (A, A), (A,)),
    Leaving(A, None, (A, A)),
    RegistryIs(7, BEACON, 3, (A, A, A), (A,)),
    Attach(7, PARTITION, 5, 1, 2, (A, A)),
    Fetch(7, PARTITION, 5, 1 << 20, 1_000_000, 3),
    Fetched(7, PARTITION, (Piece(5, 9, b"first"), Piece(9, 10, b"second")), 10, (A,), 3),
    PublishLeader(PARTITION, A, 4),
    LeaderIs(7, PARTITION, A, 4),
]


def in_several_segments() -> bytes:
    """With far pointers, which our own encoder does not make."""
    message = node_capnp.NodeFrame.new_message(2)
    hello = message.init("nodeHello")
    hello.cluster = "cluster"
    hello.features = ["one", "two", "three"]
    encoded: bytes = message.to_bytes()
    assert encoded[:4] != bytes(4)
    return encoded


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_header_is_a_message_or_an_error(seed: int) -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    originals = [*(CODEC.encode(each, 1, 2)[0] for each in SAMPLES), in_several_segments()]
    chance = random.Random(f"payload {seed}")
    for header in damaged(originals, seed, COUNT):
        before = time.monotonic()
        try:
            envelope = CODEC.decode_header(header)
            announced = CODEC.payload_bytes(envelope.message)
        except ProtocolError:
            outcomes["refused"] += 1
        else:
            outcomes["understood"] += 1
            with pytest.raises(ProtocolError, match="its header says"):
                CODEC.decode(header, bytes(announced + 1 if announced < 1000 else 1000))
            if announced < 1000:
                payload = chance.randbytes(announced)
                whole = CODEC.decode(header, payload)
                again, pieces = CODEC.encode(*whole)
                assert b"".join(pieces) == payload
                assert CODEC.decode(again, payload) == whole, header.hex()
        assert time.monotonic() - before < SECONDS_MAX, header.hex()
    # Damage that is never seen, or that always breaks everything, would test nothing.
    assert min(outcomes["refused"], outcomes["understood"]) > COUNT // 20, outcomes


@given(st.binary(max_size=200))
def test_bytes_without_any_meaning(garbage: bytes) -> None:
    body = garbage + bytes(-len(garbage) % 8)
    for header in (garbage, b"\0\0\0\0" + (len(body) // 8).to_bytes(4, "little") + body):
        try:
            CODEC.decode(header)
        except ProtocolError:
            continue  # only this error is an answer; a message of defaults is the other one


def test_a_header_cut_anywhere_is_refused() -> None:
    for message in SAMPLES:
        header, payload = CODEC.encode(message)
        for end in range(len(header)):
            with pytest.raises(ProtocolError):
                CODEC.decode(header[:end], b"".join(payload))
