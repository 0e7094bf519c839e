"""Moves the bytes of one TCP connection without ever waiting: plain here, inside TLS in `tls`.

A call that cannot go on now raises BlockingIOError, or moves nothing and says so. The driver of the
transport then waits for its descriptor to become readable, or writable if `wants_write`.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

BUFFERS_PER_WRITE = 512  # the system takes at most 1024 at a time


Certificate = Mapping[str, Any] | None  # as `ssl.SSLSocket.getpeercert` describes one


class Transport(Protocol):
    # How often to read before other connections have their turn. One read of TLS gives at most
    # 16 KiB.
    reads_per_turn: int
    # Whether a read that did not fill its buffer has emptied the socket, and a write that was not
    # taken whole has filled it.
    short_is_all: bool
    # The last call can go on when the descriptor is writable, not when it is readable.
    wants_write: bool

    @property
    def unread(self) -> int:
        """Bytes that were taken from the socket already, so that no readiness announces them."""

    @property
    def user(self) -> str:
        """The user that the other end's certificate names; empty if it showed none."""

    @property
    def certificate(self) -> Certificate:
        """The verified certificate that the other end showed; None if it showed none."""

    def fileno(self) -> int: ...

    def handshake(self) -> None:
        """Go on with the handshake. Returns when it is done; then it does nothing any more."""

    def recv_into(self, buffer: memoryview) -> int:
        """Receive at least one byte; 0 at the end of what the other side sends."""

    def recv_into_both(self, first: memoryview, second: memoryview) -> int:
        """`recv_into` that may go on with `second` when `first` is full."""

    def recv(self, most: int) -> bytes:
        """Receive at least one byte and at most so many; b"" at the end, as `recv_into`."""

    def send_one(self, data: bytes | bytearray | memoryview) -> int:
        """`send` of one run of bytes."""

    def send(self, views: Sequence[memoryview]) -> int:
        """Returns how many bytes were taken; 0 if there is no room now.

        The next call's bytes must begin with those that this call did not take.
        """

    def end_sending(self) -> None:
        """Tell the other side that no more will be sent. What it still sends means nothing."""

    def close(self) -> None: ...

    def forked(self) -> None:
        """Close this process's copy of the descriptor: see `forking`."""


def write(transport: Transport, unsent: deque[memoryview]) -> int:
    """Send as much of `unsent` as there is room for, and take it off there: so many bytes."""
    total = 0
    while unsent:
        sent = transport.send(unsent)
        if not sent:
            break
        total += sent
        while sent:
            first = unsent.popleft()
            if sent < len(first):
                unsent.appendleft(first[sent:])
                if transport.short_is_all:
                    return total  # the socket is full
                break
            sent -= len(first)
    return total


def send_at_once(sock: socket.socket) -> None:
    """Have the system wait for nothing more before it sends what it is given."""
    with suppress(OSError):  # macOS refuses it for a client that is gone already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# A machine that vanishes without a word is found out after some 11 s of silence.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}


def keep_alive(sock: socket.socket) -> None:
    """Have the system find out that the machine at the other end is gone."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class PlainTransport:
    reads_per_turn = 16
    short_is_all = True
    wants_write = False
    unread = 0
    user = ""
    certificate = None

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fileno = sock.fileno
        self.recv_into = sock.recv_into
        self._recvmsg_into = sock.recvmsg_into
        self.recv = sock.recv
        self.close = sock.close

    def handshake(self) -> None:
        """There is none."""

    def forked(self) -> None:
        self._socket.close()

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def recv_into_both(self, first: memoryview, second: memoryview) -> int:
        """`recv_into` that fills `first` before it goes on with `second`."""
        return self._recvmsg_into((first, second))[0]

    def send_one(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def send(self, views: Sequence[memoryview]) -> int:
        try:
            return self._socket.sendmsg(islice(views, BUFFERS_PER_WRITE))
        except BlockingIOError:
            return 0
