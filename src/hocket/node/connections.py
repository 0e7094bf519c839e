"""The connections of a running node: those over TCP and those within the process, by number."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.errors import HocketError, ProtocolError
from hocket.frames import Frame
from hocket.model import Limits
from hocket.wire.connection import Connection

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.node.node import Node

log = logging.getLogger("hocket.node")

READS_PER_TURN = 16  # of one socket, so that a busy one does not starve the others
BUFFERS_PER_WRITE = 512  # the system takes at most 1024 at a time
# What may wait to be sent beyond the credit that consumers gave: answers nobody fetches.
UNSENT_BYTES_MAX = 64 << 20


class Peer(Protocol):
    """The far end of one connection."""

    def send(self, frame: Frame, payload: Sequence[Buffer]) -> None: ...
    def close(self) -> None: ...
    def set_reading(self, reading: bool) -> None: ...


class Connections:
    """The node's Network: numbers the peers, and holds them all back when the node asks."""

    def __init__(self, loop: Loop, limits: Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.node: Node
        self.reading = True
        self._peers: dict[int, Peer] = {}
        self._last = 0
        self._unflushed: list[TcpPeer] = []

    def add(self, make: Callable[[int], Peer]) -> int:
        self._last += 1
        self._peers[self._last] = make(self._last)
        self.node.connected(self._last)
        return self._last

    def remove(self, number: int) -> None:
        if self._peers.pop(number, None) is not None:
            self.node.disconnected(number)

    def __len__(self) -> int:
        return len(self._peers)

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        peer = self._peers.get(connection)
        if peer is not None:
            peer.send(frame, payload)

    def close(self, connection: int) -> None:
        peer = self._peers.get(connection)
        if peer is not None:
            peer.close()

    def pause(self) -> None:
        self._set_reading(False)

    def resume(self) -> None:
        self._set_reading(True)

    def _set_reading(self, reading: bool) -> None:
        self.reading = reading
        for peer in list(self._peers.values()):
            peer.set_reading(reading)

    def flush_later(self, peer: TcpPeer) -> None:
        self._unflushed.append(peer)

    def flush(self) -> None:
        """The turn is over: write what it left to be sent."""
        unflushed, self._unflushed = self._unflushed, []
        for peer in unflushed:
            peer.flush()


class TcpPeer:
    """One TCP connection; its socket never blocks."""

    def __init__(self, number: int, sock: socket.socket, connections: Connections) -> None:
        self._number = number
        self._socket = sock
        self._connections = connections
        self._loop = connections.loop
        self._wire = Connection("server", connections.limits)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._closing = False  # once all is sent
        self._closed = False
        self._reading = connections.reading
        self._events = 0
        self._to_flush = False
        self._watch()

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        if self._closing:
            return
        self._queue(self._wire.send(frame, payload))
        if not self._to_flush:
            self._to_flush = True
            self._connections.flush_later(self)

    def _queue(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            self._unsent.append(view)
            self._unsent_bytes += len(view)

    def flush(self) -> None:
        self._to_flush = False
        if self._closed:
            return
        try:
            self._write()
        except OSError as error:
            self._lost(f"{error}")
            return
        if self._unsent_bytes > self._connections.limits.credit_bytes_max + UNSENT_BYTES_MAX:
            self._lost("it does not read what it is sent")
        elif self._closing and not self._unsent:
            self._shut()
        else:
            self._watch()

    def close(self) -> None:
        """After what is queued has left."""
        self._closing = True
        if not self._to_flush:
            self._to_flush = True
            self._connections.flush_later(self)

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        self._watch()

    def _write(self) -> None:
        while self._unsent:
            batch = [self._unsent[i] for i in range(min(len(self._unsent), BUFFERS_PER_WRITE))]
            try:
                sent = self._socket.sendmsg(batch)
            except BlockingIOError:
                return
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent.popleft()
                if sent < len(first):
                    self._unsent.appendleft(first[sent:])
                    return  # the socket is full
                sent -= len(first)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
        if events & READ and not self._closed:
            self._read()

    def _read(self) -> None:
        node = self._connections.node
        try:
            for _ in range(READS_PER_TURN):
                if self._closing or self._closed or not self._reading:
                    return
                buffer = self._wire.get_buffer()
                count = self._socket.recv_into(buffer)
                if not count:
                    self._wire.received_end()
                    self._lost("")
                    return
                for frame, payload in self._wire.buffer_updated(count):
                    node.received(self._number, frame, payload)
                if self._wire.error is not None:
                    raise self._wire.error
                if count < len(buffer):
                    return  # the socket is empty
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
        except ProtocolError as error:
            self._refuse(error)

    def _refuse(self, error: HocketError) -> None:
        """Say why as far as that is possible, and hang up."""
        log.warning("connection %d broke the protocol: %s", self._number, error)
        self._connections.remove(self._number)
        self._queue(self._wire.farewell())
        self.close()

    def _lost(self, why: str) -> None:
        if why:
            log.info("connection %d was lost: %s", self._number, why)
        self._shut()

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = self._closing = True
        if self._events:
            self._loop.unregister(self._socket)
            self._events = 0
        self._socket.close()
        self._unsent.clear()
        self._connections.remove(self._number)

    def _watch(self) -> None:
        if self._closed:
            return
        wanted = (READ if self._reading and not self._closing else 0) | (
            WRITE if self._unsent else 0
        )
        if wanted == self._events:
            return
        if not self._events:
            self._loop.register(self._socket, wanted, self._ready)
        elif not wanted:
            self._loop.unregister(self._socket)
        else:
            self._loop.modify(self._socket, wanted, self._ready)
        self._events = wanted


class LocalPeer:
    """A client in the same process: frames are handed over as they are, with no bytes made."""

    def __init__(
        self,
        number: int,
        connections: Connections,
        received: Callable[[Frame, memoryview], None],
        lost: Callable[[HocketError], None],
    ) -> None:
        self._number = number
        self._connections = connections
        self._received = received
        self._lost = lost

    def send(self, frame: Frame, payload: Sequence[Buffer]) -> None:
        # The client may keep its payload for as long as it likes, and the log's memory is the
        # log's: hence a copy, which also makes one run of bytes of the slices.
        self._received(frame, memoryview(b"".join(payload)))

    def close(self) -> None:
        self._connections.remove(self._number)
        self._lost(ProtocolError("the broker has closed the connection"))

    def set_reading(self, reading: bool) -> None:
        """Within the process there is nothing to leave unread; the client's window bounds it."""
