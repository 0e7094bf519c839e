"""A small HTTP server for `/metrics`, `/healthz` and `/readyz`, on threads of its own.

`/healthz` says whether the node's thread goes on, `/readyz` whether it serves clients. Both tell
nothing else, and need no token. `/metrics` names topics and indexes: as soon as there are users it
needs the token of one who may subscribe to all topics, as `Authorization: Bearer TOKEN`.

Whoever can connect can also say nothing, or say it a byte at a time, and each connection has a file
and a thread of the broker's process. So there are few of them, and each ends in time: of too many
that have not asked yet, the oldest makes room. Who asks for `/metrics` all the time must not make
the node look dead, so `/healthz` and `/readyz` do not wait for the same slots.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any

from hocket.addresses import Address
from hocket.errors import HocketError, NotAllowed, Timeout
from hocket.node.broker import bind
from hocket.plugins.doors import ANSWER_SECONDS, Surroundings

log = logging.getLogger("hocket.metrics")
AT_ONCE_MAX = 8  # requests of a kind; more are told to come again
ASKING_MAX = 64  # connections whose request has not come yet
REQUEST_SECONDS = 10.0  # without a byte
CONNECTION_SECONDS = 30.0  # whatever it does
FULL_SECONDS = 0.05  # until it is tried again to accept one: the process has no file left, say
REST = 9  # times as long as it took, an answer is not made anew
CLOSE_SECONDS = 1.0  # for answers that are being written when the node goes down
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Shared:
    """An answer that one makes at a time, and that is everybody's for a while.

    All threads of a process share one interpreter: eight that gather and write numbers all the time
    leave the node's thread a tenth of it. So of any time a tenth, at most, goes into answers.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._answer = b""
        self._good_until = 0.0

    def __call__(self) -> bytes:
        if not self._lock.acquire(timeout=ANSWER_SECONDS):
            raise Timeout("the numbers are being gathered, and that takes long; try again")
        try:
            began = monotonic()
            if began >= self._good_until:
                self._answer = self._make()
                ended = monotonic()
                self._good_until = ended + REST * (ended - began)
            return self._answer
        finally:
            self._lock.release()


class Endpoint:
    """A `hocket.plugins.doors.Door`."""

    def __init__(self, listen: Address, around: Surroundings, expose: Callable[[], bytes]) -> None:
        around.check(listen)
        self._server = _Server(listen, around, expose)
        bound = self._server.socket.getsockname()
        scheme = "http" if around.tls is None else "https"
        self.address = f"{scheme}://{Address(bound[0], bound[1])}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="hocket-metrics", daemon=True
        )
        self._thread.start()

    def renew_tls(self) -> None:
        """New connections are shown the certificate as it is now."""
        self._server.renew_tls()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.end_all(CLOSE_SECONDS)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of five, the sixth of a burst would come a second later
    daemon_threads = True  # one may wait for a node that has stopped already

    def __init__(self, listen: Address, around: Surroundings, expose: Callable[[], bytes]) -> None:
        self.around = around
        self.expose = Shared(expose)
        self.slots = threading.Semaphore(AT_ONCE_MAX)
        self.health_slots = threading.Semaphore(AT_ONCE_MAX)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}  # when each began, the oldest first
        self._asking: dict[socket.socket, None] = {}  # of these, who has not asked yet
        self._threads_of: dict[socket.socket, threading.Thread] = {}
        self._tls: ssl.SSLContext | None = None
        self.renew_tls()
        super().__init__((listen.host, listen.port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bind(*listen)
        self.server_activate()

    def renew_tls(self) -> None:
        self._tls = None if self.around.tls is None else self.around.tls()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            sock, address = self.socket.accept()
        except OSError:
            sleep(FULL_SECONDS)
            raise
        sock.settimeout(REQUEST_SECONDS)
        if self._tls is not None:  # the handshake is for the thread of the connection
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._asking) >= ASKING_MAX:
                oldest = next(iter(self._asking))
                del self._asking[oldest]
                _end(oldest)
            self._open[request] = monotonic()
            self._asking[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._threads_of[request] = threading.current_thread()
        super().process_request_thread(request, client_address)

    def has_asked(self, request: socket.socket) -> None:
        with self._lock:
            self._asking.pop(request, None)

    def service_actions(self) -> None:
        """Called again and again by `serve_forever`."""
        latest = monotonic() - CONNECTION_SECONDS
        with self._lock:
            for sock, began in self._open.items():
                if began > latest:
                    break
                _end(sock)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:  # first: its descriptor may be another's as soon as it is closed
            self._open.pop(request, None)
            self._asking.pop(request, None)
            self._threads_of.pop(request, None)
        super().shutdown_request(request)

    def end_all(self, seconds: float) -> None:
        """Give answers that are under way this time, and nobody who has not asked."""
        with self._lock:
            for sock in self._asking:
                _end(sock)
            threads = list(self._threads_of.values())
        until = monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("a request from %s failed", client_address, exc_info=True)


def _end(sock: socket.socket) -> None:
    """Wakes the connection's thread, which closes it."""
    with suppress(OSError):  # it has ended already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # of TLS: not what a thread is using


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "hocket"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()

    def do_GET(self) -> None:
        self.server.has_asked(self.request)
        path = self.path.partition("?")[0]
        slots = self.server.slots if path == "/metrics" else self.server.health_slots
        answers = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
        if path not in answers:
            self._answer(404, f"there are {', '.join(answers)}\n")
        elif not slots.acquire(blocking=False):
            self._answer(503, "too many ask at once; try again\n")
        else:
            try:
                answers[path]()
            except HocketError as error:
                self._answer(503, f"{error}\n")
            except OSError:
                raise  # the client has gone
            except Exception:
                log.exception("%s could not be answered", path)
                self._answer(500, "this is a fault of the broker; see its log\n")
            finally:
                slots.release()

    def _health(self) -> None:
        self.server.around.on_loop(lambda: None)
        self._answer(200, "ok\n")

    def _ready(self) -> None:
        ready = self.server.around.is_ready()
        self._answer(200 if ready else 503, "ok\n" if ready else "not ready\n")

    def _metrics(self) -> None:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        try:
            self.server.around.admit(
                token.strip() if kind.lower() == "bearer" else "", self.client_address[0],
                "subscribe",
            )  # fmt: skip
        except NotAllowed as error:
            self._answer(401, f"{error}\n", {"WWW-Authenticate": 'Bearer realm="hocket"'})
            return
        self._answer(200, self.server.expose(), {"Content-Type": CONTENT_TYPE})

    def _answer(
        self, status: int, body: str | bytes, headers: dict[str, str] | None = None
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug("%s %s", self.client_address[0], format % args)
