"""What a broker does about a connection that does not speak Hocket: an answer, and a line of log.

Anybody who reaches the port can bring that about, as often as they like. So only some are named in
the log, and the others are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from hocket.wire.strangers import language

log = logging.getLogger("hocket.node")

LINES_MAX = 10  # that name somebody, in a minute
MINUTE_SECONDS = 60.0

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
        self._clock = clock
        self._minute_ends = 0.0
        self._named = 0
        self._unnamed = 0

    def met(self, place: str, what: str) -> None:
        self.tick()
        if not self._named:
            self._minute_ends = self._clock() + MINUTE_SECONDS
        if self._named < LINES_MAX:
            self._named += 1
            log.warning("%s %s", place, what)
        else:
            self._unnamed += 1

    def tick(self) -> None:
        """A minute may be over: say how many were not named."""
        if self._named and self._clock() >= self._minute_ends:
            if self._unnamed:
                log.warning("%d more connections did not speak Hocket, or not with or without TLS "
                            "as their port does, within a minute", self._unnamed)  # fmt: skip
            self._named = self._unnamed = 0
