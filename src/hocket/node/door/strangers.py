"""What a broker does about a connection that does not speak Hocket: an answer, and a line of log.

Anybody who reaches the port can bring that about, so the lines are rationed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from hocket.node.identity.ration import Ration
from hocket.wire.strangers import language

log = logging.getLogger("hocket.node")

LINES_MAX = 10  # that name somebody, in a minute

_BODY = (
    b"This is the port of a Hocket broker, which does not speak HTTP.\n"
    b'Connect to it with a Hocket client: in Python, hocket.connect("hocket://HOST:PORT"); on the '
    b"command line, hocket topic list --server hocket://HOST:PORT.\n"
    b"If the broker has TLS, it is hockets://.\n"
)
HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_BODY), _BODY)
)


def described(first: bytes, *, with_tls: bool) -> str:
    """What to say of somebody who began like this, at a port with or without TLS."""
    spoken = language(first)
    if spoken == "TLS" and not with_tls:
        return "speaks TLS, and this port does not: it must use hocket:// instead of hockets://"
    if spoken:
        return f"speaks {spoken}, not Hocket"
    return f"does not speak Hocket; it said {first!r}"


class Strangers:
    """Names in the log who did not speak Hocket, some of them each minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._ration = Ration(LINES_MAX, self._say_rest, clock)

    def met(self, place: str, what: str) -> None:
        if self._ration.take():
            log.warning("%s %s", place, what)

    def tick(self) -> None:
        self._ration.tick()

    def _say_rest(self, count: int) -> None:
        log.warning("%d more connections did not speak Hocket, or not with or without TLS as their "
                    "port does, within a minute", count)  # fmt: skip
