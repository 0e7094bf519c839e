"""How the bytes of one TCP connection move, without ever waiting: as they are, or inside TLS.

A call that cannot go on now raises BlockingIOError, or moves nothing and says so. Whoever drives
the transport then waits for its descriptor to become readable, or writable if `wants_write`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

BUFFERS_PER_WRITE = 512  # the system takes at most 1024 at a time


class Transport(Protocol):
    # How often to read before others have their turn; a read of TLS gives at most 16 KiB.
    reads_per_turn: int
    # Whether a read that did not fill its buffer has emptied the socket, and a write that was not
    # taken whole has filled it.
    short_is_all: bool
    # What was asked for last goes on when the descriptor is writable, not when it is readable.
    wants_write: bool

    @property
    def unread(self) -> int:
        """Bytes that were taken from the socket already: no readiness will announce them."""

    @property
    def user(self) -> str:
        """Whom the other end's certificate names; empty if it showed none."""

    def fileno(self) -> int: ...

    def handshake(self) -> None:
        """Returns when the other end is known, and from then on does nothing."""

    def recv_into(self, buffer: memoryview) -> int:
        """At least one byte; 0 at the end."""

    def send(self, views: Sequence[memoryview]) -> int:
        """How many bytes were taken; 0: there is no room now.

        The next call's bytes must begin with those that this one did not take.
        """

    def end_sending(self) -> None:
        """Nothing more will be sent. What is received from here on means nothing."""

    def close(self) -> None: ...


class PlainTransport:
    reads_per_turn = 16
    short_is_all = True
    wants_write = False
    unread = 0
    user = ""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fileno = sock.fileno
        self.recv_into = sock.recv_into
        self.close = sock.close

    def handshake(self) -> None:
        """There is none."""

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, views: Sequence[memoryview]) -> int:
        try:
            return self._socket.sendmsg(islice(views, BUFFERS_PER_WRITE))
        except BlockingIOError:
            return 0
