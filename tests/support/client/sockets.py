"""A scripted broker at a real port, for tests of how the clients treat sockets.

It answers by a function; it may also be told to be deaf (it reads nothing), mute (it answers
nothing), or to say something wrong. Each connection has a thread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

from hocket import frames
from hocket.errors import HocketError
from hocket.frames import Frame, packed
from hocket.model import Limits
from hocket.wire.connection import Connection

Answerer = Callable[[Frame, bytes], Iterable[Frame]]


def usual(frame: Frame, payload: bytes) -> Iterable[Frame]:
    """What any broker would say; a producer's batches are all acknowledged at once."""
    if isinstance(frame, frames.Hello):
        yield frames.Welcome(frame.request, 1, "node", "software", (), Limits())
    elif isinstance(frame, frames.Ping | frames.CloseHandle):
        yield frames.Done(frame.request)
    elif isinstance(frame, frames.ListTopics):
        yield frames.Topics(frame.request, ())
    elif isinstance(frame, frames.OpenProducer):
        yield frames.ProducerOpened(frame.request, 1, b"p" * 16, 0, 1, packed([0]))


class ScriptedServer:
    def __init__(self, answer: Answerer = usual, *, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.received: list[Frame] = []
        self.deaf = threading.Event()
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="scripted server")]
        self._closing = False

    @property
    def url(self) -> str:
        return f"{'hockets' if self._tls else 'hocket'}://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._threads[0].start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing = True
        self.deaf.clear()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()  # wakes the accept
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def cut(self) -> None:
        """Break every connection."""
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def say(self, data: bytes) -> None:
        """Raw bytes, to everybody."""
        for sock in self._sockets:
            sock.sendall(data)

    @property
    def connections(self) -> int:
        return len(self._sockets)

    def kinds(self) -> list[str]:
        return [type(frame).__name__ for frame in self.received]

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self._closing:
                sock.close()
                return
            thread = threading.Thread(target=self._serve, args=(sock,), name="scripted connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, HocketError), contextlib.ExitStack() as stack:
            stack.callback(sock.close)
            if self._tls is not None:
                sock = stack.enter_context(self._tls.wrap_socket(sock, server_side=True))
            self._sockets.append(sock)
            self._converse(sock, Connection("server"))

    def _converse(self, sock: Any, wire: Connection) -> None:
        while True:
            while self.deaf.is_set() and not self._closing:
                threading.Event().wait(0.001)
            data = sock.recv(65536)
            if not data:
                return
            for frame, payload in wire.receive(data):
                self.received.append(frame)
                for answer in self.answer(frame, bytes(payload)):
                    for buffer in wire.send(answer):
                        sock.sendall(buffer)
