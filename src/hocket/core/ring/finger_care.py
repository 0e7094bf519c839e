"""Keeping the fingers, one at a time; and once in a round, a look at our own place.

A finger is looked up, those who could be it are pinged, and the first to answer is taken. All were
asked at the same moment, so it is the nearest (proximity neighbour selection, Dabek et al. 2004).
Nobody becomes a finger without having answered.

Others may have given us up by mistake, and never told us. So our own position is looked up, too, by
way of some whom we know (see `second_look`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect
from hocket.core.ring.lookups import NAMED_MAX, Outcome
from hocket.core.ring.messages import Pong

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

GUIDES = 2  # by way of whom we look for ourselves


@dataclass(slots=True)
class _Choice:
    """Of one finger. Invariant: whoever is chosen has answered."""

    exponent: int
    out: int  # pings without an answer yet
    is_made: bool = False


class FingerCare:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._last = -1  # the exponent of the last turn; -1: none
        self._after = ring.me.position

    def due(self, now_us: int) -> list[Effect]:
        ring = self._ring
        exponent = ring.fingers.next_exponent(ring.successors)
        effects: list[Effect] = []
        if exponent is None or exponent >= self._last:
            guides = ring.routes.passive(self._after, GUIDES)
            self._after = guides[-1].position if guides else ring.me.position
            effects += ring.second_look.by_way_of(guides, now_us)
        self._last = -1 if exponent is None else exponent
        if exponent is None:
            return effects
        target = ring.fingers.target(exponent)
        done = partial(self._found, exponent)
        own = ring.closer(0, target, NAMED_MAX)
        return effects + ring.lookups.start(target, done, now_us, own=own)

    def _found(self, exponent: int, outcome: Outcome) -> list[Effect]:
        ring = self._ring
        if not outcome.owners:  # a lookup that failed says nothing about the finger
            return []
        candidates = ring.fingers.candidates(exponent, outcome.owners)
        if not candidates:
            ring.fingers.drop(exponent)
        choice = _Choice(exponent, len(candidates))
        effects: list[Effect] = []
        for contact in candidates:
            done = partial(self._answered, choice, contact)
            effects += ring.pings.send(contact, done, ring.now_us)
        return effects

    def _answered(
        self,
        choice: _Choice,
        contact: Contact,
        sender: Contact | None,
        _pong: Pong | None,
        _now_us: int,
    ) -> list[Effect]:
        choice.out -= 1
        if sender == contact and not choice.is_made:
            choice.is_made = True
            self._ring.fingers.put(choice.exponent, contact)
        elif not choice.out and not choice.is_made:
            self._ring.fingers.drop(choice.exponent)
        return []
