"""Who is at the other end of a connection within this machine: which of its users.

Linux tells in /proc/net/tcp, for every socket, the user whose process has made it. Only a socket
that is connected counts: one that its process has closed is said to be root's, and what was sent on
it can still be read.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from sys import byteorder

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
CONNECTED = "01"
ROOT = 0

_End = tuple[IPv4Address | IPv6Address, int]


def is_of_another_user(descriptor: int) -> bool:
    """Whether a process of another user than ours, and not of root, is at the other end; or nobody
    is there any more.

    The connection is one of loopback. False where the system does not tell.
    """
    try:
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            here, there = _end(*sock.getsockname()[:2]), _end(*sock.getpeername()[:2])
    except OSError:
        return True  # it has hung up
    tables = [table for table in map(_read, TABLES) if table is not None]
    if not tables:
        return False
    owners = {owner for table in tables for owner in _owners(table, there, here)}
    return not owners or not owners <= {os.geteuid(), ROOT}


def _read(path: str) -> list[str] | None:
    try:
        with open(path, encoding="ascii") as table:
            return table.readlines()[1:]
    except OSError:
        return None


def _owners(table: list[str], local: _End, remote: _End) -> Iterator[int]:
    """The user of the connected socket with these ends, if it is in the table."""
    port = f":{local[1]:04X}"
    for line in table:
        _number, local_text, remote_text, state, _queues, _timer, _lost, owner, *_ = line.split()
        if state != CONNECTED or not local_text.endswith(port):
            continue  # as most are
        if (_parsed(local_text), _parsed(remote_text)) == (local, remote):
            yield int(owner)


def _parsed(text: str) -> _End:
    """An end as the table has it: words of 32 bits in the machine's own order, then the port."""
    host, _colon, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = b"".join(word.to_bytes(4, byteorder) for word in words)
    return _end(str(ip_address(packed)), int(port, 16))


def _end(host: str, port: int) -> _End:
    address = ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address, port
