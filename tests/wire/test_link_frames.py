"""The bytes of a link: however they are cut in pieces, the frames are those that were sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import ProtocolError
from hocket.wire.connection import PREFIX
from hocket.wire.link_frames import (
    HEADER_BYTES_MAX,
    HELLO_BYTES_MAX,
    MAGIC,
    PAYLOAD_BYTES_MAX,
    LinkReader,
    framed,
)


def sent(*frames: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"".join(framed(header, [payload])) for header, payload in frames)


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300)), max_size=5),
    st.lists(st.integers(1, 400), min_size=1),
)
def test_frames_come_out_as_they_went_in(frames: list[tuple[bytes, bytes]], sizes: list[int]):
    reader = LinkReader()
    reader.trust()
    data = sent(*frames)
    received: list[tuple[bytes, bytes]] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        turn += 1
        received += reader.put(data[:size])
        data = data[size:]
    assert received == frames


def test_a_large_frame_gets_room_as_it_arrives():
    reader = LinkReader()
    reader.trust()
    payload = bytes(range(256)) * 4096
    data = sent((b"header", payload), (b"next", b""))
    assert reader.put(data) == [(b"header", payload), (b"next", b"")]
    assert len(reader.room()) <= HELLO_BYTES_MAX


def test_an_announcement_costs_little_memory():
    reader = LinkReader()
    reader.trust()
    reader.put(PREFIX.pack(8, 0, PAYLOAD_BYTES_MAX))
    assert len(reader.room()) < 100_000


def test_a_stranger_may_send_a_small_hello_and_nothing_else():
    LinkReader().put(PREFIX.pack(HELLO_BYTES_MAX, 0, 0))
    for lengths in ((HELLO_BYTES_MAX + 1, 0, 0), (8, 0, 1)):
        with pytest.raises(ProtocolError, match="are allowed here"):
            LinkReader().put(PREFIX.pack(*lengths))


def test_a_frame_that_is_too_large_is_refused_before_it_is_there():
    reader = LinkReader()
    reader.trust()
    with pytest.raises(ProtocolError, match=f"at most {HEADER_BYTES_MAX} "):
        reader.put(PREFIX.pack(HEADER_BYTES_MAX + 1, 0, 0))


def test_a_flipped_bit_in_the_header_is_found():
    data = bytearray(sent((b"header", b"")))
    data[-1] ^= 1
    with pytest.raises(ProtocolError, match="CRC"):
        LinkReader().put(data)


@pytest.mark.parametrize("length", range(17))
def test_no_buffer_of_a_frame_is_empty(length: int):
    assert all(framed(b"header", [bytes(length), b""]))
    assert sum(map(len, framed(b"header", [bytes(length)]))) % 8 == (PREFIX.size + 6) % 8


def test_no_clients_hello_begins_like_a_link():
    assert int.from_bytes(MAGIC[:4], "little") > HELLO_BYTES_MAX
