"""One link from another node, on which this node only reads: it answers the Hello, and no more.

Reading never pauses for the clients' sake: what other nodes say may be what frees this one.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Protocol

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Transport, write
from hocket.errors import ProtocolError
from hocket.node.messages import CODEC
from hocket.node_frames import Heartbeat, HelloAccepted, HelloRefused, NodeHello
from hocket.ports import Cancellable
from hocket.wire.node_codec import Envelope
from hocket.wire.node_connection import NodeConnection

log = logging.getLogger("hocket.links")

# On this end nothing is sent that could fail, so the system has to ask whether the other end is
# there: a link of a machine that lost its power would stay for ever, and keep its node out when
# that returns at another address.
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
GREETING_US = 3_000_000  # within which the Hello must be there, and the answer taken


class Owner(Protocol):
    """What a link needs of all links of the node."""

    loop: Loop

    def judge(self, link: Incoming, hello: NodeHello) -> HelloAccepted | HelloRefused: ...
    def turned_away(self, link: Incoming, why: str) -> None:
        """It has not said in a way that can be understood, or in time, who it is."""

    def take(self, link: Incoming, envelope: Envelope) -> None: ...
    def ended(self, link: Incoming) -> None: ...


class Incoming:
    def __init__(self, transport: Transport, from_address: str, owner: Owner) -> None:
        self.transport = transport
        self.from_address = from_address
        self.hello: NodeHello | None = None
        self.incarnation = 0  # the last that a message came from
        self._owner = owner
        self._loop = owner.loop
        self._wire = NodeConnection("acceptor", CODEC)
        self._unsent: deque[memoryview] = deque()
        self._descriptor = transport.fileno()
        self._events = 0
        self._reads_on = False
        self._closed = False
        self._closes_when_sent = False
        self._patience: Cancellable | None = None

    def start(self, begun: bytes) -> None:
        """`begun` are the bytes that were received before anybody knew that this is a link."""
        _keep_alive(self._descriptor)
        self._patience = self._loop.after(GREETING_US, self._too_late)
        self._begin(begun)
        if not self._closed:
            self._watch()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._patience is not None:
            self._patience.cancel()
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0
        self.transport.close()
        self._owner.ended(self)

    def forked(self) -> None:
        self._closed = True
        self.transport.forked()

    # --- reading ---------------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        if events & WRITE and self._unsent:
            self._write()
        if not self._closed and (events & READ or self.transport.wants_write):
            self._read()
        if not self._closed:
            self._watch()

    def _read_on(self) -> None:
        self._reads_on = False
        if not self._closed:
            self._read()
        if not self._closed:
            self._watch()

    def _read(self) -> None:
        try:
            for _ in range(self.transport.reads_per_turn):
                buffer = self._wire.get_buffer()
                count = self.transport.recv_into(buffer)
                if not count:
                    self.close()
                    return
                self._take(self._wire.messages(count))
                if self._closed or (self.transport.short_is_all and count < len(buffer)):
                    return
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._broken(str(error))
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                log.warning("a link from %s broke: %s", self._who(), reason_of(error))
            self.close()

    def _begin(self, begun: bytes) -> None:
        try:
            self._take(self._wire.received(begun))
        except ProtocolError as error:
            self._broken(str(error))

    def _take(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            if self._closed or self._closes_when_sent:
                return
            message = envelope.message
            if isinstance(message, NodeHello):
                self._greet(message)
            elif not isinstance(message, Heartbeat):
                self._owner.take(self, envelope)
        if self._wire.error is not None:
            raise self._wire.error

    def _greet(self, hello: NodeHello) -> None:
        self.hello = hello
        answer = self._owner.judge(self, hello)
        self._unsent.extend(map(memoryview, self._wire.send(answer)))
        if isinstance(answer, HelloAccepted) and hello.cluster:
            assert self._patience is not None
            self._patience.cancel()
        else:  # it is refused, or only wanted to know
            self._closes_when_sent = True
        self._write()

    def _write(self) -> None:
        try:
            write(self.transport, self._unsent)
            if self._closes_when_sent and not self._unsent:
                self.transport.end_sending()  # the other end hangs up, or is not waited for
        except OSError:
            self.close()

    # --- endings ---------------------------------------------------------------------------------

    def _too_late(self) -> None:
        if not self._closes_when_sent:
            self._owner.turned_away(self, "it did not say who it is in time")
        self.close()

    def _broken(self, why: str) -> None:
        if self.hello is None:
            self._owner.turned_away(self, f"it broke the protocol: {why}")
        elif not self._closes_when_sent:
            log.warning("the link from %s broke the protocol: %s", self._who(), why)
        with suppress(OSError):
            self.transport.send([memoryview(each) for each in self._wire.farewell()])
        self.close()

    def _who(self) -> str:
        if self.hello is None:
            return self.from_address
        return f"node {self.hello.name or self.hello.node} at {self.hello.address}"

    def _watch(self) -> None:
        wanted = READ
        if self._unsent:
            wanted |= WRITE
        if self.transport.wants_write:
            wanted = WRITE
        elif self.transport.unread and not self._reads_on:
            self._reads_on = True
            self._loop.post(self._read_on)
        if wanted == self._events:
            return
        if not self._events:
            self._loop.register(self._descriptor, wanted, self._ready)
        else:
            self._loop.modify(self._descriptor, wanted, self._ready)
        self._events = wanted


def _keep_alive(descriptor: int) -> None:
    with suppress(OSError), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
