"""A small HTTP server for `/metrics`, `/healthz` and `/readyz`, on threads of its own.

`/healthz` says whether the node's thread goes on, `/readyz` whether it serves clients. Both tell
nothing else, and need no token. `/metrics` names topics and indexes: as soon as there are users it
needs the token of one who may subscribe to all topics, as `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hocket.addresses import Address
from hocket.errors import HocketError, NotAllowed
from hocket.node.broker import bind
from hocket.plugins.doors import Surroundings

log = logging.getLogger("hocket.metrics")
AT_ONCE_MAX = 8  # requests; more are told to come again
REQUEST_SECONDS = 10.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True  # so that no thread is left behind

    def __init__(self, listen: Address, around: Surroundings, expose: Callable[[], bytes]) -> None:
        self.around = around
        self.expose = expose
        self.slots = threading.Semaphore(AT_ONCE_MAX)
        self._tls: ssl.SSLContext | None = None
        self.renew_tls()
        super().__init__((listen.host, listen.port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bind(*listen)
        self.server_activate()

    def renew_tls(self) -> None:
        self._tls = None if self.around.tls is None else self.around.tls()

    def get_request(self) -> tuple[socket.socket, Any]:
        sock, address = self.socket.accept()
        sock.settimeout(REQUEST_SECONDS)
        if self._tls is not None:  # the handshake is for the thread of the connection
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("a request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "hocket"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answers = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
        if path not in answers:
            self._answer(404, f"there are {', '.join(answers)}\n")
        elif not self.server.slots.acquire(blocking=False):
            self._answer(503, "too many ask at once; try again\n")
        else:
            try:
                answers[path]()
            except HocketError as error:
                self._answer(503, f"{error}\n")
            finally:
                self.server.slots.release()

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
