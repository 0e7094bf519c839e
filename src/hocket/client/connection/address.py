"""A broker's URL: `hocket://host:port`, or several hosts separated by commas; hockets for TLS.

The scheme may be left out, and the port, which is 4150 then.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from hocket.addresses import DEFAULT_PORT, Address, parse_port, split_address
from hocket.errors import BadName, OutOfRange, WrongType

_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names: the addresses to try, in this order, and whether to speak TLS there."""

    addresses: tuple[Address, ...]
    tls: bool

    def __str__(self) -> str:
        scheme = "hockets" if self.tls else "hocket"
        return f"{scheme}://{','.join(map(str, self.addresses))}"


def reason_of(error: OSError) -> str:
    """Why there is no connection, in the system's words: asyncio puts it in words of its own."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # a name that cannot be looked up has no such number


def parse_url(url: object, *, tls: bool = False) -> Target:
    """What the URL names; `tls` says whether one without a scheme means TLS.

    Raises BadName or OutOfRange, with the URL in it.
    """
    if not isinstance(url, str):
        raise WrongType(f"a broker's URL must be a str, not {type(url).__name__}")
    scheme, separator, rest = url.strip().partition("://")
    if separator:
        scheme = scheme.lower()
    else:
        scheme, rest = "hockets" if tls else "hocket", scheme
    if "@" in rest:  # what stands before the @ may be secret, so it is not repeated
        raise BadName(
            "a broker's URL names hosts only, and there is an @ in it: give the token apart from it"
        )
    if scheme not in ("hocket", "hockets") or not rest:
        raise BadName(f"a broker's URL looks like hocket://host:port (or hockets://), not {url!r}")
    rest = rest.removesuffix("/")
    try:
        addresses = tuple(_parse_address(each.strip()) for each in rest.split(","))
    except (BadName, OutOfRange) as error:
        raise type(error)(f"{error}, in {url}") from None
    return Target(addresses, scheme == "hockets")


def _parse_address(text: str) -> Address:
    host, port = split_address(text)
    if ":" not in host and not _HOST.match(host):
        raise BadName(f"{host!r} is not the name of a host")
    return Address(host, DEFAULT_PORT if port is None else parse_port(port, least=1))
