"""Where a broker is: `hocket://host:port`, several hosts separated by commas; hockets for TLS."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

from hocket.errors import BadName, OutOfRange, WrongType

DEFAULT_PORT = 4150
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.%a-z]+)\](?::(.*))?\Z")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names: the places to try, in this order, and whether they speak TLS."""

    addresses: tuple[Address, ...]
    tls: bool

    def __str__(self) -> str:
        scheme = "hockets" if self.tls else "hocket"
        return f"{scheme}://{','.join(map(str, self.addresses))}"


def reason_of(error: OSError) -> str:
    """Why there is no connection, in the system's words; asyncio has others of its own."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # of a name that cannot be looked up, or no error number


def parse_url(url: object) -> Target:
    if not isinstance(url, str):
        raise WrongType(f"a broker's URL must be a str, not {type(url).__name__}")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("hocket", "hockets"):
        raise BadName(f"a broker's URL looks like hocket://host:port (or hockets://), not {url!r}")
    rest = rest.removesuffix("/")
    addresses = tuple(_parse_address(each.strip(), url) for each in rest.split(","))
    return Target(addresses, scheme == "hockets")


def _parse_address(text: str, url: str) -> Address:
    if text.startswith("["):
        match = _BRACKETED.match(text)
        if not match:
            raise BadName(f"an IPv6 address looks like [::1] or [::1]:4150, not {text!r}, in {url}")
        host, port = match[1], match[2]
    else:
        host, separator, port = text.partition(":")
        if ":" in port:
            raise BadName(f"put an IPv6 address in brackets, as in [{text}]:{DEFAULT_PORT}: {url}")
        if not _HOST.match(host):
            raise BadName(f"{host!r} is not the name of a host, in {url}")
        port = port if separator else None
    if port is None:
        return Address(host, DEFAULT_PORT)
    if not port.isdecimal() or not port.isascii() or not 0 < int(port) < 1 << 16:
        raise OutOfRange(f"a port is a number from 1 to 65535, not {port!r}, in {url}")
    return Address(host, int(port))
