"""One link to one other node, on which this node only sends; the other node's answers come on the
other node's link to us.

    resting -> (something to send) -> dialling -> greeting -> open -> (broken) -> resting

Nothing here ever waits: names are resolved by a worker, and connecting, the TLS handshake and the
greeting go on when the socket is ready. The queue is bounded and may lose, as `ports.Links` says:
what does not fit is dropped, and all of it when the link breaks. What is urgent goes ahead of bulk,
frame by frame; the system is given little at a time (TCP_NOTSENT_LOWAT), since whatever it has
taken cannot be overtaken any more.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from random import Random
from typing import Any, Protocol
from zlib import crc32

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import DialledTls, reason_of
from hocket.adapters.transport import PlainTransport, Transport, write
from hocket.addresses import parse_port, split_address
from hocket.core.ring.contact import Contact
from hocket.core.ring.greeting import is_loopback
from hocket.errors import HocketError, ProtocolError
from hocket.node.links import faults
from hocket.node.messages import CODEC
from hocket.node_frames import Heartbeat, HelloAccepted, HelloRefused, NodeHello
from hocket.ports import Cancellable, Executor
from hocket.wire.node_connection import NodeConnection

log = logging.getLogger("hocket.links")

URGENT_BYTES_MAX = 8 << 20  # that are queued
# The same, of bulk. Each group of Raft has up to 8 MiB under way to a peer (`replication.sending`),
# and a transaction is published in many of them in one turn. What is lost here comes much later.
BULK_BYTES_MAX = 64 << 20
WRITE_BYTES = 128 << 10  # what is handed to the system at a time
# What the system takes beyond what is on its way: 16 ms of a link of 1 Gbit/s, for which a beat can
# wait; it waits as long for the frame of bulk before it. With 128 KiB both ends were woken for each
# of so few bytes: nodes took 1.46 to 1.49 s of processor time for a million records on three
# replicas, where they take 1.14 s now.
UNSENT_IN_SYSTEM = 2 << 20
OPENING_US = 3_000_000  # for dialling, the handshake and the greeting together
REST_US_MIN, REST_US_MAX = 50_000, 1_000_000  # after a failure; doubled each time
LOOK_US = 10_000  # after a link that was open broke, it is dialled again: is the process there?
REFUSED_REST_US = 10_000_000  # after a refusal, which another attempt hardly changes
RESOLVERS = 4  # threads that resolve names
GIVE_UP_MS = 15_000  # bytes that the other end does not confirm for so long break the link

Frame = list[memoryview]


class Owner(Protocol):
    """What a link needs of all links of the node."""

    loop: Loop
    executor: Executor
    chance: Random
    tls: Callable[[], ssl.SSLContext | None]

    def hello(self) -> NodeHello: ...
    def fault_of(self, transport: Transport, answer: HelloAccepted) -> str:
        """What is wrong with a node that accepts; empty: nothing."""

    def accepted(self, link: Outgoing, answer: HelloAccepted) -> None: ...
    def refused(self, link: Outgoing, answer: HelloRefused) -> None: ...
    def distrusted(self, link: Outgoing, why: str) -> None:
        """This node does not believe the one that it has called."""

    def lost(self, link: Outgoing) -> None: ...
    def gone(self, link: Outgoing) -> None:
        """Nobody listens where the link has led: the process there is gone, not only the link."""

    def flush_later(self, link: Outgoing) -> None: ...


class Outgoing:
    def __init__(self, address: str, owner: Owner) -> None:
        self.address = address
        self.state = "resting"
        self.node = ""  # who has answered when the link was last open
        self.contact: Contact | None = None  # to whom something was sent last, if it is known
        self.dropped = 0
        self._owner = owner
        self._loop = owner.loop
        self._urgent: deque[Frame] = deque()
        self._bulk: deque[Frame] = deque()
        self._urgent_bytes = self._bulk_bytes = 0
        self._writing: deque[memoryview] = deque()
        self._transport: Transport | None = None
        self._socket: socket.socket | None = None
        self._descriptor = -1
        self._events = 0
        self._wire = NodeConnection("dialler", CODEC)
        self._timer: Cancellable | None = None  # the end of the rest, or of patience
        self._rest_us = REST_US_MIN
        self._may_dial = True
        self._is_resolving = False  # the name, for this dial or one before
        self._was_told = False  # that the link is lost; told again after it was open again
        self._to_flush = False
        self._hosts: list[tuple[Any, ...]] = []
        self._closed = False
        self._is_connecting = False
        self._complaint = ""
        self._looks_again = False  # the link broke, and is dialled to see who is there

    # --- sending ---------------------------------------------------------------------------------

    def send(self, frame: Frame, *, is_bulk: bool) -> None:
        size = sum(map(len, frame))
        if self._closed or (self.state == "resting" and not self._may_dial):
            self.dropped += 1
            return
        if is_bulk:
            # A batch may be larger than the queue: it goes alone, else it would never go.
            if self._bulk_bytes and self._bulk_bytes + size > BULK_BYTES_MAX:
                self.dropped += 1
                return
            self._bulk.append(frame)
            self._bulk_bytes += size
        else:
            if self._urgent_bytes + size > URGENT_BYTES_MAX:
                self.dropped += 1
                return
            self._urgent.append(frame)
            self._urgent_bytes += size
        if self.state == "resting":
            self._dial()
        elif self.state == "open" and not self._to_flush:
            self._to_flush = True
            self._owner.flush_later(self)

    def call(self) -> None:
        """Open the link, though there is nothing to send yet."""
        if self.state == "resting" and self._may_dial and not self._closed:
            self._dial()

    def flush(self) -> None:
        self._to_flush = False
        if self.state == "open":
            self._go_on(self._write)

    def _write(self) -> None:
        assert self._transport is not None
        while self._writing or self._take():
            write(self._transport, self._writing)
            if self._writing:
                break
        self._watch()

    def _take(self) -> bool:
        """What is written next: all that is urgent, and bulk when nothing is. False: nothing."""
        size = 0
        while self._urgent and size < WRITE_BYTES:
            frame = self._urgent.popleft()
            length = sum(map(len, frame))
            self._urgent_bytes -= length
            size += length
            self._writing.extend(frame)
        if not size and self._bulk:
            frame = self._bulk.popleft()
            self._bulk_bytes -= sum(map(len, frame))
            self._writing.extend(frame)
        return bool(self._writing)

    # --- dialling --------------------------------------------------------------------------------

    def _dial(self) -> None:
        self.state = "dialling"
        self._set_timer(OPENING_US, lambda: self._fail("it took too long"))
        try:
            host, port_text = split_address(self.address)
            port = parse_port(port_text or "", least=1)
        except HocketError as error:
            self._fail(str(error))
            return
        if _is_numeric(host):
            self._resolved(_outcome(host, port))
        else:
            self._resolve(host, port)

    def _resolve(self, host: str, port: int) -> None:
        """On another thread. A name server that does not answer takes longer than a dial, so the
        next dial waits for the same answer; and it keeps only some of the others waiting."""
        if self._is_resolving:
            return
        self._is_resolving = True
        self._owner.executor.submit(
            f"resolve {crc32(host.encode()) % RESOLVERS}", lambda: _resolve(host, port),
            self._resolved,
        )  # fmt: skip

    def _resolved(self, found: list[tuple[Any, ...]] | BaseException) -> None:
        self._is_resolving = False
        if self._closed or self.state != "dialling" or self._socket is not None:
            return
        if isinstance(found, BaseException):
            self._fail(f"its name cannot be resolved: {found}")
            return
        self._hosts = found
        self._go_on(self._connect)

    def _connect(self) -> None:
        """Try the next of the addresses that the name has."""
        family, kind, protocol, _name, address = self._hosts.pop(0)
        if self._owner.tls() is None and not is_loopback(str(address[0])):
            self._distrust(faults.PLAIN)  # before a word is said in plain
            return
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            self._fail(reason_of(error))
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in (
            ("TCP_NOTSENT_LOWAT", UNSENT_IN_SYSTEM),
            ("TCP_USER_TIMEOUT", GIVE_UP_MS),
        ):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._socket = sock
        self._descriptor = sock.fileno()
        number = sock.connect_ex(address)
        if number not in (0, errno.EINPROGRESS):
            self._not_connected(number)
            return
        self._is_connecting = True
        self._watch_for(WRITE)

    def _connected(self) -> None:
        assert self._socket is not None
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._is_connecting = False
        if error:
            self._not_connected(error)
            return
        tls = self._owner.tls()
        if tls is None:
            self._transport = PlainTransport(self._socket)
        else:
            self._transport = DialledTls(self._socket, tls)
        self._shake_hands()

    def _not_connected(self, number: int) -> None:
        self._drop_socket()
        if self._hosts:
            self._connect()
            return
        is_gone = self._looks_again and number == errno.ECONNREFUSED
        self._fail(os.strerror(number))
        if is_gone and not self._closed:
            self._owner.gone(self)

    def _shake_hands(self) -> None:
        assert self._transport is not None
        try:
            self._transport.handshake()
        except BlockingIOError:
            self._watch_for(WRITE if self._transport.wants_write else READ)
            return
        self.state = "greeting"
        self._wire = NodeConnection("dialler", CODEC)
        self._writing.extend(map(memoryview, self._wire.send(self._owner.hello())))
        self._write_hello()

    def _write_hello(self) -> None:
        assert self._transport is not None
        write(self._transport, self._writing)
        self._watch()

    # --- events ----------------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        self._go_on(lambda: self._handle(events))

    def _go_on(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BlockingIOError:
            self._watch()
        except ssl.SSLError as error:
            say = self._distrust if faults.is_ours(error) else self._complain
            say(faults.of_tls(error))
        except OSError as error:
            self._fail(reason_of(error))
        except ProtocolError as error:
            self._complain(str(error))

    def _complain(self, why: str) -> None:
        """Fail for a reason that somebody has to see to; it is said once, until it is another."""
        if why != self._complaint:
            self._complaint = why
            log.warning("no link to the node at %s: %s", self.address, why)
        self._fail("")

    def _distrust(self, why: str) -> None:
        """Complain about a node that must not be spoken to."""
        if why != self._complaint:
            self._owner.distrusted(self, why)
        self._complain(why)

    def _handle(self, events: int) -> None:
        if self.state == "dialling":
            if self._is_connecting:
                self._connected()
            else:
                self._shake_hands()
            return
        if events & WRITE:
            if self.state == "open":
                self._write()
            else:
                self._write_hello()
        if events & READ and self.state in ("greeting", "open"):
            self._read()

    def _read(self) -> None:
        """The other end only ever answers the Hello; and its end is the link's."""
        transport = self._transport
        assert transport is not None
        while True:
            count = transport.recv_into(self._wire.get_buffer())
            if not count:
                self._fail("it has closed the connection")
                return
            for envelope in self._wire.messages(count):
                if not isinstance(envelope.message, Heartbeat):
                    self._answered(envelope.message)
            if self._wire.error is not None:
                raise self._wire.error
            if self._transport is None or not transport.unread:  # it may have ended meanwhile
                break
        self._watch()

    def _answered(self, answer: HelloAccepted | HelloRefused) -> None:
        assert self._transport is not None
        if isinstance(answer, HelloRefused):
            self._owner.refused(self, answer)
            self._rest_us = REFUSED_REST_US
            self._complain(f"it refuses this node: {answer.text}")
            return
        fault = self._owner.fault_of(self._transport, answer)
        if fault:
            self._rest_us = REFUSED_REST_US
            self._distrust(fault)
            return
        self.state = "open"
        self.node = answer.node
        self._complaint = ""
        self._rest_us = REST_US_MIN
        self._was_told = False
        self._cancel_timer()
        self._owner.accepted(self, answer)
        self._write()

    # --- endings ---------------------------------------------------------------------------------

    def close(self) -> None:
        """For good; what is queued is tried once more."""
        if self.state == "open":
            with suppress(OSError):
                self._write()
        self._closed = True
        self._cancel_timer()
        self._drop_socket()
        self._clear()
        self.state = "resting"

    def forked(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.forked()
        elif self._socket is not None:
            self._socket.close()

    def _fail(self, why: str) -> None:
        was_open = self.state == "open"
        self._cancel_timer()
        self._drop_socket()
        self._clear()
        self.state = "resting"
        if self._closed:
            return
        if why:
            say = log.info if was_open else log.debug
            say("the link to %s is %s: %s", self.address, "lost" if was_open else "not made", why)
        self._may_dial = False
        self._looks_again = was_open
        if was_open:
            self._set_timer(LOOK_US, self._look_again)
            if not self._was_told:
                self._was_told = True
                self._owner.lost(self)
            return
        rest_us = self._rest_us // 2 + self._owner.chance.randrange(self._rest_us // 2 + 1)
        self._rest_us = min(2 * self._rest_us, max(self._rest_us, REST_US_MAX))
        self._set_timer(rest_us, self._rested)
        if not self._was_told:
            self._was_told = True
            self._owner.lost(self)

    def _look_again(self) -> None:
        """A link that was open broke. Who redials at once can tell a process that is gone."""
        self._rested()
        if self.state == "resting" and not self._closed:
            self._dial()

    def _rested(self) -> None:
        self._timer = None
        self._may_dial = True

    def is_there(self) -> None:
        """The node at this address has dialled us: an attempt is worth while again."""
        if self.state == "resting" and not self._may_dial and not self._closed:
            self._cancel_timer()
            self._rest_us = REST_US_MIN
            self._rested()

    def _clear(self) -> None:
        self.dropped += len(self._urgent) + len(self._bulk)
        self._urgent.clear()
        self._bulk.clear()
        self._writing.clear()
        self._urgent_bytes = self._bulk_bytes = 0

    def _drop_socket(self) -> None:
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0
        if self._transport is not None:
            self._transport.close()
        elif self._socket is not None:
            self._socket.close()
        self._transport = self._socket = None
        self._is_connecting = False

    def _set_timer(self, delay_us: int, action: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._loop.after(delay_us, action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._transport is None:
            return
        wanted = READ | WRITE if self._writing else READ
        if self._transport.wants_write:
            wanted = WRITE
        self._watch_for(wanted)

    def _watch_for(self, wanted: int) -> None:
        if wanted == self._events:
            return
        if not self._events:
            self._loop.register(self._descriptor, wanted, self._ready)
        else:
            self._loop.modify(self._descriptor, wanted, self._ready)
        self._events = wanted


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _outcome(host: str, port: int) -> list[tuple[Any, ...]] | Exception:
    """As a worker reports it. A number needs no name server, but what stands behind its percent
    sign may be no interface of ours, or nothing that could be a name (a ValueError)."""
    try:
        return _resolve(host, port)
    except (OSError, ValueError) as error:
        return error


def _resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
