"""Opens connections without waiting: names of hosts, TCP, TLS."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from ipaddress import ip_address

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import TlsTransport
from hocket.adapters.transport import PlainTransport, Transport, keep_alive, send_at_once
from hocket.addresses import Address
from hocket.timers import Timer

Done = Callable[[Transport | OSError], None]
HANDSHAKES_MAX = 64  # of this process with one address at a time


class Tls:
    """How to speak TLS with whom we dial: a node, by the name of its host; a process, by the
    fingerprint of its certificate that the cluster has told."""

    __slots__ = ("context", "fingerprint", "host")

    def __init__(self, context: ssl.SSLContext, host: str, fingerprint: bytes = b"") -> None:
        self.context = context
        self.host = host
        self.fingerprint = fingerprint


@cache
def pinned_context() -> ssl.SSLContext:
    """For processes: their certificate is known, so nobody has to vouch for it.

    One for all: to make it takes longer than the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class DialledByName(TlsTransport):
    """The end that has dialled: it speaks first, and knows whom it wants."""

    def __init__(self, sock: socket.socket, tls: Tls) -> None:
        super().__init__(sock, tls.context)
        self._wanted = tls

    def _begun(self) -> ssl.SSLSocket:
        return self._context.wrap_socket(
            self._plain, server_hostname=self._wanted.host, do_handshake_on_connect=False
        )

    def handshake(self) -> None:
        super().handshake()
        if self._wanted.fingerprint:
            assert self._tls is not None
            shown = self._tls.getpeercert(binary_form=True) or b""
            if hashlib.sha256(shown).digest() != self._wanted.fingerprint:
                raise ConnectionRefusedError("another certificate is shown there than registered")


class Dialling:
    """One connection on its way. `done` is called once, on the loop's thread."""

    def __init__(
        self, loop: Loop, address: Address, tls: Tls | None, timeout: float, done: Done
    ) -> None:
        self._loop = loop
        self._address = address
        self._tls = tls
        self._done: Done | None = done
        self._left: list[tuple[int, tuple[object, ...]]] = []  # family and address, to be tried
        self._socket: socket.socket | None = None
        self._transport: Transport | None = None
        self._events = 0
        self._timer: Timer = loop.after(int(timeout * 1e6), self._late)
        self._error: OSError = OSError("no address was found")

    def start(self) -> None:
        try:
            ip_address(self._address.host)
        except ValueError:
            # To ask for a host's address may take seconds, and has no form that does not wait.
            name = f"hocket looks up {self._address.host}"
            threading.Thread(target=self._look_up, name=name, daemon=True).start()
        else:
            self._found(self._addresses())

    def cancel(self) -> None:
        self._done = None
        self._drop()

    def _addresses(self) -> list[tuple[int, tuple[object, ...]]]:
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]

    def _look_up(self) -> None:
        try:
            found = self._addresses()
        except OSError as error:
            failed = error
            self._loop.post(lambda: self._finish(failed))
        else:
            self._loop.post(lambda: self._found(found))

    def _found(self, found: list[tuple[int, tuple[object, ...]]]) -> None:
        self._left = found
        if self._done is not None:
            self._next()

    def _next(self) -> None:
        self._drop_socket()
        while self._left:
            family, address = self._left.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                self._error = error
                continue
            sock.setblocking(False)
            send_at_once(sock)
            keep_alive(sock)
            self._socket = sock
            code = sock.connect_ex(address)
            if code in (0, 115, 36):  # done, or EINPROGRESS on Linux and macOS
                self._watch(WRITE)
                return
            self._error = OSError(code, os.strerror(code))
            self._drop_socket()
        self._finish(self._error)

    def _ready(self, _events: int) -> None:
        if self._transport is None:
            assert self._socket is not None
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._error = OSError(code, os.strerror(code))
                self._next()
                return
            self._transport = (
                PlainTransport(self._socket)
                if self._tls is None
                else DialledByName(self._socket, self._tls)
            )
        try:
            self._transport.handshake()
        except BlockingIOError:
            self._watch(WRITE if self._transport.wants_write else READ)
        except OSError as error:
            self._finish(error)
        else:
            self._watch(0)
            self._finish(self._transport)

    def _watch(self, events: int) -> None:
        sock = self._socket
        assert sock is not None
        descriptor = sock.fileno() if self._transport is None else self._transport.fileno()
        if self._events and self._events != events:
            self._loop.unregister(descriptor)
            self._events = 0
        if events and not self._events:
            self._loop.register(descriptor, events, self._ready)
        self._events = events

    def _late(self) -> None:
        self._finish(TimeoutError("no answer in time"))

    def _finish(self, outcome: Transport | OSError) -> None:
        done, self._done = self._done, None
        if isinstance(outcome, OSError):
            self._drop()
        else:
            self._timer.cancel()
            self._socket = self._transport = None
        if done is not None:
            done(outcome)
        elif not isinstance(outcome, OSError):
            outcome.close()

    def _drop(self) -> None:
        self._timer.cancel()
        self._left = []
        self._drop_socket()

    def _drop_socket(self) -> None:
        if self._socket is not None:
            if self._events:
                self._watch(0)
            (self._transport or self._socket).close()
            self._socket = self._transport = None


class Dial:
    """A connection that is wanted: it waits for its turn, or is on its way. See `Dials`."""

    def __init__(
        self, dials: Dials, address: Address, tls: Tls | None, timeout: float, done: Done
    ) -> None:
        self.address = address
        self.tls = tls
        self.is_wanted = True
        self._dials = dials
        self._timeout = timeout
        self._done = done
        self._dialling: Dialling | None = None

    def start(self) -> None:
        """`done` is called once, perhaps at once."""
        self._dials.take_turn(self)

    def begin(self, loop: Loop) -> None:
        self._dialling = Dialling(loop, self.address, self.tls, self._timeout, self._over)
        self._dialling.start()

    def cancel(self) -> None:
        self.is_wanted = False
        if self._dialling is not None:
            self._dialling.cancel()
            self._dials.over(self)

    def _over(self, outcome: Transport | OSError) -> None:
        self._dials.over(self)
        self._done(outcome)


class Dials:
    """All that the connects of this process dial; on the loop's thread.

    A handshake of TLS computes at both ends. Thousands at once would take each other's time until
    each is given up as late, and begun anew on another way; so they take turns, by address. The
    time that one has begins with its turn.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open: set[Dial] = set()
        self._busy: Counter[Address] = Counter()
        self._waiting: dict[Address, deque[Dial]] = {}

    def dial(self, address: Address, tls: Tls | None, timeout: float, done: Done) -> Dial:
        """See `Dialling`; it is to be started."""
        return Dial(self, address, tls, timeout, done)

    def take_turn(self, dial: Dial) -> None:
        if dial.tls is not None and self._busy[dial.address] >= HANDSHAKES_MAX:
            self._waiting.setdefault(dial.address, deque()).append(dial)
        else:
            self._begin(dial)

    def _begin(self, dial: Dial) -> None:
        self._open.add(dial)
        self._busy[dial.address] += 1
        dial.begin(self._loop)

    def over(self, dial: Dial) -> None:
        """It has an outcome, or is not wanted any more; again: no effect."""
        if dial not in self._open:
            return
        self._open.remove(dial)
        self._busy[dial.address] -= 1
        if not self._busy[dial.address]:
            del self._busy[dial.address]
        if dial.address in self._waiting:  # posted: many may fail at once, one after the other
            self._loop.post(lambda: self._next(dial.address))

    def _next(self, address: Address) -> None:
        waiting = self._waiting.get(address)
        while waiting and self._busy[address] < HANDSHAKES_MAX:
            dial = waiting.popleft()
            if dial.is_wanted:
                self._begin(dial)
        if not waiting:
            self._waiting.pop(address, None)

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        self._waiting.clear()
        for dial in list(self._open):
            dial.cancel()
