"""Where a broker may listen.

Anybody who reaches an open port may read and delete everything. So beyond loopback a port needs TLS
(else tokens and data could be read on the way) and users (else anybody would be let in).
"""

from __future__ import annotations

import ipaddress
import socket

import click

from hocket.addresses import Address, parse_port, split_address
from hocket.errors import BadName, OutOfRange

MAKE_CERTIFICATES = (
    "give it TLS: make certificates with `hocket certs init`, then add --tls-cert and --tls-key"
)
MAKE_AN_ADMIN = (
    "give it a first user: add --admin-token-file FILE, or start it with --listen 127.0.0.1:PORT "
    "and run `hocket user create NAME --role admin`"
)


def parse_address(text: str | Address) -> Address:
    if isinstance(text, Address):
        return text
    try:
        host, port = split_address(text)
    except BadName:
        host, port = "", None
    if not host or port is None:
        raise OutOfRange(f"an address is HOST:PORT (IPv6 in brackets, [::1]:4150), not {text!r}")
    return Address(host, parse_port(port, least=0))


def is_loopback(listen: Address) -> bool:
    """Whether only this machine can reach the address, for every meaning of the host's name."""
    try:
        found = socket.getaddrinfo(  # with the flag of a bind: without it '*' would be loopback
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise click.ClickException(f"cannot listen on {listen}: {error.strerror}") from error
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)


def refuse_if_open(listen: Address, *, tls: bool, users: bool) -> None:
    """Raise ClickException if others could reach this port and it lacks TLS or users."""
    if (tls and users) or is_loopback(listen):
        return
    missing = [
        *([] if tls else [MAKE_CERTIFICATES]),
        *([] if users else [MAKE_AN_ADMIN]),
    ]
    raise click.ClickException(
        f"refused to listen on {listen}, where others could reach it: {'; and '.join(missing)}"
    )
