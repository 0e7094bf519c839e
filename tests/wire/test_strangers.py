"""A stranger is known by four bytes, and nobody who speaks our protocol is taken for one."""

from __future__ import annotations

import pytest

from hocket.errors import ProtocolError
from hocket.frames import Failure, Hello
from hocket.wire.connection import Connection
from hocket.wire.framing import OPENING_HEADER_BYTES_MAX
from hocket.wire.strangers import FIRST_BYTES_MAX, Stranger, language

HTTP = [
    b"GET / HTTP/1.1\r\n", b"GET ", b"HEAD", b"POST /x", b"PUT /", b"DELETE /", b"OPTIONS *",
    b"PATCH /", b"CONNECT a:1", b"TRACE /", b"PRI * HTTP/2.0\r\n", b"HTTP/1.1 400 Bad Request\r\n",
    b"HTTP", b"<!DOCTYPE HTML>", b"<!doctype html>", b"\n<html>", b"<htm",
]  # fmt: skip
TLS = [b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x00", b"\x15\x03\x03\x00\x02\x02F"]
RPC = bytes.fromhex("00000000160000000000000001000100") + bytes(
    32
)  # of `hocket serve --rpc-listen`
OTHERS = [
    b"-ERR unknown command\r\n", b"+OK\r\n", b"ERROR\r\n", b"220 mail ready\r\n",
    b"AMQP\0\0\x09\x01", b"\0\0\0\x08\x04\xd2\x16\x2f", b"\xff" * 16,
]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "name"),
    [*((each, "HTTP") for each in HTTP), *((each, "TLS") for each in TLS), (b"SSH-2.0-x", "SSH"),
     (RPC, "Cap'n Proto RPC"),
     *((each, "") for each in OTHERS)],
)  # fmt: skip
def test_the_first_bytes_tell_what_is_spoken(first, name):
    assert language(first) == name


@pytest.mark.parametrize("first", [*HTTP, *TLS, b"SSH-2.0-x", *OTHERS])
@pytest.mark.parametrize("role", ["client", "server"])
def test_a_stranger_is_known_at_once_however_little_it_says(role, first):
    for data in {first, first[:4]}:
        connection = Connection(role)
        if role == "client":
            connection.send(Hello(1))
        with pytest.raises(Stranger) as caught:
            connection.receive(data)
        assert caught.value.first == data[:FIRST_BYTES_MAX]
        assert "before the Welcome" in str(caught.value)


@pytest.mark.parametrize(
    "first", [b"J\0\0\0\n8.0.36\0\x0b\0\0\0", b"E\0\0\0\x8fSFATAL\0VFATAL\0", RPC]
)
def test_one_that_begins_with_a_small_number_is_known_by_its_first_sixteen_bytes(first):
    """As MySQL does, and PostgreSQL, and Cap'n Proto RPC."""
    connection = Connection("client")
    connection.send(Hello(1))
    assert connection.receive(first[:15]) == []
    with pytest.raises(Stranger):
        connection.receive(first[15:])


def test_much_is_not_kept():
    with pytest.raises(Stranger) as caught:
        Connection("server").receive(b"x" * 1000)
    assert caught.value.first == b"x" * FIRST_BYTES_MAX


def test_a_frame_in_small_pieces_is_no_stranger():
    client, server = Connection("client"), Connection("server")
    frame = b"".join(bytes(each) for each in client.send(Hello(1, client="me")))
    received = []
    for at in range(len(frame)):
        received += server.receive(frame[at : at + 1])
    assert [type(each) for each, _ in received] == [Hello]


def test_the_longest_header_is_no_stranger_yet():
    length = OPENING_HEADER_BYTES_MAX
    assert Connection("server").receive(length.to_bytes(4, "little")) == []
    with pytest.raises(Stranger):
        Connection("server").receive((length + 1).to_bytes(4, "little"))


def test_whoever_was_refused_is_no_stranger_any_more():
    """It has been told already; what it says now is told apart by nobody."""
    server = Connection("server")
    server.send(Failure(0, "protocol", "no"))
    with pytest.raises(ProtocolError) as caught:
        server.receive(b"GET / HTTP/1.1\r\n")
    assert not isinstance(caught.value, Stranger)
