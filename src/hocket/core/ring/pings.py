"""Pings that are out, for whatever reason they were sent.

A ping may always be answered, also by a node whose pointers count as undefined, so it says nothing
about the ring but that somebody is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm, Effect, Send
from hocket.core.ring.messages import Ping, Pong
from hocket.core.ring.requests import Requests
from hocket.core.ring.routes import Routes

PING = "ping"  # the timers' name

# The answer and who gave it, or neither: nothing came in time. And the time it is now.
Done = Callable[[Contact | None, Pong | None, int], list[Effect]]


@dataclass(slots=True)
class _Out:
    to: Contact
    about: Contact | None
    done: Done
    sent_us: int  # -1: not to be measured
    wait_us: int


class Pings:
    def __init__(self, routes: Routes, requests: Requests) -> None:
        self._routes = routes
        self._requests = requests
        self._out: dict[int, _Out] = {}

    def send(
        self,
        to: Contact,
        done: Done,
        now_us: int,
        *,
        about: Contact | None = None,
        wait_us: int = 0,
    ) -> list[Effect]:
        """Waits as long as this node may take, and at least `wait_us`; `done` is called once."""
        request = self._requests.take()
        wait_us = max(wait_us, self._routes.timeout_us(to))
        self._out[request] = _Out(to, about, done, now_us, wait_us)
        return [Send(to, Ping(request, about)), Arm((PING, request), wait_us)]

    def answered(self, sender: Contact, message: Pong, now_us: int) -> list[Effect]:
        out = self._out.get(message.request)
        if out is None or (out.to.incarnation and out.to.node != sender.node):
            return []
        if out.about is None and out.sent_us >= 0:
            self._routes.answered(sender, now_us - out.sent_us)
        return self._end(message.request, out, sender, message, now_us)

    def gone(self, request: int, now_us: int) -> list[Effect]:
        """Somebody answers, but not as one who is on the ring."""
        out = self._out.get(request)
        return [] if out is None else self._end(request, out, None, None, now_us)

    def due(self, request: int, now_us: int) -> list[Effect]:
        out = self._out.pop(request, None)
        return [] if out is None else out.done(None, None, now_us)

    def stalled(self) -> list[Effect]:
        """We stood still: every ping has its whole time again."""
        effects: list[Effect] = []
        for request, out in self._out.items():
            out.sent_us = -1
            effects.append(Arm((PING, request), out.wait_us))
        return effects

    def _end(
        self,
        request: int,
        out: _Out,
        sender: Contact | None,
        message: Pong | None,
        now_us: int,
    ) -> list[Effect]:
        del self._out[request]
        return [Disarm((PING, request)), *out.done(sender, message, now_us)]
