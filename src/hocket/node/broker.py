"""A broker: a node with a real clock, disk and network, on a thread of its own or the caller's."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hocket import forking
from hocket.adapters.clock import SystemClock
from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.executor import ThreadExecutor
from hocket.adapters.loop import READ, Loop
from hocket.adapters.tls import TlsTransport
from hocket.adapters.transport import PlainTransport, keep_alive, send_at_once
from hocket.addresses import Address
from hocket.core.session.session import TRUSTED, Caller
from hocket.errors import Closed, HocketError, NoConnection, ShuttingDown, StoreStopped
from hocket.frames import Frame
from hocket.node.door.connections import Connections, LocalPeer
from hocket.node.identity import audit
from hocket.node.node import Node
from hocket.node.running.hooks import OnSent
from hocket.node.settings import TICK_US, NodeSettings

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("hocket.node")
NOTHING = memoryview(b"")
OPEN_SECONDS = 10.0
TURNS_TO_LEAD = 5  # the vote, the first entry of the term, and their commits
GOODBYE_SECONDS = 2.0  # for clients to take their last answers when the broker goes down


class Surroundings(NamedTuple):
    """What a broker gives the node that runs on it."""

    settings: NodeSettings
    disk: DirectoryDisk
    executor: ThreadExecutor
    loop: Loop
    connections: Connections


class Links(Protocol):
    def flush(self) -> None: ...
    def forked(self) -> None: ...


class Member(Protocol):
    """A node of a cluster, as its broker drives it (`node.cluster.member`)."""

    @property
    def node(self) -> Node: ...
    @property
    def links(self) -> Links: ...
    def leave(self, done: Callable[[], None]) -> None:
        """Say goodbye to the other nodes, then call `done`, in any case soon."""

    def tick(self) -> None: ...
    def close(self) -> None: ...
    def on_stored(self, told: Callable[[int], None]) -> None:
        """Tell how long it took, in us, until entries were durable at another node."""

    def on_sent(self, told: OnSent) -> None:
        """Show what is sent to other nodes, for traces."""


class Broker:
    """Opens the data directory when it is made; serves while `run` runs, on whichever thread."""

    def __init__(
        self,
        path: Path,
        settings: NodeSettings | None = None,
        make_member: Callable[[Surroundings], Member] | None = None,
    ) -> None:
        """With `make_member` the broker is a node of a cluster; see `node.cluster.member`."""
        settings = settings or NodeSettings()
        self._settings = replace(settings, log=replace(settings.log, where=str(path)))
        self._loop = self.loop = Loop()  # the latter for what extends a node
        self._connections = Connections(
            self._loop, self._settings.limits, hello_timeout_us=settings.hello_timeout_us
        )
        self._executor = ThreadExecutor(self._loop.post)
        self._listeners: dict[socket.socket, ssl.SSLContext | None] = {}
        self._resting: list[socket.socket] = []  # until the next tick
        self._thread: threading.Thread | None = None
        self._closed = False
        self.connections_ended = 0  # those that were open when it began to shut down
        self._is_running = False
        self._is_inherited = False  # this process is a child, and the broker its parent's
        self._disk = self.disk = DirectoryDisk(path)
        self.member: Member | None = None
        try:
            if make_member is None:
                self.node = Node(
                    self._settings,
                    disk=self._disk,
                    executor=self._executor,
                    clock=SystemClock(),
                    network=self._connections,
                )
            else:
                self.member = make_member(
                    Surroundings(
                        self._settings, self._disk, self._executor, self._loop, self._connections
                    )
                )
                self.node = self.member.node
        except BaseException:
            self._executor.close()
            self._loop.close()
            raise
        self._connections.node = self.node
        self.node.naming.splice = self._connections.splice
        self._loop.every(TICK_US / 1e6, self._tick)
        self._loop.after_turn(self._end_turn)
        forking.tell(self)

    def forked(self) -> None:
        """See `forking`: the broker is the parent's; let go of its connections and its lock."""
        self._is_inherited = True
        for listener in self._listeners:
            listener.close()
        self._connections.forked()
        if self.member is not None:
            self.member.links.forked()
        self._loop.close()
        self._disk.unlock()

    @property
    def connections_total(self) -> int:
        """How many connections there were since the broker was opened."""
        return self._connections.total

    def make_first_admin(self, token: str) -> None:
        """Make the user that the token names the first admin, before anybody is let in.

        Returns when this is durable. To be called before `listen` and `run`; `node.access_is_on`
        must be False, and the token one of ours.
        """
        with audit.kept_by(self.node.trail.add):
            for _ in range(TURNS_TO_LEAD):  # of a cluster, this node is the only voter
                if not self.node.group0.leads:
                    self.node.end_turn()
                    self._executor.drain()
            self.node.make_first_admin(token)
            self.node.end_turn()
            self._executor.drain()
        if not self.node.access_is_on:
            raise StoreStopped("the first admin could not be made durable; see the log")

    # --- listening -------------------------------------------------------------------------------

    def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Accept TCP connections at this address.

        Returns the address that was bound; for port 0 it has the port that was picked.
        """
        return self.listen_on(bind(host, port), tls)

    def listen_on(self, listener: socket.socket, tls: ssl.SSLContext | None) -> tuple[str, int]:
        """Accept TCP connections at a socket that is bound already."""
        try:
            listener.listen(1024)
        except OSError as error:
            address = listener.getsockname()
            listener.close()
            raise _taken(address[0], address[1], error) from error
        listener.setblocking(False)
        self._listeners[listener] = tls
        self._watch(listener)
        bound = listener.getsockname()
        return bound[0], bound[1]

    def serve_clients(self, serves: bool) -> None:
        """Whether clients are let in; a node of a cluster may have to catch up before."""
        self._connections.starting = not serves

    @property
    def serves_clients(self) -> bool:
        return not self._connections.starting

    def renew_tls(self, tls: ssl.SSLContext) -> None:
        """Use `tls` for new connections at every port with TLS. Call it on the broker's thread."""
        for listener, before in self._listeners.items():
            self._listeners[listener] = None if before is None else tls

    def _watch(self, listener: socket.socket) -> None:
        self._loop.register(listener, READ, lambda _events: self._accept(listener))

    def _tick(self) -> None:
        while self._resting:
            self._watch(self._resting.pop())
        (self.member or self.node).tick()
        self._connections.tick()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of file descriptors, say; open connections go on
                log.warning("cannot accept a connection: %s", error)
                self._loop.unregister(listener)  # else the listener would be ready again at once
                self._resting.append(listener)
                return
            if len(self._connections) >= self._settings.limits.connections_max:
                log.warning("refused a connection: %d are open", len(self._connections))
                sock.close()
                continue
            sock.setblocking(False)
            send_at_once(sock)
            keep_alive(sock)
            tls = self._listeners[listener]
            transport = PlainTransport(sock) if tls is None else TlsTransport(sock, tls)
            place = str(Address(str(address[0]), address[1]))
            self._connections.accept(transport, Caller(address=str(address[0])), place)

    # --- clients in this process -----------------------------------------------------------------

    def open_link(
        self,
        received: Callable[[Frame, memoryview], None],
        lost: Callable[[HocketError], None],
        caller: Caller = TRUSTED,
    ) -> LocalLink:
        """A connection without a socket. The callbacks are called on the broker's thread."""
        number: Future[int] = Future()

        def add() -> None:
            try:
                number.set_result(
                    self._connections.add(
                        lambda number: LocalPeer(number, self._connections, received, lost),
                        caller,
                    )
                )
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                number.set_exception(error)

        self.post(add)
        try:
            return LocalLink(self, number.result(OPEN_SECONDS))
        except TimeoutError:  # the broker stopped just then, and nothing runs what was posted
            raise Closed("the broker is closed") from None

    def forget(self, number: int) -> None:
        self._connections.remove(number)

    def post(self, task: Callable[[], None]) -> None:
        if self._is_inherited:
            raise forking.wrong_process()
        if self._closed:
            raise Closed("the broker is closed")
        self._loop.post(task)

    # --- running ---------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        self.node.conclude()
        self._connections.flush()  # first: nothing of this waits for the disk, and a commit may
        if self.member is not None:
            self.member.links.flush()
        self.node.commit()
        self._connections.flush()

    def run(self) -> None:
        """Serve until `stop`. Then send the last answers, make all durable, free the directory."""
        self._is_running = True
        try:
            with audit.kept_by(self.node.trail.add):
                self._loop.run()
        finally:
            self._is_running = False
            self._shut_down()

    def start(self) -> None:
        """Serve on a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="hocket-broker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Make `run` return. May be called on any thread, and in a signal handler."""
        if self._closed or self._is_inherited:
            return
        if self.member is None or not self._is_running:
            self._loop.stop()
        else:  # a node of a cluster says goodbye to the ring before
            self._loop.post(partial(self.member.leave, self._loop.stop))

    def close(self) -> None:
        """Stop, and return when everything is durable and the data directory is free.

        In a forked child it does nothing: the broker is the parent's.
        """
        if self._is_inherited:
            return
        self.stop()
        if self._thread is None:
            if not self._closed:
                self._shut_down()
        else:
            self._thread.join()

    def _shut_down(self) -> None:
        """Make durable and answer what was received; what was not is for the next broker."""
        for listener in self._listeners:
            if listener not in self._resting:
                self._loop.unregister(listener)
            listener.close()
        self.connections_ended = len(self._connections)
        self._connections.pause()
        self._connections.abort_unknown()
        try:
            self.node.give_up_waiting(ShuttingDown("the broker is going down; try again"))
            self.node.end_turn()
            self._executor.drain()
            self.node.say_goodbye(f"{ShuttingDown.code}: the broker is going down")
            self._closed = True
            deadline = monotonic() + GOODBYE_SECONDS
            while len(self._connections) and monotonic() < deadline:
                self._loop.turn(0.05)
            self._connections.abort()
            if self.member is not None:
                self.member.close()
            else:
                self.node.close()
        finally:
            self._closed = True
            self._executor.close()
            self._loop.close()


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet. Raises NoConnection."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise NoConnection(f"cannot listen on {host}:{port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from error
    return listener


def _taken(host: str, port: int, error: OSError) -> NoConnection:
    why = {
        errno.EADDRINUSE: "Is another broker running there? ",
        errno.EADDRNOTAVAIL: "This machine has no such address. ",
        errno.EACCES: "Ports below 1024 need a privilege. ",
    }.get(error.errno or 0, "")
    return NoConnection(
        f"cannot listen on {Address(host, port)}: {error.strerror}. {why}Choose another with "
        "--listen HOST:PORT (port 0 picks a free one)"
    )


class LocalLink:
    """A client's end of a connection within the process."""

    def __init__(self, broker: Broker, number: int) -> None:
        self._broker = broker
        self._number = self.number = number

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Never waits. The payload must not be changed any more."""
        view = NOTHING
        if payload:
            view = memoryview(payload[0] if len(payload) == 1 else b"".join(payload))
        node = self._broker.node
        self._broker.post(lambda: node.received(self._number, frame, view))

    def close(self) -> None:
        try:
            self._broker.post(lambda: self._broker.forget(self._number))
        except Closed:
            return
