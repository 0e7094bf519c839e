"""A network between two processes that can be stopped, dropped or reset: a proxy on the loopback.

What is *dropped* is taken from its sender, who believes that it was sent, and reaches nobody.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
PIECE_BYTES = 4096


class Proxy:
    """Passes on what comes to `port`, to the port that `towards` has set, until it is stopped."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._to = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._stopped = False
        self._dropping = False
        self.passed = 0  # bytes, both ways
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="test: proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed = True
        self._thread.join(10)
        self._listener.close()
        for pair in self._pairs:
            for each in pair:
                each.close()

    def towards(self, port: int) -> None:
        self._to = port

    def stop(self) -> None:
        """Nothing passes, and nobody is told."""
        self._stopped = True

    def go_on(self) -> None:
        self._stopped = False

    def inject(self, data: bytes, *, to_caller: bool) -> None:
        """Put bytes of nobody's into the last connection, behind what has passed."""
        with self._lock:
            self._pairs[-1][0 if to_caller else 1].sendall(data)

    def drop(self) -> None:
        """What is sent from now on is lost, and nobody is told."""
        self._dropping = True

    def reset(self) -> None:
        """Both sides are told that the connections are gone."""
        self._stopped = True
        with self._lock:
            for pair in self._pairs:
                for each in pair:
                    with contextlib.suppress(OSError):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    each.close()

    def _run(self) -> None:
        while not self._closed:
            ends = {end: pair for pair in self._pairs for end in pair if end.fileno() >= 0}
            wanted = [self._listener, *ends] if not self._stopped else []
            with contextlib.suppress(OSError, ValueError):  # one of them was reset
                ready = select.select(wanted, [], [], 0.02)[0]
                with self._lock:
                    for each in ready:
                        if each is self._listener:
                            self._accept()
                        elif not self._stopped and each.fileno() >= 0:
                            self._pass_on(each, ends[each])

    def _accept(self) -> None:
        caller, _ = self._listener.accept()
        self._pairs.append((caller, socket.create_connection(("127.0.0.1", self._to))))

    def _pass_on(self, one: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        other = pair[1] if one is pair[0] else pair[0]
        try:
            data = one.recv(PIECE_BYTES)
            if self._dropping:
                return
            if not data:
                other.shutdown(socket.SHUT_WR)
                one.close()
                return
            self.passed += len(data)
            other.sendall(data)  # both ends always read: see `remote.queue_carrier`
        except OSError:
            one.close()
            other.close()
