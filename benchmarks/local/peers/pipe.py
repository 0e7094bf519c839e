"""`os.pipe`, widened to what Linux allows without privileges."""

from __future__ import annotations

import fcntl
import os

from benchmarks.workers import time_one_way

PIPE_BYTES = 1 << 20  # /proc/sys/fs/pipe-max-size; the default of 64 KiB is a third as fast


def write_whole(descriptor: int, chunk: bytes) -> None:
    written = os.write(descriptor, chunk)
    while written < len(chunk):
        written += os.write(descriptor, chunk[written:])


def stream(count: int, chunk: bytes) -> float:
    """Seconds for `count` chunks, read with `readv` into a buffer made once."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

        def send() -> None:
            for _ in range(count):
                write_whole(writer, chunk)

        def receive() -> None:
            target = [bytearray(len(chunk))]
            missing = count * len(chunk)
            while missing:
                missing -= os.readv(reader, target)

        return time_one_way(send, receive)
    finally:
        os.close(reader)
        os.close(writer)
