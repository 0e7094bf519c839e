"""How a node that belongs to no cluster yet asks one about itself. This waits: nothing runs yet."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from time import monotonic, sleep

from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Certificate
from hocket.addresses import parse_port, split_address
from hocket.core.ring.greeting import is_loopback
from hocket.errors import HocketError, NoConnection, ProtocolError
from hocket.node.identity import audit
from hocket.node.links import faults
from hocket.node.messages import CODEC
from hocket.node_frames import HelloAccepted, HelloRefused, NodeHello
from hocket.wire.node_connection import NodeConnection

log = logging.getLogger("hocket.links")
TRY_SECONDS = 3.0
PAUSE_SECONDS = 0.5


# What another attempt does not change. A broker that is busy or goes down refuses, too.
FOR_GOOD = frozenset(
    (
        "wrongVersion", "wrongCluster", "wrongNode", "wrongPosition", "plain", "twice", "ownNode",
        "nameTaken", "otherPlugins",
    )
)  # fmt: skip


class Refused(HocketError):
    """The cluster does not take this node."""

    code = "refused"

    def __init__(self, message: str, reason: str = "failed") -> None:
        super().__init__(message)
        self.reason = reason  # one of the codes of HelloRefused


class NoNode(ProtocolError):
    """What answers there is something else."""


def ask(
    seeds: Sequence[str],
    hello: NodeHello,
    *,
    tls: ssl.SSLContext | None,
    certificate_fault: Callable[[Certificate, str], str],
    seconds: float,
) -> HelloAccepted:
    """What the first of these nodes that answers says of its cluster.

    Raises Refused if one refuses, and NoConnection if none answers in time, or if none of them is a
    node at all.
    """
    deadline = monotonic() + seconds
    failures: dict[str, str] = {}
    said = False
    while True:
        are_nodes = False
        for address in seeds:
            try:
                return ask_one(address, hello, tls, certificate_fault)
            except Refused as error:
                if error.reason in FOR_GOOD:
                    raise
                are_nodes = True
                failures[address] = str(error)
            except (OSError, ProtocolError) as error:
                are_nodes = are_nodes or not isinstance(error, NoNode)
                failures[address] = reason_of(error) if isinstance(error, OSError) else str(error)
        if monotonic() >= deadline or not are_nodes:
            tried = "; ".join(f"{address}: {why}" for address, why in failures.items())
            raise NoConnection(
                f"no node of a cluster answers ({tried}). Is one running there? To found a new "
                "cluster, leave --join out"
            )
        if not said:
            said = True
            log.info("waiting for a node of the cluster: %s", ", ".join(seeds))
        sleep(PAUSE_SECONDS)


def ask_one(
    address: str,
    hello: NodeHello,
    tls: ssl.SSLContext | None,
    certificate_fault: Callable[[Certificate, str], str],
) -> HelloAccepted:
    """Once. Raises OSError if nobody is there, Refused, and ProtocolError."""
    try:
        return _ask_one(address, hello, tls, certificate_fault)
    except ssl.SSLEOFError:
        raise  # it went away, or is no node
    except ssl.SSLError as error:
        fault = faults.of_tls(error)
        if faults.is_ours(error):
            audit.node_refused(address, fault)
        raise Refused(f"the node at {address}: {fault}", "wrongNode") from error


def _ask_one(
    address: str,
    hello: NodeHello,
    tls: ssl.SSLContext | None,
    certificate_fault: Callable[[Certificate, str], str],
) -> HelloAccepted:
    host, port = split_address(address)
    if tls is None and not is_loopback(host) and not _is_here(host):
        audit.node_refused(address, faults.PLAIN)
        raise Refused(f"the node at {address}: {faults.PLAIN}", "plain")
    with socket.create_connection((host, parse_port(port or "", least=1)), TRY_SECONDS) as plain:
        plain.settimeout(TRY_SECONDS)
        sock = plain if tls is None else tls.wrap_socket(plain)
        with sock:
            wire = NodeConnection("dialler", CODEC)
            sock.sendall(b"".join(wire.send(hello)))
            answer = _answer(sock, wire)
            if isinstance(answer, HelloRefused):
                raise Refused(f"the node at {address} refuses this one: {answer.text}", answer.code)
            if isinstance(sock, ssl.SSLSocket):
                fault = certificate_fault(sock.getpeercert(), answer.node)
                if fault:
                    audit.node_refused(address, fault)
                    raise Refused(f"the node at {address} cannot be trusted: {fault}", "wrongNode")
            return answer


def _answer(sock: socket.socket, wire: NodeConnection) -> HelloAccepted | HelloRefused:
    deadline = monotonic() + TRY_SECONDS
    while monotonic() < deadline:
        data = sock.recv(16 << 10)
        if not data:
            raise ProtocolError(
                "it hangs up without an answer: is that a node of Hocket, and do both use TLS, or "
                "neither?"
            )
        try:
            envelopes = wire.received(data)
        except ProtocolError as error:
            raise NoNode(f"what answers there is not a node of Hocket ({error})") from error
        for envelope in envelopes:
            answer = envelope.message
            if isinstance(answer, HelloAccepted | HelloRefused):
                return answer
        if wire.error is not None:
            raise NoNode(f"what answers there is not a node of Hocket ({wire.error})")
    raise ProtocolError("its answer is not complete in time")


def _is_here(host: str) -> bool:
    """Whether a name leads to loopback only."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True  # the attempt to connect says what is wrong
    return all(is_loopback(str(each[4][0])) for each in found)
