"""A broker on a thread of the test's own process, listening on a port of loopback."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from hocket import frames
from hocket.node.broker import Broker
from hocket.node.settings import NodeSettings
from hocket.wire.connection import Connection


@contextmanager
def listening(
    path: Path, settings: NodeSettings | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, int]]:
    with running(path, settings, tls) as (_, address):
        yield address


@contextmanager
def running(
    path: Path, settings: NodeSettings | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[Broker, tuple[str, int]]]:
    broker = Broker(path, settings)
    try:
        address = broker.listen("127.0.0.1", 0, tls)
        broker.start()
        yield broker, address
    finally:
        broker.close()


class RawConnection:
    """A client that knows nothing but the 16-byte prefix: headers and payloads as bytes."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])

    def __enter__(self) -> Self:
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


class Speaker(RawConnection):
    """A client by hand: the protocol's bytes, and none of our client's patience."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(address, tls)
        self.wire = Connection("client")
        self.frames: list[frames.Frame] = []
        self.payloads: list[bytes] = []  # one for each of `frames`
        self.payload = b""  # of the frame that was heard last
        self._last_request = 0

    def say(self, frame: frames.Frame, payload: bytes = b"") -> None:
        for buffer in self.wire.send(frame, [payload] if payload else ()):
            self.send(bytes(buffer))

    def hear(self) -> frames.Frame:
        while not self.frames:
            data = self.socket.recv(65536)
            assert data, "the broker closed the connection"
            for frame, payload in self.wire.receive(data):
                self.frames.append(frame)
                self.payloads.append(bytes(payload))
        self.payload = self.payloads.pop(0)
        return self.frames.pop(0)

    def ask(
        self, kind: type, *fields: object, payload: bytes = b"", **more: object
    ) -> frames.Frame:
        """The answer to a request; what else comes before it is dropped."""
        self._last_request += 1
        self.say(kind(self._last_request, *fields, **more), payload)
        while (answer := self.hear()).request != self._last_request:
            pass
        return answer

    def greet(self, token: str = "") -> Speaker:
        self.say(frames.Hello(1, token=token))
        assert isinstance(self.hear(), frames.Welcome)
        return self
