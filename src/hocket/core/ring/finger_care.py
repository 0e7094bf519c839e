"""Renews the fingers, one at a time, and once in a round looks this node itself up.

A finger is looked up, the nodes that could be this finger are pinged, and the first one to answer
is taken. All were pinged at the same moment, so it is the nearest one (proximity neighbour
selection, Dabek et al. 2004). No node becomes a finger without having answered.

Other nodes may have given us up by mistake, and never told us. So our own position is looked up,
too, by way of some nodes that we know (`other_rings.SecondLook`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect
from hocket.core.ring.key_owners import KeyOwners
from hocket.core.ring.lookups import NAMED_MAX, Outcome
from hocket.core.ring.messages import Pong
from hocket.core.ring.other_rings import SecondLook
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers

GUIDES = 2  # nodes by way of which we look ourselves up


@dataclass(slots=True)
class _Choice:
    """The choice of one finger. Invariant: the node that is chosen has answered."""

    exponent: int
    out: int  # pings without an answer yet
    is_made: bool = False


class FingerCare:
    """See the head of the file."""

    def __init__(
        self, node: OwnNode, pointers: Pointers, key_owners: KeyOwners, second_look: SecondLook
    ) -> None:
        self._node = node
        self._pointers = pointers
        self._key_owners = key_owners
        self._second_look = second_look
        self._last = -1  # the exponent of the last turn; -1: none
        self._after = node.me.position  # the next guides lie after this position

    def due(self, now_us: int) -> list[Effect]:
        node = self._node
        exponent = node.fingers.next_exponent(self._pointers.successors)
        effects: list[Effect] = []
        if exponent is None or exponent >= self._last:
            guides = node.routes.passive(self._after, GUIDES)
            self._after = guides[-1].position if guides else node.me.position
            effects += self._second_look.by_way_of(guides, now_us)
        self._last = -1 if exponent is None else exponent
        if exponent is None:
            return effects
        target = node.fingers.target(exponent)
        done = partial(self._found, exponent)
        own = self._key_owners.closer(0, target, NAMED_MAX)
        return effects + node.lookups.start(target, done, now_us, own=own)

    def _found(self, exponent: int, outcome: Outcome) -> list[Effect]:
        node = self._node
        if not outcome.owners:  # a lookup that failed says nothing about the finger
            return []
        candidates = node.fingers.candidates(exponent, outcome.owners)
        if not candidates:
            node.fingers.drop(exponent)
        choice = _Choice(exponent, len(candidates))
        effects: list[Effect] = []
        for contact in candidates:
            done = partial(self._answered, choice, contact)
            effects += node.pings.send(contact, done, node.now_us)
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
            self._node.fingers.put(choice.exponent, contact)
        elif not choice.out and not choice.is_made:
            self._node.fingers.drop(choice.exponent)
        return []
