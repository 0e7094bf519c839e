"""Two connections whose bytes the node passes on to each other, without looking at them.

What one end sends is read only while little of what came before waits for the other end. So a slow
end holds the quick one back, and a pipe takes little memory.

Its users close only when both have said all they had to. So when one end has sent its last byte and
that has been passed on, the other end is told so, and what that one still sends means nothing. It
is read all the same, until that end closes, too, or has not done so within `LINGER_US`: a socket
that is closed with unread bytes takes back what it has sent. An end that takes nothing any more may
have sent something before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Transport, write
from hocket.model import SECOND_US
from hocket.timers import Timer

log = logging.getLogger("hocket.node")

WAITING_BYTES_MAX = 256 << 10  # in one direction; then the sender is not read
READ_BYTES = 64 << 10
LINGER_US = 30 * SECOND_US  # how long an end that was told all may take to close


class Half:
    """One of the two connections: what it is read from, and what waits to be written to it."""

    def __init__(self, transport: Transport, unsent: deque[memoryview]) -> None:
        self.transport = transport
        self.descriptor = transport.fileno()
        self.unsent = unsent
        self.unsent_bytes = sum(map(len, unsent))
        self.events = 0
        self.ended = False  # it sends nothing more
        self.deaf = False  # it takes nothing more: it is gone, or was told that nothing comes


class Pipe:
    def __init__(self, loop: Loop, one: Half, other: Half, gone: Callable[[Pipe], None]) -> None:
        self._loop = loop
        self._halves = (one, other)
        self._gone = gone
        self._closed = False
        self._reads_on = False
        self._lingering: Timer | None = None  # one end has said all, and the other was told

    def start(self) -> None:
        for half in self._halves:
            self._write(half)
        self._watch()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._lingering is not None:
            self._lingering.cancel()
        for half in self._halves:
            if half.events:
                self._loop.unregister(half.descriptor)
                half.events = 0
            half.transport.close()
            half.unsent.clear()
        self._gone(self)

    def forked(self) -> None:
        self._closed = True
        for half in self._halves:
            half.transport.forked()

    def _other(self, half: Half) -> Half:
        one, other = self._halves
        return other if half is one else one

    def _ready(self, half: Half, events: int) -> None:
        if self._closed:
            return
        if events & WRITE:
            self._write(half)
        if (events & READ or half.transport.wants_write) and not self._closed:
            self._read(half)
        self._watch()

    def _read(self, half: Half) -> None:
        to = self._other(half)
        try:
            for _ in range(half.transport.reads_per_turn):
                if to.unsent_bytes >= WAITING_BYTES_MAX:
                    break
                data = half.transport.recv(READ_BYTES)
                if not data:
                    half.ended = True
                    break
                if not (to.deaf or to.ended):
                    to.unsent.append(memoryview(data))
                    to.unsent_bytes += len(data)
                if half.transport.short_is_all and len(data) < READ_BYTES:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            log.info("a pipe ends: %s", reason_of(error))
            half.ended = True
        self._write(to)

    def _write(self, half: Half) -> None:
        if half.deaf:
            return
        try:
            half.unsent_bytes -= write(half.transport, half.unsent)
            if self._other(half).ended and not half.unsent:
                half.deaf = True
                half.transport.end_sending()
        except OSError as error:
            log.info("a pipe ends: %s", reason_of(error))
            half.deaf = True
            half.unsent.clear()
            half.unsent_bytes = 0

    def _watch(self) -> None:
        if self._closed:
            return
        if all(half.ended and half.deaf for half in self._halves):
            self.close()
            return
        if self._lingering is None and any(
            half.ended and self._other(half).deaf for half in self._halves
        ):
            self._lingering = self._loop.after(LINGER_US, self.close)
        for half in self._halves:
            room = self._other(half).unsent_bytes < WAITING_BYTES_MAX
            wanted = WRITE if half.unsent else 0
            if room and not half.ended:
                wanted |= WRITE if half.transport.wants_write else READ
                if half.transport.unread and not self._reads_on:
                    self._reads_on = True
                    self._loop.post(self._read_on)
            self._set(half, wanted)

    def _set(self, half: Half, wanted: int) -> None:
        if wanted == half.events:
            return
        if not half.events:
            self._loop.register(half.descriptor, wanted, lambda events: self._ready(half, events))
        elif not wanted:
            self._loop.unregister(half.descriptor)
        else:
            self._loop.modify(half.descriptor, wanted, lambda events: self._ready(half, events))
        half.events = wanted

    def _read_on(self) -> None:
        """Bytes wait within TLS that no readiness announces."""
        self._reads_on = False
        if not self._closed:
            for half in self._halves:
                if half.transport.unread:
                    self._read(half)
            self._watch()
