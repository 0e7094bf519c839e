"""A second look at those we gave up, and at our own place on the ring.

Silence is no proof: a cut makes the living look dead to each other, and when it is healed two rings
may stand where one was, which know each other by some old fingers and so share even the beacon. So
one of those given up lately is pinged at every stabilization, every other time the one that would
be our successor. Whoever answers, or speaks to us by itself, shows that we were wrong about it, and
perhaps about more. If it lies before our successor, we ask it to be that.

Then we look our own position up by way of it. If another node is taken for the owner over there, we
tell it of us, and likewise ask it if it lies before our successor. None of this can do harm: a
notification sets a predecessor at most, and the other is Zave's StabilizeFromPredecessor, for which
it is of no importance how we have heard of the nearer node. Stabilization does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import Pong
from hocket.core.ring.settings import SECOND
from hocket.core.ring.standing import Standing

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

LATELY_US = 600 * SECOND  # afterwards only the beacon rule can find it (see `other_rings`)


class SecondLook:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._turn = 0  # among those given up
        self._is_looking = False

    def due(self, now_us: int) -> list[Effect]:
        ring = self._ring
        lately = [
            contact
            for contact, since_us in ring.convicted.items()
            if now_us - since_us < LATELY_US and not ring.is_over(contact)
        ]
        if not lately:
            return []
        self._turn += 1
        who = lately[self._turn // 2 % len(lately)]
        if self._turn % 2:
            mine = ring.me.position
            who = min(lately, key=lambda contact: distance(mine, contact.position))
        return ring.pings.send(who, self._pinged, now_us)

    def _pinged(self, _sender: Contact | None, _pong: Pong | None, _now_us: int) -> list[Effect]:
        return []  # if it has said a word, the ring has heard it

    def wrong_about(self, contact: Contact, now_us: int) -> list[Effect]:
        """We gave it up, and yet it speaks."""
        ring = self._ring
        if ring.standing is not Standing.MEMBER:
            return []
        effects = ring.stabilize_from_predecessor(contact, now_us)
        return effects + self.by_way_of((contact,), now_us)

    def by_way_of(self, guides: tuple[Contact, ...], now_us: int) -> list[Effect]:
        ring = self._ring
        if self._is_looking or not guides or ring.lives_by_registry:
            return []
        self._is_looking = True
        return ring.lookups.start(ring.me.position, self._found, now_us, via=guides)

    def _found(self, outcome: Outcome) -> list[Effect]:
        self._is_looking = False
        ring = self._ring
        if not outcome.owners or outcome.owners[0].node == ring.me.node:
            return []
        return ring.meet(outcome.owners[0], ring.now_us)
