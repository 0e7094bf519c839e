"""How a broker becomes a node of a cluster when its process starts: found one, join one, return.

Everything here happens before the node runs, and may wait.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.transport import Certificate
from hocket.addresses import Address, parse_port, split_address
from hocket.errors import BadName, HocketError
from hocket.log.directory import store_id_of
from hocket.node.cluster import membership
from hocket.node.cluster.member import Place, greeting_of
from hocket.node.cluster.membership import Membership
from hocket.node.links import asking
from hocket.node_frames import NO_CHANGERS

JOIN_SECONDS = 30.0
_EVERYWHERE = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the one who starts the broker has said about the cluster."""

    join: tuple[str, ...] = ()
    successors: int | None = None
    replication: int | None = None
    name: str = ""
    domain: str = ""
    capacity: int = 1
    advertise: str = ""
    tls: Callable[[], ssl.SSLContext | None] = field(default=lambda: None)
    certificate_fault: Callable[[Certificate, str], str] = field(
        default=lambda _certificate, _node: ""
    )
    join_seconds: float = JOIN_SECONDS
    changers: str = NO_CHANGERS  # the plug-ins that may change records
    changers_may_differ: bool = False


def place_for(path: Path, wish: Wish, bound: Address) -> Place:
    """The place of the node whose data is at `path`, and which is bound to this address.

    A node that joins for the first time asks the cluster here. Nothing is remembered before the
    directory has been looked into: see `settle`.
    """
    address = advertised(wish.advertise, bound)
    seeds = tuple(each for each in wish.join if each != address and not leads_to(each, bound))
    disk = DirectoryDisk(path)
    node = store_id_of(disk, str(path))
    known = membership.remembered(disk, str(path), node)
    if known is not None:
        membership.refuse_contradiction(known, wish.successors)
        place = replace(_place(known, wish, address, seeds), returns=True)
        _refuse_another_cluster(place, wish, str(path))
        return place
    if not wish.join:
        founded = membership.founded(node, wish.successors, wish.replication)
        return _place(founded, wish, address, ())
    if not seeds:
        raise BadName(
            f"--join names {address}, which is this node itself: name another node of the cluster, "
            "or leave --join out to found a new one"
        )
    stranger = Membership(node, "", 0, 0)
    hello = greeting_of(_place(stranger, wish, address, ()), int.from_bytes(os.urandom(7), "big"))
    answer = asking.ask(
        seeds, hello, tls=wish.tls(), certificate_fault=wish.certificate_fault,
        seconds=wish.join_seconds,
    )  # fmt: skip
    joined = membership.joined(node, answer, seeds)
    membership.refuse_contradiction(joined, wish.successors)
    if answer.replication:  # else the node that has answered is of an older version
        membership.refuse_other_replication(
            wish.replication, answer.replication, answer.founded_replication
        )
    return _place(joined, wish, address, seeds)


def _refuse_another_cluster(place: Place, wish: Wish, path: str) -> None:
    """A node that returns asks those whom --join names, once each. Silence does it no harm."""
    boot = int.from_bytes(os.urandom(7), "big")
    hello = replace(greeting_of(place, boot), cluster="")  # it only wants to know
    for seed in place.seeds:
        try:
            answer = asking.ask_one(seed, hello, wish.tls(), wish.certificate_fault)
        except (OSError, HocketError):
            continue  # the links say what is wrong, and try again
        if answer.cluster != place.membership.cluster:
            raise BadName(
                f"the data directory '{path}' belongs to cluster {place.membership.cluster}, and "
                f"the node at {seed} to cluster {answer.cluster}: a data directory stays in its "
                "cluster. Join with a new one (--data DIR), or leave --join out to go on with this "
                "one"
            )


def _place(member: Membership, wish: Wish, address: str, seeds: Sequence[str]) -> Place:
    return Place(
        member, address, wish.name, wish.domain, wish.capacity, tuple(seeds), tls=wish.tls,
        certificate_fault=wish.certificate_fault, replication=wish.replication,
        changers=wish.changers, changers_may_differ=wish.changers_may_differ,
    )  # fmt: skip


def settle(path: Path, place: Place, metadata_index: int) -> None:
    """Remember the place, now that the directory is open; `metadata_index` is what it has had.

    Raises BadName for a directory with a life of its own that is to join another cluster.
    """
    if place.returns:
        return
    if metadata_index and not place.membership.is_founder:
        raise BadName(
            f"the data directory '{path}' has been in use: what it has would be lost in another "
            "cluster. Join with a new one (--data DIR), or leave --join out to go on with this one"
        )
    membership.remember(DirectoryDisk(path), place.membership)


def advertised(wanted: str, bound: Address) -> str:
    """The address that other nodes and clients are told."""
    if wanted:
        return wanted
    if is_everywhere(bound.host):
        return str(Address(socket.gethostname(), bound.port))
    return str(bound)


def leads_to(address: str, bound: Address) -> bool:
    """Whether who dials this address reaches the one that is bound to `bound`, on this machine."""
    host, port = split_address(address)
    if parse_port(port or "", least=1) != bound.port:
        return False
    try:
        found = socket.getaddrinfo(host, bound.port, type=socket.SOCK_STREAM)
    except OSError:
        return False  # the attempt to join says what is wrong
    if bound.host in _EVERYWHERE:
        return any(_is_of_this_machine(family, str(each[0])) for family, *_, each in found)
    return any(each[0] == bound.host for *_, each in found)


def _is_of_this_machine(family: int, host: str) -> bool:
    """The system lets one bind to the addresses of this machine only."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def is_everywhere(host: str) -> bool:
    """Whether this stands for all addresses of the machine, so that nobody can be told it."""
    return host in _EVERYWHERE
