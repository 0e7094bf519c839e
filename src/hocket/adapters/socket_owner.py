"""Who is at the other end of a connection within this machine: which of its users.

Linux tells the user whose process has made a socket, by the socket's two ends: sock_diag(7), by
netlink. That is one question and one answer, however many connections the machine has. Where it is
not to be had, /proc/net/tcp tells the same, in tens of milliseconds on a busy machine. Only a
socket that is connected counts: one that its process has closed is said to be root's, and what was
sent on it can still be read.
"""

from __future__ import annotations

import os
import socket
import struct
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from sys import byteorder

ROOT = 0
CONNECTED = 1  # TCP_ESTABLISHED
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

AF_NETLINK: int | None = getattr(socket, "AF_NETLINK", None)  # None: this is no Linux

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
SOCK_DIAG = 4  # the protocol of netlink
_BY_FAMILY, _REQUEST = 20, 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, number, sender
_QUESTION = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extras, states
_ENDS = struct.Struct("!HH16s16s12s")  # inet_diag_sockid: ports, addresses, interface and cookie
_ANSWER = struct.Struct("=BB2x48s12xI")  # inet_diag_msg: family, state, ends, ..., user
_ANY = bytes(4) + b"\xff" * 8  # whichever interface and cookie

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
    try:
        owner = asked_for(there, here) if netlink_tells() else read_for(there, here)
    except OSError:
        return False
    return owner not in (os.geteuid(), ROOT)


@cache
def netlink_tells() -> bool:
    """Whether the system answers questions for sockets; it says of one that is there that it is."""
    if AF_NETLINK is None:
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as one,
        ):
            return asked_for(_end(*one.getsockname()), _end(*one.getpeername())) == os.geteuid()
    except OSError:
        return False


def asked_for(local: _End, remote: _End) -> int | None:
    """The user of the connected socket with these ends; None: there is none. By netlink."""
    assert AF_NETLINK is not None  # see netlink_tells
    family = socket.AF_INET if local[0].version == 4 else socket.AF_INET6
    addresses = [end[0].packed.ljust(16, b"\0") for end in (local, remote)]
    body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0xFFFF_FFFF)
    body += _ENDS.pack(local[1], remote[1], *addresses, _ANY)
    with socket.socket(AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as netlink:
        netlink.setblocking(False)  # the answer is there when `send` returns
        netlink.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        answer = netlink.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return None  # it is an error: there is no such socket
    _family, state, _ends, owner = _ANSWER.unpack_from(answer, _HEADER.size)
    return int(owner) if state == CONNECTED else None


def read_for(local: _End, remote: _End) -> int | None:
    """As `asked_for`, by the tables of all sockets. Raises OSError if there are none."""
    port = f":{local[1]:04X}"
    lines: list[str] = []
    for path in TABLES if os.path.exists(TABLES[1]) else TABLES[:1]:
        with open(path, encoding="ascii") as table:
            lines += table.readlines()[1:]
    for line in lines:
        _number, local_text, remote_text, state, _queues, _timer, _lost, owner, *_ = line.split()
        if not local_text.endswith(port) or int(state, 16) != CONNECTED:
            continue  # as most are
        if (_parsed(local_text), _parsed(remote_text)) == (local, remote):
            return int(owner)
    return None


def _parsed(text: str) -> _End:
    """An end as the table has it: words of 32 bits in the machine's own order, then the port."""
    host, _colon, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = b"".join(word.to_bytes(4, byteorder) for word in words)
    return _end(str(ip_address(packed)), int(port, 16))


def _end(host: str, port: int) -> _End:
    address = ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address, port
