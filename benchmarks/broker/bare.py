"""The least a broker could do: bytes over loopback into a synced file, and back. The ceiling.

No records, no order, no dedupe, no index: a process that receives chunks of a fixed size, writes
each to a preallocated file with O_DSYNC semantics and answers one byte; or sends chunks from
memory; or answers a small request after syncing it. What ours loses against this is what being a
broker costs; what both reach is what the machine gives.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

FILE_BYTES = 64 << 20
IN_FLIGHT = 8


def _serve(
    work: Callable[[socket.socket], None], port: multiprocessing.connection.Connection
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port.send(listener.getsockname()[1])
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            work(sock)


@contextmanager
def serving(work: Callable[[socket.socket], None]):
    """A process that does `work` with the connection that is yielded."""
    spawn = multiprocessing.get_context("fork")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    try:
        with socket.create_connection(("127.0.0.1", ours.recv())) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield sock
    finally:
        process.join(30)
        process.kill()


def receive_exactly(sock: socket.socket, view: memoryview) -> bool:
    while view:
        count = sock.recv_into(view)
        if not count:
            return False
        view = view[count:]
    return True


def store(sock: socket.socket, chunk_bytes: int, directory: Path) -> None:
    """Each chunk into a file, synced, answered by one byte."""
    chunk = memoryview(bytearray(chunk_bytes))
    with tempfile.TemporaryFile(dir=directory) as file:
        os.pwrite(file.fileno(), bytes(FILE_BYTES), 0)
        os.fsync(file.fileno())
        position = 0
        while receive_exactly(sock, chunk):
            os.pwritev(file.fileno(), [chunk], position, os.RWF_DSYNC)
            position = (position + chunk_bytes) % (FILE_BYTES - chunk_bytes)
            sock.sendall(b"k")


def seconds_to_store(total_bytes: int, chunk_bytes: int, directory: Path) -> float:
    chunk = os.urandom(chunk_bytes)
    chunks = max(1, total_bytes // chunk_bytes)
    with serving(lambda sock: store(sock, chunk_bytes, directory)) as sock:
        start = perf_counter()
        answered = 0
        for sent in range(chunks):
            while sent - answered >= IN_FLIGHT:
                answered += len(sock.recv(IN_FLIGHT))
            sock.sendall(chunk)
        while answered < chunks:
            answered += len(sock.recv(IN_FLIGHT))
        elapsed = perf_counter() - start
        sock.shutdown(socket.SHUT_WR)
    return elapsed * total_bytes / (chunks * chunk_bytes)


def seconds_to_fetch(total_bytes: int, chunk_bytes: int) -> float:
    chunks = max(1, total_bytes // chunk_bytes)

    def send(sock: socket.socket) -> None:
        chunk = os.urandom(chunk_bytes)
        sock.recv(1)
        for _ in range(chunks):
            sock.sendall(chunk)

    buffer = memoryview(bytearray(chunk_bytes))
    with serving(send) as sock:
        sock.sendall(b"g")
        start = perf_counter()
        for _ in range(chunks):
            receive_exactly(sock, buffer)
        elapsed = perf_counter() - start
    return elapsed * total_bytes / (chunks * chunk_bytes)


def synced_echoes(count: int, message_bytes: int, directory: Path) -> list[float]:
    """Round trips of a small message that is on disk before it is answered."""
    message = os.urandom(message_bytes)
    latencies = []
    with serving(lambda sock: store(sock, message_bytes, directory)) as sock:
        for _ in range(count):
            start = perf_counter()
            sock.sendall(message)
            sock.recv(1)
            latencies.append(perf_counter() - start)
        sock.shutdown(socket.SHUT_WR)
    return latencies
