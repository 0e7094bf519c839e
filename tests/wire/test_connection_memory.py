"""Payloads arrive in place, are never written again, and cost no more than what really arrived."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from crc32c import crc32c

from hocket.frames import Done, Ping, Push
from hocket.wire.connection import Connection
from hocket.wire.frame_codec import encode
from hocket.wire.framing import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    FIRST_PAYLOAD_MEMORY,
    GROWTH,
    HEADER_BYTES_MAX,
)
from tests.support.threads import noise
from tests.support.wire.joined import opened, sent

MIB = 1 << 20


def announced(size: int) -> bytes:
    """A frame that promises a payload of this size."""
    header = encode(Push(0, 1, 2))
    return struct.pack("<IIQ", len(header), crc32c(header), size) + header


def memory_taken(connection: Connection, stream: bytes) -> int:
    """The most that was in use at one time, for receiving a stream and making room for more."""
    tracemalloc.start()
    try:
        connection.receive(stream)
        connection.get_buffer()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_announcing_a_payload_costs_nearly_nothing() -> None:
    _, server = opened()
    assert memory_taken(server, announced(160 * MIB)) < FIRST_PAYLOAD_MEMORY + 200_000


@pytest.mark.parametrize("arrived", [100_000, MIB, 3 * MIB])
def test_memory_follows_what_arrives(arrived: int) -> None:
    _, server = opened()
    stream = announced(160 * MIB) + bytes(arrived)
    held = max(FIRST_PAYLOAD_MEMORY, GROWTH * arrived)
    assert memory_taken(server, stream) < held + arrived + 200_000


def test_announcing_a_header_costs_nearly_nothing() -> None:
    _, server = opened()
    prefix = struct.pack("<IIQ", HEADER_BYTES_MAX, 0, 0)
    assert memory_taken(server, prefix) < 2 * CHUNK_BYTES_MAX
    assert memory_taken(server, bytes(8000)) < 2 * GROWTH * 8000


@pytest.mark.parametrize("size", [600_000, MIB, 2 * MIB + 8, 4 * MIB])
def test_a_large_payload_arrives_in_place(size: int) -> None:
    """Read as a socket is read: the last of the buffers offered are the payload's own memory."""
    client, server = opened()
    stream = memoryview(sent(client, Push(0, 1, 2), [noise(size)]))
    position, offered = 0, []
    received: list[memoryview] = []
    while position < len(stream):
        buffer = server.get_buffer()
        count = min(len(buffer), len(stream) - position, 300_000)
        buffer[:count] = stream[position : position + count]
        position += count
        offered.append((count, buffer.obj))
        received += [payload for _, payload in server.buffer_updated(count)]
    [payload] = received
    in_place = sum(count for count, memory in offered if memory is payload.obj)
    assert in_place > len(payload) * 5 // 6
    assert payload == noise(size)
    assert len(bytes(payload.obj)) == len(payload)  # exactly: no read can go beyond this frame


def test_a_payload_of_a_usual_batch_is_never_copied_but_for_the_part_read_with_its_header() -> None:
    client, server = opened()
    stream = memoryview(sent(client, Push(0, 1, 2), [noise(FIRST_PAYLOAD_MEMORY)]))
    buffer = server.get_buffer()
    assert len(buffer) <= CHUNK_BYTES_MAX
    buffer[:] = stream[: len(buffer)]
    assert server.buffer_updated(len(buffer)) == []
    rest = server.get_buffer()
    rest[:] = stream[len(buffer) :]
    [(_, payload)] = server.buffer_updated(len(rest))
    assert rest.obj is payload.obj


@pytest.mark.parametrize("size", [8, 1000, 20_000, 300_000])
def test_payloads_stay_as_they_were_while_more_arrives(size: int) -> None:
    client, server = opened()
    kept = []
    for number in range(40):
        stream = sent(client, Push(0, 1, number), [noise(size, number)]) + sent(client, Ping(1))
        for at in range(0, len(stream), 7000):
            kept += server.receive(stream[at : at + 7000])
    payloads = [payload for frame, payload in kept if isinstance(frame, Push)]
    assert len(payloads) == 40
    for number, payload in enumerate(payloads):
        assert payload == noise(size, number)


def test_frames_without_payloads_need_one_chunk_for_ever() -> None:
    client, server = opened()
    answers = 5 * b"".join(sent(server, Done(number)) for number in range(1000))
    client.receive(answers)  # now the chunk has grown to what one read takes in
    chunk = client.get_buffer().obj
    assert len(answers) > 4 * CHUNK_BYTES_MAX  # so it has to be used several times over
    for at in range(0, len(answers), 4999):  # which hardly ever ends with a frame
        client.receive(answers[at : at + 4999])
    assert client.get_buffer().obj is chunk


def test_an_idle_connection_holds_little() -> None:
    client, server = opened()
    for end in (client, server):
        assert len(end.get_buffer()) <= CHUNK_BYTES_MIN
