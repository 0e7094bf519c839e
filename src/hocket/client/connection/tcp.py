"""Links over TCP for the blocking client.

Each link has a thread, which connects, receives, and writes what a full socket did not take. Other
threads write what they send: `send` queues a frame in the order the client decides, and then
`flush` writes on the caller's thread, without ever waiting for the network. So a caller's timeout
holds, no two threads wait for each other in a circle, and a batch needs no other thread to leave.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.addresses import Address
from hocket.client.connection.address import Target, reason_of
from hocket.client.connection.link import LinkOwner
from hocket.client.connection.strangers import hung_up, not_hocket
from hocket.client.connection.tls import Tls, tls_failed
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NoConnection
from hocket.frames import Frame
from hocket.wire.connection import Connection

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFERS_PER_WRITE = 256  # the system takes at most 1024 at a time
READS_PER_LOOK = 64  # after so many reads the thread looks whether there is something to write
READ_BYTES = 256 << 10  # under TLS, where the peer chooses the sizes of records


class TcpConnector:
    """Opens links that have a thread each: see `link.Connector`."""

    watched = True

    def __init__(self, target: Target, context: ssl.SSLContext | None, timeout: float) -> None:
        self.target = str(target)
        self.addresses: tuple[Address | None, ...] = target.addresses
        self._context = context
        self._timeout = timeout
        self._links: list[TcpLink] = []
        self._closed = False

    def open(self, address: Address | None, owner: LinkOwner) -> None:
        assert address is not None
        link = TcpLink(address, self._context, self._timeout, owner)
        self._links = [each for each in self._links if each.is_alive()] + [link]
        if self._closed:
            link.close()
        try:
            link.start()
        except RuntimeError as error:
            if threading.main_thread().is_alive():
                owner.lost(None, NoConnection(f"{address}: {error}"))
            else:
                # Since Python 3.12 no thread can be started while the process ends. We are on the
                # client's own thread, which has nothing else to do by then: see `leaving`.
                link.run()

    def close(self) -> None:
        """Returns when the links' threads have ended (but for one that calls this itself)."""
        self._closed = True
        for link in self._links:
            link.close()
        for link in self._links:
            link.join()

    def for_threads(self) -> TcpConnector:
        return self

    def forked(self) -> None:
        self._closed = True
        for link in self._links:
            link.forked()


class TcpLink:
    """One connection with a thread of its own: see `link.Link`."""

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext | None,
        timeout: float,
        owner: LinkOwner,
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._owner = owner
        self._wire = Connection("client")
        self._tls = Tls(context, address.host) if context else None
        self._socket: socket.socket | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._unsent: deque[memoryview] = deque()
        self._writing = threading.Lock()
        self._is_full = False  # the socket takes no more for now; the link's thread goes on
        self._closing = False
        self._error: HocketError | None = None
        self._heard = 0
        self._thread = threading.Thread(
            target=self.run, name=f"hocket link to {address}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    def forked(self) -> None:
        """See `Connector.forked`. Nothing is shut down: the connection is the parent's."""
        self._closing = True
        self._unsent.clear()
        for sock in (self._socket, self._wake_reader, self._wake_writer):
            if sock is not None:
                sock.close()

    # --- for any thread --------------------------------------------------------------------------

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        try:
            buffers = self._wire.send(frame, payload)
        except HocketError:
            if self._wire.error is None:
                raise
            self._error = self._wire.error  # the encoder is broken for good
            self._wake()
            return
        if self._tls is not None:
            self._tls.encrypt(buffers, self._append)
        else:
            self._unsent.extend(map(memoryview, buffers))

    def flush(self) -> None:
        while self._unsent:
            # Whoever is writing looks again after letting go, and finds what we have queued.
            if not self._writing.acquire(blocking=False):
                return
            try:
                emptied = self._write()
            finally:
                self._writing.release()
            if not emptied:
                return

    def close(self) -> None:
        if not self._closing:
            self.flush()
            self._closing = True
            self._wake()

    def heard(self) -> int:
        return self._heard

    def _append(self, data: bytes) -> None:
        self._unsent.append(memoryview(data))

    def _write(self) -> bool:
        """False: the socket is full or gone, and the link's thread sees to the rest."""
        sock, unsent = self._socket, self._unsent
        while unsent:
            # Other threads append meanwhile, so buffers are popped and not iterated over.
            buffers = [unsent.popleft() for _ in range(min(len(unsent), BUFFERS_PER_WRITE))]
            try:
                sent = sock.sendmsg(buffers) if sock else 0
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._error = NoConnection(f"{self._address}: {reason_of(error)}")
                self._wake()
                return False
            unsent.extendleft(reversed(_rest(buffers, sent)))
            if not sent:
                if not self._is_full:
                    self._is_full = True
                    self._wake()
                return False
        self._is_full = False
        return True

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake; closed: it has ended
            self._wake_writer.send(b"\0")

    # --- the link's own thread -------------------------------------------------------------------

    def run(self) -> None:
        opened = False
        try:
            self._socket = self._connected()
            if self._tls is not None:
                self._tls.handshake(self._send_all, self._receive_some)
            opened = True
            self._owner.opened(self)
            self._serve(self._socket)
        except HocketError as error:
            self._report(not_hocket(self._address, error), opened)
        except ssl.SSLError as error:
            self._report(tls_failed(self._address, error), opened)
        except OSError as error:
            self._report(NoConnection(f"{self._address}: {reason_of(error)}"), opened)
        finally:
            self._closing = True
            with self._writing:
                for sock in (self._socket, self._wake_reader, self._wake_writer):
                    if sock is not None:
                        sock.close()

    def _report(self, error: HocketError, opened: bool) -> None:
        if not self._closing or not opened:
            self._owner.lost(self if opened else None, error)

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + self._timeout
        found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        error: OSError = OSError("no address was found")
        for family, kind, protocol, _, socket_address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                code = sock.connect_ex(socket_address)
                if code:
                    self._wait(sock, select.POLLOUT, deadline)
                    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
            except OSError as failed:
                sock.close()
                error = failed
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise error

    def _wait(self, sock: socket.socket, events: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(sock, events)
        poll.register(self._wake_reader, select.POLLIN)
        while not self._closing:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {in_seconds(self._timeout)}")
            if any(fd == sock.fileno() for fd, _ in poll.poll(left * 1000)):
                return
            self._drain_wakes()
        raise NoConnection(f"{self._address}: closed while connecting")

    def _send_all(self, data: bytes) -> None:
        deadline = time.monotonic() + self._timeout
        assert self._socket is not None
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                self._wait(self._socket, select.POLLOUT, deadline)

    def _receive_some(self) -> bytes:
        deadline = time.monotonic() + self._timeout
        assert self._socket is not None
        self._wait(self._socket, select.POLLIN, deadline)
        return self._socket.recv(READ_BYTES)

    def _serve(self, sock: socket.socket) -> None:
        receive = self._receive_plain if self._tls is None else self._receive_encrypted
        poll = select.poll()
        wake_descriptor = self._wake_reader.fileno()
        poll.register(wake_descriptor, select.POLLIN)
        poll.register(sock, select.POLLIN)
        awaits_room = False
        while not self._closing:
            for _ in range(READS_PER_LOOK):
                if not receive(sock):
                    break
            if self._error is not None:
                raise self._error
            self.flush()
            is_full = self._is_full  # read once: another thread may write meanwhile
            if awaits_room != is_full:
                awaits_room = is_full
                poll.modify(sock, select.POLLIN | (select.POLLOUT if awaits_room else 0))
            # Each call of the system lets another thread have the interpreter, and has to get it
            # back: so nothing is called that is known to have nothing.
            if any(descriptor == wake_descriptor for descriptor, _ in poll.poll()):
                self._drain_wakes()

    def _receive_plain(self, sock: socket.socket) -> bool:
        """False: the socket has nothing to read now."""
        wire = self._wire
        buffer = wire.get_buffer()
        try:
            count = sock.recv_into(buffer)
        except BlockingIOError:
            return False
        if not count:
            self._ended()
        self._heard += 1
        was_filled = count == len(buffer)  # else the socket is empty: `poll` says when it is not
        self._hand_on(wire.buffer_updated(count))
        return was_filled and not self._closing

    def _receive_encrypted(self, sock: socket.socket) -> bool:
        try:
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return False
        self._heard += 1
        assert self._tls is not None
        for plain in self._tls.decrypt(data, self._append):
            if not plain:
                self._ended()
            self._hand_on(self._wire.receive(plain))
        return not self._closing

    def _ended(self) -> None:
        self._wire.received_end()
        raise hung_up(self._address, self._wire)

    def _hand_on(self, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        if frames:
            self._owner.received(self, frames)
        if self._wire.error is not None:
            raise self._wire.error

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_reader.recv(4096):
                pass


def _rest(buffers: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of `buffers` after the first `sent` bytes."""
    for at, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [buffer[sent:], *buffers[at + 1 :]]
        sent -= len(buffer)
    return []
