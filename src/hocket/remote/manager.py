"""The names of a cluster as a registry of brokers: `client.names`.

It is a `BrokerManager`: brokers of this process register here, find each other here, and connect
within the process as ever. Besides, their names are registered in the cluster, and a name that is
not of this process is looked for there.

One thread, the loop's, has all connections with other processes and the one with a node. Brokers
wait for it when they are made (is the name free?), for a short while when they are closed, and
never while they hold the managers' lock, which the loop needs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import ssl
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from hocket import forking, frames, tickets
from hocket.adapters.loop import READ
from hocket.adapters.tls import TlsTransport, server_context
from hocket.adapters.transport import PlainTransport, Transport, keep_alive, send_at_once
from hocket.addresses import Address
from hocket.deadline import in_seconds
from hocket.errors import (
    BadName,
    Closed,
    HocketError,
    NoConnection,
    ReplyLost,
    RootAway,
    Timeout,
    UnknownBroker,
    WrongThread,
)
from hocket.frames import Frame
from hocket.local.broker import Broker
from hocket.local.broker_manager import BrokerManager
from hocket.local.queue_broker import Attempt, QueueBroker
from hocket.model import check_broker_name
from hocket.remote.callers import QueueCaller, QueueVisit, ThreadCaller, ThreadVisit
from hocket.remote.calling import Directory, OutgoingCall
from hocket.remote.connection import NamesLoop
from hocket.remote.dialling import Dials
from hocket.remote.incoming import Handshake, TakingPipe
from hocket.remote.node_link import NodeLink, parse_address
from hocket.remote.opening import Answering, wrong_kind
from hocket.remote.peer_frames import field
from hocket.remote.reach import AUTO, Reach

if TYPE_CHECKING:
    from typing import Self

    from hocket.local.broker_manager import Attempt as AnyAttempt, Meeting, ThreadBroker

log = logging.getLogger("hocket")

CLOSE_SECONDS = 2.0  # how long a broker that closes waits for its name to be free
RETRY_US = 100_000
BACKLOG = 1024


class Lease:
    """A name of this process in the cluster."""

    __slots__ = ("asked_at", "done", "error", "key", "kind", "lease", "name", "registered")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.lease = os.urandom(tickets.LEASE_BYTES)
        self.key = os.urandom(tickets.KEY_BYTES)
        self.registered = False
        self.done = threading.Event()  # the first answer has come
        self.error: HocketError | None = None


class NameManager(BrokerManager):
    """A registry whose names are known in the whole cluster. Made by clients: `client.names`."""

    def __init__(self, reach: Reach) -> None:
        super().__init__()
        self._reach = reach
        self._tls, self._fingerprint = _listening_tls(reach)
        if reach.listen not in (None, AUTO):
            parse_address(str(reach.listen))
        if reach.advertise:
            parse_address(reach.advertise)
        self._loop = NamesLoop()
        self._link = NodeLink(
            self._loop, reach, opened=self._opened, wanted=self._pipe_wanted, ended=self._refused
        )
        self._directory = Directory(self._link, self._loop)
        self._dials = Dials(self._loop)
        self._leases: dict[str, Lease] = {}
        self._listener: socket.socket | None = None
        self._cannot_accept = False
        self._rests = False  # the loop is not told of who dials, for a moment
        self._address = ""  # that is offered; empty: none
        self._answering: set[Answering] = set()
        self._connections: set[Any] = set()  # all that are open, to be ended with the manager
        self._error: HocketError | None = None  # why no node will ever have us
        self._closing = False
        self._inherited = False
        self._thread = threading.Thread(target=self._run, name="hocket names", daemon=True)
        self._loop.post(self._link.start)
        self._thread.start()
        forking.tell(self)

    # --- for everybody --------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where other processes reach this one directly; empty: through its node only, or nobody
        has asked yet."""
        return self._address

    def close(self) -> None:
        """Close all brokers of this manager, free their names, and let go. Again: no effect."""
        if self._inherited:
            return
        for broker in self.brokers():
            broker.close()  # type: ignore[attr-defined]
        with self.lock:
            if self._closing:
                return
            self._closing = True
        self._loop.post(self._end)
        if not self._loop.is_own_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closing else self._address or "no address"
        return f"<NameManager of cluster {self._link.cluster or '?'}, {state}>"

    def forked(self) -> None:
        self._inherited = self._closing = True
        self._link.forked()
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections:
            connection.forked()

    # --- for brokers: see `BrokerManager` -------------------------------------------------------

    def reserve(self, name: str, kind: str) -> None:
        check_broker_name(name)
        self._check_open()
        if self._loop.is_own_thread():
            raise WrongThread("a broker cannot be made on the thread of its manager")
        if self.find(name) is not None:
            return  # `register` says that it is taken
        lease = Lease(name, kind)
        with self.lock:
            if name in self._leases:
                return
            self._leases[name] = lease
        self._loop.post(lambda: self._register(lease))
        if not lease.done.wait(self._reach.timeout):
            self._drop(lease)
            raise Timeout(
                f"no node of the cluster has answered within {in_seconds(self._reach.timeout)} "
                f"whether the name {name!r} is free"
            )
        if lease.error is not None:
            self._drop(lease)
            raise lease.error

    def give_back(self, name: str) -> None:
        with self.lock:
            if name in self._brokers:  # another broker's, of the same name
                return
            lease = self._leases.get(name)
        if lease is not None:
            freed = self._drop(lease)
            if not self._loop.is_own_thread() and not self._closing:
                freed.wait(CLOSE_SECONDS)

    def connect_elsewhere(self, attempt: AnyAttempt, name: str) -> bool:
        if self._closing or self._inherited:
            return False
        assert isinstance(attempt, Attempt)
        self._call(QueueCaller(attempt), name)
        return True

    def meet_elsewhere(self, visitor: ThreadBroker, name: str, port: int) -> Meeting | None:
        if self._closing or self._inherited:
            return None
        assert isinstance(visitor, Broker)
        calls: list[OutgoingCall] = []
        caller = ThreadCaller(
            visitor, port, self, over=lambda: self._loop.post(lambda: _give_up(calls))
        )
        calls.append(self._call(caller, name))
        return caller.rendezvous

    def _call(self, caller: QueueCaller | ThreadCaller, name: str) -> OutgoingCall:
        call = OutgoingCall(
            self._loop,
            self._reach,
            self._link,
            self._directory,
            caller,
            name,
            self._dials,
            self._track,
        )
        if self._error is not None:
            error = self._error
            self._loop.post(lambda: caller.refused(error))
        else:
            self._loop.post(call.start)
        return call

    def _check_open(self) -> None:
        if self._inherited:
            raise forking.wrong_process()
        if self._closing:
            raise Closed("the client, and its names with it, is closed")
        if self._error is not None:
            raise self._error

    # --- the loop: registering ------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                self._loop.run()
            except Exception:
                log.exception("names: something failed that must not; going on")
            else:
                break
        self._loop.close()

    def _opened(self) -> None:
        """There is a connection to a node, the first or another one."""
        if self._listener is None and self._reach.listen is not None:
            self._listen()
        for lease in list(self._leases.values()):
            self._register(lease)

    def _refused(self, error: HocketError) -> None:
        """No node will have us: the token is void, say."""
        self._error = error
        for lease in list(self._leases.values()):
            self._registered(lease, error)

    def _register(self, lease: Lease) -> None:
        if self._leases.get(lease.name) is not lease:
            return
        if self._error is not None:
            self._registered(lease, self._error)
            return
        if not self._link.welcome:
            return  # `_opened` comes back to it
        self._link.ask(
            frames.RegisterName(
                0, lease.name, lease.kind, lease.lease, lease.key, self._address, self._fingerprint
            ),
            lambda answer: self._registered(lease, answer),
        )

    def _registered(self, lease: Lease, answer: Frame | HocketError) -> None:
        if isinstance(answer, NoConnection | ReplyLost):
            return  # `_opened` comes back to it
        if isinstance(answer, RootAway):
            self._loop.after(RETRY_US, lambda: self._register(lease))
            return
        if not isinstance(answer, HocketError):
            lease.registered, lease.error = True, None
        elif not lease.done.is_set():
            lease.error = answer
        else:
            log.error("the name %r is lost to this process: %s", lease.name, answer)
            with self.lock:
                broker = self._brokers.get(lease.name)
            if broker is not None:  # on a thread of its own: to close may wait for this one
                threading.Thread(target=broker.close, daemon=True).start()  # type: ignore[attr-defined]
        lease.done.set()

    def _drop(self, lease: Lease) -> threading.Event:
        """The name is ours no more; the event is set when the cluster knows."""
        freed = threading.Event()
        with self.lock:
            if self._leases.get(lease.name) is lease:
                del self._leases[lease.name]
        self._loop.post(lambda: self._release(lease, freed))
        return freed

    def _release(self, lease: Lease, freed: threading.Event) -> None:
        def answered(answer: Frame | HocketError) -> None:
            if isinstance(answer, RootAway) and not self._closing:
                # The node holds the name for us for as long as our connection to it lives.
                self._loop.after(RETRY_US, lambda: self._release(lease, freed))
            else:
                freed.set()

        self._link.ask(frames.ReleaseName(0, lease.name, lease.lease), answered)

    # --- the loop: listening --------------------------------------------------------------------

    def _listen(self) -> None:
        if self._reach.context is not None and self._tls is None:
            log.info(
                "names: without tls_cert and tls_key other processes come through the node: "
                "nothing goes in plain in a cluster with TLS"
            )
            return
        try:
            if self._reach.listen == AUTO:
                wanted = Address(self._link.local_host(), 0)
            else:
                wanted = parse_address(str(self._reach.listen))
            family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
            listener = socket.create_server(wanted, family=family, backlog=BACKLOG)
        except OSError as error:
            log.warning("names: cannot listen, so that others come through the node: %s", error)
            return
        listener.setblocking(False)
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self._address = self._advertised(host, port)
        self._loop.register(listener, READ, self._accept)

    def _advertised(self, host: str, port: int) -> str:
        if not self._reach.advertise:
            if host in ("0.0.0.0", "::"):
                host = self._link.local_host()
            return str(Address(host, port))
        named = parse_address(self._reach.advertise)
        given = ":" in self._reach.advertise.rpartition("]")[2]
        return str(Address(named.host, named.port if given and named.port else port))

    def _accept(self, _events: int) -> None:
        assert self._listener is not None
        for _ in range(BACKLOG):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                self._cannot_accept = False
                return
            except OSError as error:  # out of descriptors, say: open connections go on
                if not self._cannot_accept:  # once, and not with each attempt
                    log.warning("names: cannot accept a connection: %s", error)
                self._cannot_accept = True
                self._rests = True
                self._loop.unregister(self._listener)
                self._loop.after(RETRY_US, self._listen_again)
                return
            sock.setblocking(False)
            send_at_once(sock)
            keep_alive(sock)
            if self._tls is None:
                self._answer(PlainTransport(sock), "direct")
            else:
                Handshake(self._loop, TlsTransport(sock, self._tls), self._shaken).start()

    def _listen_again(self) -> None:
        if self._listener is not None and not self._closing:
            self._rests = False
            self._loop.register(self._listener, READ, self._accept)

    def _shaken(self, transport: Transport) -> None:
        self._answer(transport, "direct")

    def _answer(self, transport: Transport, way: str, begun: bytes = b"") -> None:
        if self._closing:
            transport.close()
            return
        answering = Answering(self._loop, transport, self, way, begun)
        self._track(answering.connection)
        answering.start()

    def _track(self, connection: Any) -> None:
        self._connections.add(connection)
        connection.on_closed = self._connections.discard

    # --- the loop: what other processes want (`opening.Owned`) ----------------------------------

    def key_of(self, name: str) -> bytes | None:
        lease = self._leases.get(name)
        return None if lease is None else lease.key

    def take_call(self, answering: Answering, fields: dict[str, Any]) -> None:
        kind, caller = field(fields, "kind", str), field(fields, "from", str)
        with self.lock:
            broker = self._brokers.get(answering.name)
            if broker is None:
                raise UnknownBroker(f"no broker is called {answering.name!r}")
            known = getattr(broker, "kind", "")
            if known != kind:
                raise wrong_kind(answering.name, known, caller, kind)
            if isinstance(broker, QueueBroker):
                broker.arrive(QueueVisit(answering, fields))
                return
        assert isinstance(broker, Broker)
        ThreadVisit(answering, fields, broker, self).start()

    def _pipe_wanted(self, wanted: frames.PipeWanted) -> None:
        address = self._link.address
        assert address is not None
        TakingPipe(self._loop, self._reach, address, wanted.pipe, self._piped).start()

    def _piped(self, transport: Transport, begun: bytes) -> None:
        self._answer(transport, "node", begun)

    # --- the loop: the end ----------------------------------------------------------------------

    def _end(self) -> None:
        """Let the last words leave, for a short while."""
        if self._listener is not None:
            if not self._rests:
                self._loop.unregister(self._listener)
            self._listener.close()
        self._wait_for_ends(monotonic() + CLOSE_SECONDS)

    def _wait_for_ends(self, until: float) -> None:
        if self._connections and monotonic() < until:
            self._loop.after(10_000, lambda: self._wait_for_ends(until))
            return
        self._dials.close()
        for connection in list(self._connections):
            connection.fail("the client was closed")
        self._link.close()
        self._loop.stop()


def _give_up(calls: list[OutgoingCall]) -> None:
    for call in calls:
        call.give_up()


def _listening_tls(reach: Reach) -> tuple[ssl.SSLContext | None, bytes]:
    """How this process speaks TLS where it listens, and the fingerprint of what it shows."""
    if reach.context is None or reach.tls_cert is None or reach.tls_key is None:
        return None, b""
    context = server_context(reach.tls_cert, reach.tls_key)
    with open(reach.tls_cert, encoding="ascii", errors="replace") as file:
        text = file.read()
    begin = text.find("-----BEGIN CERTIFICATE-----")
    end = text.find("-----END CERTIFICATE-----")
    if not 0 <= begin < end:
        raise BadName(f"the TLS certificate '{reach.tls_cert}' has no certificate in it")
    first = text[begin : end + len("-----END CERTIFICATE-----")]
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()
