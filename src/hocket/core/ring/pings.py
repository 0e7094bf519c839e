"""Pings: those that this node has sent, and those that it answers.

A node always answers a ping, even while its pointers count as undefined. So an answer says that
somebody is there, and nothing else about the ring.

A node that suspects another one asks us to ping that one (`Ping.about`). Then we report what we
found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm, Effect, Send
from hocket.core.ring.messages import Ping, Pong, RequestNumbers
from hocket.core.ring.root import Beacons
from hocket.core.ring.routes import Routes

PING = "ping"  # the timers' name
INDIRECT_MAX = 16  # pings for others that are out at a time; who asks for more gets no answer

# Told the node that answered and its answer, or None twice if none came in time; then the time.
Done = Callable[[Contact | None, Pong | None, int], list[Effect]]


@dataclass(slots=True)
class _Out:
    to: Contact
    about: Contact | None
    done: Done
    sent_us: int  # -1: the round trip is not to be measured
    wait_us: int


class Pings:
    """The pings that this node has sent, and that are not answered yet."""

    def __init__(self, routes: Routes, requests: RequestNumbers) -> None:
        self._routes = routes
        self._requests = requests
        self._out: dict[int, _Out] = {}  # by request

    def send(
        self,
        to: Contact,
        done: Done,
        now_us: int,
        *,
        about: Contact | None = None,
        wait_us: int = 0,
    ) -> list[Effect]:
        """Waits for the usual timeout of that node, and at least `wait_us`.

        `done` is called once.
        """
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
        """The node that was pinged says that the life we meant is not on the ring."""
        out = self._out.get(request)
        return [] if out is None else self._end(request, out, None, None, now_us)

    def due(self, request: int, now_us: int) -> list[Effect]:
        out = self._out.pop(request, None)
        return [] if out is None else out.done(None, None, now_us)

    def stalled(self) -> list[Effect]:
        """This node stood still: every ping gets its whole time again."""
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


class PingAnswers:
    """Answers the pings of other nodes, and pings a suspect for them."""

    def __init__(self, me: Contact, pings: Pings, beacons: Beacons) -> None:
        self._me = me
        self._pings = pings
        self._beacons = beacons
        self._out = 0  # pings for others that are out

    def asked(self, sender: Contact, message: Ping, now_us: int) -> list[Effect]:
        me = self._me
        about = message.about
        if about is None or about.node == me.node:
            alive = about is None or about.incarnation == me.incarnation
            return [Send(sender, Pong(message.request, alive, self._beacons.newest))]
        if self._out >= INDIRECT_MAX:
            return []
        self._out += 1
        return self._pings.send(about, partial(self._report, sender, message.request), now_us)

    def _report(
        self,
        asker: Contact,
        request: int,
        sender: Contact | None,
        _pong: Pong | None,
        _now_us: int,
    ) -> list[Effect]:
        self._out -= 1
        return [Send(asker, Pong(request, sender is not None, self._beacons.newest))]
