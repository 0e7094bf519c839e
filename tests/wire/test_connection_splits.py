"""A stream means the same however it is cut into pieces."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from hocket.errors import ProtocolError
from hocket.frames import Done, Frame, Hello, Ping, Publish, Push
from hocket.wire.connection import RULES, WITH_PAYLOAD, Connection
from hocket.wire.framing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, FIRST_PAYLOAD_MEMORY, IN_CHUNK_MAX
from tests.support.threads import noise
from tests.support.wire.frame_strategies import frames
from tests.support.wire.joined import opened, received, sent

SHORT: list[tuple[Frame, bytes]] = [
    (Ping(1), b""),
    (Push(0, 5, 3), b"12345678"),
    (Publish(2, "orders"), b"abc"),
]

BORDERS = [1, 8, 4000, CHUNK_BYTES_MIN, IN_CHUNK_MAX, CHUNK_BYTES_MAX, FIRST_PAYLOAD_MEMORY]
sizes = st.builds(
    lambda border, distance: max(0, border + distance),
    st.sampled_from(BORDERS),
    st.integers(-200, 200),
)


def stream_of(frames: list[tuple[Frame, bytes]]) -> bytes:
    client, _ = opened()
    return b"".join(sent(client, frame, [payload] if payload else []) for frame, payload in frames)


def cut(stream: bytes, seed: object, longest: int) -> Iterator[bytes]:
    chance = random.Random(f"{seed}")
    position = 0
    while position < len(stream):
        size = chance.choice([1, 7, 8, 16, chance.randint(1, longest)])
        yield stream[position : position + size]
        position += size


def test_every_cut_into_three_of_a_short_stream() -> None:
    """Every first cut, with every second one nearby; further on with every seventh.

    Words are of eight bytes, so sevenths come to lie in every place of a word.
    """
    stream = stream_of(SHORT)
    assert len(stream) < 250
    for first in range(len(stream) + 1):
        near = range(first, min(first + 24, len(stream) + 1))
        for second in (*near, *range(near.stop, len(stream) + 1, 7)):
            _, server = opened()
            pieces = stream[:first], stream[first:second], stream[second:]
            assert received(server, pieces) == SHORT, (first, second)


def test_byte_by_byte() -> None:
    _, server = opened()
    stream = stream_of(SHORT)
    assert received(server, [stream[at : at + 1] for at in range(len(stream))]) == SHORT


def test_a_frame_is_there_with_its_last_byte_and_not_before() -> None:
    for frame, payload in SHORT:
        _, server = opened()
        stream = stream_of([(frame, payload)])
        assert received(server, [stream[:-1]]) == []
        assert received(server, [stream[-1:]]) == [(frame, payload)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(frames(RULES["open", "client"].kinds), sizes), max_size=12),
    st.integers(0, 2**32),
    st.sampled_from([60, 3000, 70_000]),
)
def test_any_stream_in_any_pieces(
    content: list[tuple[Frame, int]], seed: int, longest: int
) -> None:
    said = [
        (frame, noise(size, seed) if type(frame) in WITH_PAYLOAD else b"")
        for frame, size in content
    ]
    _, server = opened()
    assert received(server, cut(stream_of(said), seed, longest)) == said


@pytest.mark.parametrize("size", [*BORDERS, 700_000, 3_000_000])
@pytest.mark.parametrize("away", [-9, -8, -1, 0, 1, 8])
def test_payloads_around_every_border(size: int, away: int) -> None:
    length = max(0, size + away)
    said: list[tuple[Frame, bytes]] = [
        (Ping(1), b""),
        (Push(0, 1, 1), noise(length, 1)),
        (Push(0, 1, 2), noise(length, 2)),
        (Ping(2), b""),
    ]
    stream = stream_of(said)
    for pieces in ([stream], cut(stream, size, 200_000)):
        _, server = opened()
        assert received(server, pieces) == said


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_before_a_breach_does_not_depend_on_the_cuts(seed: int) -> None:
    stream = bytearray(stream_of(SHORT * 30))
    chance = random.Random(f"{seed}")
    broken = chance.randrange(len(stream))
    stream[broken] ^= 1 << chance.randrange(8)

    def outcome(pieces: Iterator[bytes]) -> tuple[list[tuple[Frame, bytes]], str]:
        _, server = opened()
        seen: list[tuple[Frame, bytes]] = []
        try:
            for piece in pieces:
                seen += received(server, [piece])
            server.received_end()
        except ProtocolError as error:
            return seen, str(error).removeprefix("the connection has failed: ")
        return seen, ""

    whole = outcome(iter([bytes(stream)]))
    for longest in (10, 100, 1000):
        assert outcome(cut(bytes(stream), seed, longest)) == whole


def test_the_opening_in_pieces() -> None:
    server = Connection("server")
    stream = sent(Connection("client"), Hello(1, client="x" * 30_000, token="y" * 30_000))
    [(hello, _)] = received(server, cut(stream, 0, 300))
    assert isinstance(hello, Hello)
    assert (hello.client, hello.token) == ("x" * 30_000, "y" * 30_000)


def test_many_small_frames_in_one_piece() -> None:
    client, server = opened()
    said: list[Frame] = [Done(number) for number in range(5000)]
    stream = b"".join(sent(server, frame) for frame in said)
    assert [frame for frame, _ in received(client, [stream])] == said
