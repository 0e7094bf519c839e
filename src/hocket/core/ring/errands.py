"""Pings, as they are answered: for ourselves, and as an errand for one who suspects another."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect, Send
from hocket.core.ring.messages import Ping, Pong

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

ERRANDS_MAX = 16  # at a time; whoever asks for more gets no answer, and asks somebody else


class Errands:
    def __init__(self, ring: Ring) -> None:
        self.out = 0
        self._ring = ring

    def pinged(self, sender: Contact, message: Ping, now_us: int) -> list[Effect]:
        ring = self._ring
        about = message.about
        if about is None or about.node == ring.me.node:
            alive = about is None or about.incarnation == ring.me.incarnation
            return [Send(sender, Pong(message.request, alive, ring.beacon))]
        if self.out >= ERRANDS_MAX:
            return []
        self.out += 1
        return ring.pings.send(about, partial(self._done, sender, message.request), now_us)

    def _done(
        self,
        asker: Contact,
        request: int,
        sender: Contact | None,
        _pong: Pong | None,
        _now_us: int,
    ) -> list[Effect]:
        self.out -= 1
        return [Send(asker, Pong(request, sender is not None, self._ring.beacon))]
