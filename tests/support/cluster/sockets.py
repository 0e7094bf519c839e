"""Whose TCP connections there are on this machine, and how many bytes went over each.

The kernel is asked by netlink (sock_diag), as `ss -ti` does; nothing is counted by the programs
that are looked at.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_INFO = 2  # INET_DIAG_INFO, and the bit for it is 1 << (_INFO - 1)
_ESTABLISHED = 1 << 1
_HEADER = struct.Struct("=IHHII")
_SOCKET_BYTES = 72  # struct inet_diag_msg
_ACKED, _RECEIVED = 120, 128  # tcpi_bytes_acked and tcpi_bytes_received within struct tcp_info


@dataclass(slots=True)
class Socket:
    """One end of an established connection."""

    inode: int
    port: int
    peer_port: int
    sent: int  # bytes that the other end has acknowledged
    received: int


def established() -> list[Socket]:
    """All of IPv4 on this machine."""
    request = struct.pack(
        "=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 1 << _INFO - 1, _ESTABLISHED
    )
    request += bytes(48)  # of any address
    header = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(header + request)
        return list(_answers(kernel))


def _answers(kernel: socket.socket) -> Iterator[Socket]:
    while True:
        data = kernel.recv(1 << 18)
        at = 0
        while at < len(data):
            size, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            assert kind != _ERROR, "the kernel does not tell of its sockets"
            yield _socket(data[at + _HEADER.size : at + size])
            at += size + -size % 4


def _socket(data: bytes) -> Socket:
    port, peer_port = struct.unpack_from(">HH", data, 4)
    (inode,) = struct.unpack_from("=I", data, _SOCKET_BYTES - 4)
    sent = received = 0
    at = _SOCKET_BYTES
    while at < len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if kind == _INFO:
            (sent,) = struct.unpack_from("=Q", data, at + 4 + _ACKED)
            (received,) = struct.unpack_from("=Q", data, at + 4 + _RECEIVED)
        at += size + -size % 4
    return Socket(inode, port, peer_port, sent, received)


def inodes_of(process: int) -> set[int]:
    found = set()
    for name in os.listdir(f"/proc/{process}/fd"):
        try:
            target = os.readlink(f"/proc/{process}/fd/{name}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def connections_of(process: int, ports: Iterable[int]) -> dict[int, int]:
    """How many connections the process has to each of these ports."""
    mine = inodes_of(process)
    found = [each.peer_port for each in established() if each.inode in mine]
    return {port: found.count(port) for port in ports}


def bytes_between(processes: Iterable[int]) -> int:
    """How much has gone over connections of which these processes have both ends."""
    theirs = set().union(*(inodes_of(each) for each in processes))
    ends = {(e.port, e.peer_port): e for e in established() if e.inode in theirs}
    return sum(end.sent for ports, end in ends.items() if ports[::-1] in ends)


def bytes_sent(process: int, to: int) -> int:
    """How much the one process has sent over connections whose other end the other one has."""
    mine, theirs = inodes_of(process), inodes_of(to)
    sockets = established()
    ends = {(each.peer_port, each.port) for each in sockets if each.inode in theirs}
    return sum(e.sent for e in sockets if e.inode in mine and (e.port, e.peer_port) in ends)


def has_counters() -> bool:
    """Whether this kernel tells them."""
    try:
        established()
    except (OSError, AssertionError):
        return False
    return Path("/proc/self/fd").exists()
