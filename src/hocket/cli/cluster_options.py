"""The options of `hocket serve` that make a broker a node of a cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hocket.addresses import DEFAULT_PORT, Address, parse_port, split_address
from hocket.cli.parameters import Checked
from hocket.errors import BadName
from hocket.model import REPLICAS_MAX, check_name

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from hocket.node.cluster.starting import Wish

F = TypeVar("F", bound=Callable[..., Any])
SUCCESSORS_DEFAULT = 8
CAPACITY_MAX = 1_000_000  # a weight beyond that is a mistake
POPULAR_MAX = 1_000_000
CHILDREN_MAX = 1_000
_HOST = re.compile(r"[0-9A-Za-z:.%_-]+\Z")
_EVERYWHERE = ("0.0.0.0", "::")
HOST_BYTES_MAX = 253  # of a name in DNS


def _address(text: str) -> str:
    """HOST:PORT, in the one way of writing it; without a port, the usual one."""
    if "/" in text:
        raise BadName(f"an address is HOST:PORT, without a scheme, not {text!r}")
    host, port = split_address(text.strip())
    if not _HOST.match(host):
        raise BadName(f"an address is HOST:PORT, not {text!r}")
    try:
        is_name = len(host.encode("idna")) <= HOST_BYTES_MAX
    except UnicodeError:  # a label between two dots is empty, or too long
        is_name = False
    if not is_name:
        raise BadName(f"no host can have the name {host!r}")
    return str(Address(host, DEFAULT_PORT if port is None else parse_port(port, least=1)))


def _advertised(text: str) -> str:
    address = _address(text)
    host, _port = split_address(address)
    if host in _EVERYWHERE:
        raise BadName(f"nobody can be told {text!r}: name an address at which others reach it")
    return address


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_address(each) for each in text.split(",") if each.strip()))


def _label(text: str) -> str:
    return check_name(text, "the domain") if text else ""


def node_name(text: str) -> str:
    return check_name(text, "a node's name") if text else ""


def cluster_options(command: F) -> F:
    for option in reversed((
        click.option(
            "--join", metavar="HOST:PORT[,...]", type=Checked("addresses", _addresses), default="",
            help="Join the cluster that one of these nodes belongs to. Needed once: a node that "
            "returns with its data knows its cluster.",
        ),
        click.option(
            "--successors", metavar="N", type=click.IntRange(1, 64),
            help="How many nodes behind itself each node of the ring knows; fixed when a cluster "
            f"is founded. [default: {SUCCESSORS_DEFAULT}]",
        ),
        click.option(
            "--replication", metavar="N", type=click.IntRange(1, REPLICAS_MAX),
            help="On how many nodes a topic is kept that does not say so itself; said when a "
            "cluster is founded, and changed by: hocket cluster set. [default: 1]",
        ),
        click.option(
            "--domain", metavar="LABEL", type=Checked("label", _label), default="",
            help="What fails together with this node: a rack, a zone.",
        ),
        click.option(
            "--capacity", metavar="N", type=click.IntRange(0, CAPACITY_MAX), default=1,
            show_default=True,
            help="How many partitions this node takes, relative to other nodes. 0: none, unless no "
            "other node can: it is a way in only.",
        ),
        click.option(
            "--popular", metavar="N", type=click.IntRange(1, POPULAR_MAX),
            help="More consumers of one partition than this are spread over all nodes, which hand "
            "its messages on to each other; at half as many they come back to its leader. "
            "[default: 32]",
        ),
        click.option(
            "--relay-children", metavar="N", type=click.IntRange(1, CHILDREN_MAX),
            help="To how many nodes this one hands the messages of a popular partition on. "
            "[default: 16]",
        ),
        click.option(
            "--advertise", metavar="HOST:PORT", type=Checked("address", _advertised),
            help="Where other nodes and clients reach this one. [default: where it listens]",
        ),
    )):  # fmt: skip
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    join: tuple[str, ...]
    successors: int | None
    replication: int | None
    domain: str
    capacity: int
    advertise: str | None

    def wish(
        self, name: str, certificate: Path | None, key: Path | None, authority: Path | None
    ) -> Wish:
        from hocket.node.cluster.starting import Wish

        tls: Callable[[], ssl.SSLContext | None] = lambda: None  # noqa: E731
        if certificate is not None and key is not None:
            if authority is None and self.join:
                raise click.UsageError(
                    "--join with TLS needs --tls-ca: the authority that has signed the "
                    "certificates of all nodes (see: hocket certs node --help)"
                )
            if authority is not None:
                tls = Dialling(certificate, key, authority)
        return Wish(
            join=self.join, successors=self.successors, replication=self.replication, name=name,
            domain=self.domain, capacity=self.capacity, advertise=self.advertise or "", tls=tls,
            certificate_fault=certificate_fault,
        )  # fmt: skip


class Dialling:
    """The TLS context that links are dialled with; it is read again after `renew`."""

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        from hocket.adapters.tls import dialling_context

        self._load = cache(lambda: dialling_context(certificate, key, authority))

    def __call__(self) -> ssl.SSLContext:
        return self._load()

    def renew(self) -> None:
        self._load.cache_clear()


def certificate_fault(certificate: Mapping[str, Any] | None, node: str) -> str:
    from hocket.adapters.node_certificate import check_node_certificate

    return check_node_certificate(certificate, node, time.time()) or ""
