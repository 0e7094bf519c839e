"""`socket.socketpair`: a byte stream through the kernel, one thread at each end."""

from __future__ import annotations

import socket

from benchmarks.workers import time_one_way


def stream(count: int, chunk: bytes, send_buffer_bytes: int | None = None) -> float:
    """Seconds for `count` chunks. On a Unix socket only the sender's buffer matters."""
    sender, receiver = socket.socketpair()
    with sender, receiver:
        if send_buffer_bytes is not None:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

        def send() -> None:
            for _ in range(count):
                sender.sendall(chunk)

        def receive() -> None:
            target = bytearray(len(chunk))
            missing = count * len(chunk)
            while missing:
                missing -= receiver.recv_into(target)

        return time_one_way(send, receive)
