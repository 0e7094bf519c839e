"""A network between a client and a broker that can be cut, and can lose what is under way."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from urllib.parse import urlsplit

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: what is under way is lost


class Proxy:
    """Carries bytes both ways. `losing` drops the broker's answers; `cut` breaks all connections.

    `closed` refuses new connections, by breaking them as soon as they are made.
    """

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        assert target.hostname
        assert target.port
        self._target = (target.hostname, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"hocket://127.0.0.1:{self._listener.getsockname()[1]}"
        self.losing = False
        self.closed = False
        self.cuts = 0
        self._answers = 0  # pieces that came from the broker since the last cut
        self._cut_after, self._cuts_to_come = 0, 0
        self._ending = False
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept, name="proxy")]

    def __enter__(self) -> Proxy:
        self._threads[0].start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending = True
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def cut(self) -> int:
        """Break every connection; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                    sock.shutdown(socket.SHUT_RDWR)
        self.cuts += len(pairs)
        self._answers = 0
        return len(pairs)

    def cut_again_and_again(self, answers: int, times: int) -> None:
        """Cut whenever so many pieces have come from the broker, so many times.

        The thread that carries them cuts: one that watches would be late on a busy machine, and
        find the work done.
        """
        self._cut_after, self._cuts_to_come = answers, times

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._ending or self.closed:
                client.close()
                if self._ending:
                    return
                continue
            broker = socket.create_connection(self._target)
            with self._lock:
                self._pairs.append((client, broker))
            to_broker = threading.Thread(target=self._carry, args=(client, broker, False))
            to_client = threading.Thread(target=self._carry, args=(broker, client, True))
            closer = threading.Thread(
                target=_close_after, args=(to_broker, to_client, client, broker)
            )
            for thread in (to_broker, to_client, closer):
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers:
                    self._has_answered()
                if not (answers and self.losing):
                    sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _has_answered(self) -> None:
        self._answers += 1
        if self._cuts_to_come and self._answers >= self._cut_after:
            self._cuts_to_come -= 1
            self.cut()


def _close_after(one: threading.Thread, other: threading.Thread, *sockets: socket.socket) -> None:
    one.join()
    other.join()
    for sock in sockets:
        sock.close()
