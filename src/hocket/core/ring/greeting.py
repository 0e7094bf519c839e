"""How two nodes meet: what the one that dials says, and on which grounds the other one refuses.

Rule 1: the two are of one cluster, or the one that dials has none yet and only asks about ours.
Rule 2: a node's position is one of the candidates of its store id, so nobody chooses its place.
Rule 3: one store id is one process. The first that is there stays.
Rule 4: beyond loopback both show a certificate that is marked as a node's and names the store id.
        Without TLS both are processes of one user of this machine: a node is believed all that it
        says, also which client has asked it for something.
Rule 5: who joins, or starts, has a name that no other living node has. Nodes that serve already are
        not parted for the sake of a name.
Rule 6: who joins, or starts, has the same plug-ins that may change records: else what is published
        would depend on who leads. Unless whoever started one of the two says that they may differ.

Everything here is decided from what the two have said; who carries the bytes is in `node.links`.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from hocket.core.ring.circle import is_candidate
from hocket.node_frames import NODE_PROTOCOL_VERSION, HelloRefused, NodeHello


@dataclass(frozen=True, slots=True)
class Incoming:
    """Who is there already, with a link to us that is alive."""

    address: str
    boot: int


@dataclass(frozen=True, slots=True)
class Namesake:
    """Another node that is alive, and has the name that somebody comes with."""

    node: str
    address: str


def refusal(
    hello: NodeHello,
    *,
    cluster: str,
    node: str,
    address: str,
    boot: int,
    known: Incoming | None,
    has_tls: bool,
    from_address: str,
    certificate_fault: str,
    namesake: Namesake | None,
    is_of_another_user: bool = False,
    changers: str = "",
    changers_may_differ: bool = False,
) -> HelloRefused | None:
    """Why this node is not let in; None: it is.

    `known` is the process with the same store id that has a link to us. `from_address` is where the
    connection comes from. `certificate_fault` says what is wrong with the certificate, if there is
    TLS; it is empty if nothing is. `is_of_another_user` tells who owns the process that has
    connected, if there is no TLS.
    """
    who = f"node {hello.name or hello.node} at {hello.address}"
    if not hello.version_min <= NODE_PROTOCOL_VERSION <= hello.version_max:
        return HelloRefused(
            "wrongVersion",
            f"{who} runs {hello.software} and speaks versions {hello.version_min} to "
            f"{hello.version_max} of the protocol between nodes; this node speaks version "
            f"{NODE_PROTOCOL_VERSION}: let both run the same version of Hocket",
        )
    if hello.node == node:
        if hello.boot == boot:
            return HelloRefused(
                "ownNode", f"{hello.address} is this very node: join by way of another one"
            )
        return HelloRefused(
            "twice",
            f"{who} has the store id of the node at {address}: was its data directory copied? "
            "Give each node a data directory of its own",
        )
    if not has_tls and not is_loopback(from_address):
        return HelloRefused(
            "plain",
            f"{who} comes from {from_address} without TLS; beyond loopback nodes talk by TLS only: "
            "give every node --tls-cert, --tls-key and --tls-ca (see: hocket certs node --help)",
        )
    if not has_tls and is_of_another_user:
        return HelloRefused(
            "plain",
            f"{who} does not run as the user of the node at {address}, and without TLS anybody on "
            "this machine could say to be a node: start both as one user, or give every node "
            "--tls-cert, --tls-key and --tls-ca (see: hocket certs node --help)",
        )
    if certificate_fault:
        return HelloRefused("wrongNode", f"{who}: {certificate_fault}")
    if hello.cluster and hello.cluster != cluster:
        return HelloRefused(
            "wrongCluster",
            f"{who} belongs to cluster {hello.cluster}, and this node to {cluster}; a data "
            "directory stays in its cluster: start it with another --join, or with a new --data",
        )
    if hello.cluster and not is_candidate(hello.node.encode(), hello.position):
        return HelloRefused(
            "wrongPosition",
            f"{who} claims position {hello.position}, which is none of the candidates of its store "
            f"id {hello.node}",
        )
    if known is not None and known.boot != hello.boot and known.address != hello.address:
        return HelloRefused(
            "twice",
            f"another process with the store id {hello.node} is alive at {known.address}: was its "
            "data directory copied? Give each node a data directory of its own",
        )
    is_new = hello.starting or not hello.cluster
    if namesake is not None and is_new:
        return HelloRefused(
            "nameTaken",
            f"the node {namesake.node} at {namesake.address} has the name {hello.name!r}, too, and "
            "people could not tell the two apart: start this one with another --name, or, if it is "
            "to take the place of that one, stop that one first",
        )
    may_differ = changers_may_differ or hello.changers_may_differ
    is_said = bool(changers and hello.changers)  # older versions do not say it
    if is_said and not may_differ and changers != hello.changers and is_new:
        return HelloRefused(
            "otherPlugins",
            f"{who} runs other plug-ins on what is published than the node at {address}: there "
            f"they are {hello.changers}; here {changers}. Give all nodes the same, in the same "
            "order and with the same settings; to change them node by node, start each with "
            "--plugins-may-differ",
        )
    return None


def is_loopback(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
