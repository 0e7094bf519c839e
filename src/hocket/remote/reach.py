"""Where the nodes of a cluster are for a process, as whom it comes, and where it listens itself."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike

from hocket.addresses import Address

Path = str | PathLike[str]

AUTO = "auto"  # at the address from which this process reaches its node, at any free port


@dataclass(frozen=True, slots=True)
class Reach:
    addresses: tuple[Address, ...]
    context: ssl.SSLContext | None = None  # to speak TLS with nodes
    token: str = ""
    tls_cert: Path | None = None  # shown to nodes, and by this process where it listens
    tls_key: Path | None = None
    name: str = ""  # of the client, for the logs of nodes
    listen: str | None = AUTO  # host:port; None: other processes come through the node
    advertise: str = ""  # what others are told instead of that
    timeout: float = 10.0
