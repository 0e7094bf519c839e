"""A broker on a thread of the test's own process, listening on a port of loopback."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hocket.node.broker import Broker
from hocket.node.settings import NodeSettings


@contextmanager
def listening(path: Path, settings: NodeSettings | None = None) -> Iterator[tuple[str, int]]:
    broker = Broker(path, settings)
    try:
        address = broker.listen("127.0.0.1", 0)
        broker.start()
        yield address
    finally:
        broker.close()


class RawConnection:
    """A client that knows nothing but the 16-byte prefix: headers and payloads as bytes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=10)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> tuple[bytes, bytes]:
        """Header and payload of the next frame."""
        header_length, _crc, payload_length = struct.unpack("<IIQ", self._exactly(16))
        header = self._exactly(header_length)
        payload = self._exactly(payload_length)
        self._exactly(-payload_length % 8)
        return header, payload

    def at_end(self) -> bool:
        """Whether the other side has closed; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, f"the connection ended after {len(data)} of {length} bytes"
            data += more
        return data
