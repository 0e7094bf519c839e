"""An attacker's connection: any bytes at all out, and what comes back judged.

Whatever an attacker sends, the broker answers with frames that a broker may send, with errors that
have a name of their own, or hangs up; and it does so soon. Everything else is a wrong answer.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from itertools import count

from crc32c import crc32c

from hocket import frames
from hocket.errors import BY_CODE, CorruptData, HocketError, ProtocolError, UnknownTopic
from hocket.frames import Frame
from hocket.model import TopicConfig
from hocket.wire.batch import check_entries
from hocket.wire.connection import Connection
from hocket.wire.frame_codec import encode
from hocket.wire.framing import PREFIX
from tests.attack.place import OPEN, Place

PATIENCE_SECONDS = 10.0  # for an answer, or for the end of a connection
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and waits for nothing


class WrongAnswer(Exception):
    """The broker has answered what it never should, or not at all."""


def framed(header: bytes, payload: bytes = b"", *, crc: int | None = None) -> bytes:
    """A frame of these bytes, under a right checksum unless another is given."""
    prefix = PREFIX.pack(len(header), crc32c(header) if crc is None else crc, len(payload))
    return prefix + header + payload + bytes(-len(payload) % 8)


def frame_bytes(frame: Frame, payload: bytes = b"") -> bytes:
    return framed(encode(frame), payload)


class Attacker:
    """A connection that has said Hello, unless it is told not to."""

    def __init__(self, place: Place, *, greets: bool = True, token: str | None = None) -> None:
        self.place = place
        self.socket: socket.socket = socket.create_connection(place.address, PATIENCE_SECONDS)
        context = place.client_context()
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire = Connection("client")
        self.gone = False  # the broker has hung up
        self.welcome: Frame | None = None
        self.requests = count(1 << 40)  # above all that hostile frames use
        if greets:
            hello = frames.Hello(1, token=place.tokens["eve"] if token is None else token)
            self.send(b"".join(map(bytes, self.wire.send(hello))))
            found = self.hear(lambda frame: isinstance(frame, frames.Welcome | frames.Failure))
            self.welcome = found[-1][0] if found else None

    # --- sending ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise WrongAnswer(f"{len(data)} bytes were not taken in time") from error
            self.gone = True

    def ask(self, frame: Frame, payload: bytes = b"") -> Frame | None:
        """A proper request; its answer, or None if the broker hangs up."""
        frame.request = next(self.requests)
        self.send(frame_bytes(frame, payload))
        found = self.hear(lambda each: each.request == frame.request)
        return found[-1][0] if found and found[-1][0].request == frame.request else None

    def open_handles(self) -> None:
        """A producer, handle 1, and a subscription, handle 2, for hostile frames to name."""
        opened = self.ask(frames.OpenProducer(0, OPEN))
        if isinstance(opened, frames.Failure) and opened.code == UnknownTopic.code:
            # Without access control a flipped bit may make a good frame one that deletes the topic.
            self.ask(frames.CreateTopic(0, OPEN, TopicConfig(2)))
            self.ask(frames.OpenProducer(0, OPEN))
        self.ask(frames.OpenSubscription(0, OPEN, "eve-own", credit_bytes=1 << 16))

    # --- hearing ---------------------------------------------------------------------------------

    def exchange(self, data: bytes) -> list[tuple[Frame, bytes]]:
        """Send it with a Ping behind it; all that comes back until that is answered, judged."""
        ping = frames.Ping(next(self.requests))
        self.send(data + frame_bytes(ping))
        return self.hear(
            lambda frame: isinstance(frame, frames.Done) and frame.request == ping.request
        )

    def send_and_end(self, data: bytes) -> list[tuple[Frame, bytes]]:
        """Send it and nothing more; what comes back until the broker hangs up, as it must."""
        self.send(data)
        with contextlib.suppress(OSError):
            if self.place.kind.tls:
                self.socket.settimeout(PATIENCE_SECONDS)
                self.socket.unwrap()  # type: ignore[attr-defined]
            self.socket.shutdown(socket.SHUT_WR)
        found = self.hear(lambda _: False)
        assert self.gone
        return found

    def hear(self, is_last: object) -> list[tuple[Frame, bytes]]:
        """What comes until `is_last` is true of a frame, or the broker hangs up."""
        assert callable(is_last)
        found: list[tuple[Frame, bytes]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.gone:
            if time.monotonic() > deadline:
                raise WrongAnswer(f"no end of answers within {PATIENCE_SECONDS} s")
            for frame, payload in self._received():
                judge(frame, payload)
                found.append((frame, payload))
                if is_last(frame):
                    return found
        return found

    def _received(self) -> list[tuple[Frame, bytes]]:
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError as error:
            raise WrongAnswer(f"no answer within {PATIENCE_SECONDS} s") from error
        except (OSError, ValueError):
            data = b""
        if not data:
            self.gone = True
            return []
        try:
            return [(frame, bytes(payload)) for frame, payload in self.wire.receive(data)]
        except ProtocolError as error:
            raise WrongAnswer(f"what the broker sent is no frame of a broker: {error}") from error

    # --- leaving ---------------------------------------------------------------------------------

    def vanish(self) -> None:
        """Without a word, and without what is still in the socket."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()

    def close(self) -> None:
        self.gone = True
        self.socket.close()


def judge(frame: Frame, payload: bytes) -> None:
    """Raise if a broker should never say this, whatever it was asked."""
    code = getattr(frame, "code", None)
    if code is not None and (code not in BY_CODE or code == HocketError.code):
        raise WrongAnswer(f"an error without a name: {frame}")
    if code is not None and not frame.message:  # type: ignore[union-attr]
        raise WrongAnswer(f"an error that says nothing: {frame}")
    if payload:
        try:
            check_entries(payload)
        except CorruptData as error:
            raise WrongAnswer(f"what was delivered is damaged: {error}") from error
