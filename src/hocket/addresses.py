"""HOST:PORT as people write it: where a broker listens, and where a client looks for it."""

from __future__ import annotations

import re
from typing import NamedTuple

from hocket.errors import BadName, OutOfRange

DEFAULT_PORT = 4150
PORT_MAX = (1 << 16) - 1

_BRACKETED = re.compile(r"\[([0-9A-Za-z:.%_-]+)\](?::(.*))?\Z")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def split_address(text: str) -> tuple[str, str | None]:
    """The host, and what stands behind its colon; None: there is no colon.

    Raises BadName for an IPv6 address that is not in brackets, or in broken ones.
    """
    if text.startswith("["):
        match = _BRACKETED.match(text)
        if not match:
            raise BadName(f"an IPv6 address looks like [::1] or [::1]:{DEFAULT_PORT}, not {text!r}")
        return match[1], match[2]
    host, colon, port = text.partition(":")
    if ":" in port:
        raise BadName(f"put an IPv6 address in brackets, as in [{text}]:{DEFAULT_PORT}")
    return host, port if colon else None


def parse_port(text: str, *, least: int) -> int:
    """Raises OutOfRange unless `text` is a port number from `least` on."""
    if not text.isdecimal() or not text.isascii() or not least <= int(text) <= PORT_MAX:
        raise OutOfRange(f"a port is a number from {least} to {PORT_MAX}, not {text!r}")
    return int(text)
