"""Pings again the nodes that this node gave up, and looks its own position up by way of others.

Silence is no proof of death. A cut makes the living look dead to each other, and when the cut is
healed there may be two rings where one was. Those two may know each other by some old fingers, and
so share even the beacon. Therefore, at every stabilization, we ping one of the nodes that we gave
up lately; every other time it is the one that would be our successor. A node that answers, or
speaks to us by itself, shows that we were wrong about it, and perhaps about more nodes. If it lies
before our successor, we ask it to be our successor.

Then we look our own position up by way of that node. If another node is taken for the owner over
there, we notify that owner, and likewise ask it to be our successor if it lies before the one we
have. None of this can do harm: a notification sets a predecessor at most, and the question is
Zave's StabilizeFromPredecessor, for which it does not matter how we have heard of the nearer node.
Stabilization does the rest.
"""

from __future__ import annotations

from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import Pong
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing
from hocket.core.ring.settings import SECOND

LATELY_US = 600 * SECOND  # for so long; afterwards only a stale beacon leads there (`other_rings`)


class SecondLook:
    """See the head of the file."""

    def __init__(self, node: OwnNode, pointers: Pointers) -> None:
        self._node = node
        self._pointers = pointers
        self._turn = 0  # among the nodes that were given up
        self._is_looking = False  # a lookup of our own position is out

    def due(self, now_us: int) -> list[Effect]:
        deaths = self._pointers.deaths
        lately = [
            contact
            for contact, since_us in deaths.convicted.items()
            if now_us - since_us < LATELY_US and not deaths.is_over(contact)
        ]
        if not lately:
            return []
        self._turn += 1
        suspect = lately[self._turn // 2 % len(lately)]
        if self._turn % 2:
            mine = self._node.me.position
            suspect = min(lately, key=lambda contact: distance(mine, contact.position))
        return self._node.pings.send(suspect, self._pinged, now_us)

    def _pinged(self, _sender: Contact | None, _pong: Pong | None, _now_us: int) -> list[Effect]:
        return []  # any message of a node that was given up leads to `wrong_about`

    def wrong_about(self, contact: Contact, now_us: int) -> list[Effect]:
        """We gave this node up, and it speaks."""
        if self._pointers.standing is not Standing.MEMBER:
            return []
        effects = self._pointers.stabilize_from_predecessor(contact, now_us)
        return effects + self.by_way_of((contact,), now_us)

    def by_way_of(self, guides: tuple[Contact, ...], now_us: int) -> list[Effect]:
        """Look our own position up, beginning with these nodes."""
        node = self._node
        if self._is_looking or not guides or self._pointers.lives_by_registry:
            return []
        self._is_looking = True
        return node.lookups.start(node.me.position, self._found, now_us, via=guides)

    def _found(self, outcome: Outcome) -> list[Effect]:
        self._is_looking = False
        node = self._node
        if not outcome.owners or outcome.owners[0].node == node.me.node:
            return []
        return self._pointers.meet(outcome.owners[0], node.now_us)
