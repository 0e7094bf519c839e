"""Whatever arrives on a connection: frames that were sent, then at most one ProtocolError."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from hocket.errors import ProtocolError
from hocket.frames import Frame, Ping, Publish, Push
from hocket.wire.connection import Connection
from hocket.wire.frame_codec import encode
from hocket.wire.framing import PREFIX
from tests.support.threads import LONG, noise
from tests.support.wire.damaged_headers import damaged_headers
from tests.support.wire.joined import opened, received, sent

ROUNDS = 5_000 if LONG else 400
SAID: list[tuple[Frame, bytes]] = [
    (Ping(1), b""),
    (Push(0, 5, 3), noise(100)),
    (Publish(2, "orders"), noise(333)),
    (Push(0, 5, 4), noise(20_000)),
    (Ping(2), b""),
]


def stream_of(said: list[tuple[Frame, bytes]]) -> bytes:
    client, _ = opened()
    return b"".join(sent(client, frame, [payload] if payload else []) for frame, payload in said)


def place_of(position: int) -> tuple[int, str]:
    """Which frame of SAID a byte of the stream belongs to, and which part of it."""
    for number, (frame, payload) in enumerate(SAID):
        for part, size in (
            ("header length or checksum", 8),
            ("payload length", 8),
            ("header", len(encode(frame))),
            ("payload", len(payload)),
            ("padding", -len(payload) % 8),
        ):
            if position < size:
                return number, part
            position -= size
    raise AssertionError("beyond the stream")


def outcome(server: Connection, data: bytes) -> tuple[list[tuple[Frame, bytes]], bool]:
    """What was received of a stream, and whether it ended well."""
    seen: list[tuple[Frame, bytes]] = []
    try:
        for at in range(0, len(data), 5000):
            seen += received(server, [data[at : at + 5000]])
        server.received_end()
    except ProtocolError:
        return seen, False
    return seen, True


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_found_unless_it_is_in_a_payload(seed: int) -> None:
    """A payload's checksum stands in its batches. Its length alone is not covered by any: if it is
    wrong, the payload is not a row of batches, and most often the next frame is none."""
    chance = random.Random(f"{seed}")
    whole = stream_of(SAID)
    for _ in range(ROUNDS):
        data = bytearray(whole)
        position = chance.randrange(len(data))
        data[position] ^= 1 << chance.randrange(8)
        number, part = place_of(position)
        seen, well = outcome(opened()[1], bytes(data))
        frames = [frame for frame, _ in seen]
        assert seen[:number] == SAID[:number]
        assert frames == [frame for frame, _ in SAID[: len(seen)]]
        if part == "payload":
            assert well
            assert len(frames) == len(SAID)
        elif part != "payload length":
            assert not well
            assert len(seen) == number
        else:
            assert not well or len(seen[number][1]) != len(SAID[number][1])


def test_a_stream_cut_anywhere_gives_the_frames_before_the_cut() -> None:
    whole = stream_of(SAID)
    for cut in range(0, len(whole), 1 if LONG else 53):
        seen, well = outcome(opened()[1], whole[:cut])
        assert seen == SAID[: len(seen)]
        assert well == (whole[:cut] == stream_of(SAID[: len(seen)]))


@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    for server in (Connection("server"), opened()[1]):
        seen, well = outcome(server, garbage)
        assert seen == []
        assert well == (not garbage)


@pytest.mark.parametrize("seed", range(3))
def test_hostile_headers_with_a_right_checksum(seed: int) -> None:
    for header in damaged_headers(seed + 1000, ROUNDS):
        server = opened()[1]
        seen, well = outcome(server, PREFIX.pack(len(header), crc32c(header), 0) + header)
        assert well == (server.error is None)
        assert len(seen) == well
        if not well:
            assert server.farewell()
