"""Which nodes own a key, as far as this node can tell.

It tells other nodes, as a step of their lookups, and the user of this node, for whom it begins a
lookup if it does not know the answer itself.
"""

from __future__ import annotations

from functools import partial

from hocket.core.ring import small_ring
from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect, Find, Located, NotLocated
from hocket.core.ring.lookups import NAMED_MAX, Outcome
from hocket.core.ring.messages import CloserAre
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing


class KeyOwners:
    """See the head of the file."""

    def __init__(self, node: OwnNode, pointers: Pointers) -> None:
        self._node = node
        self._pointers = pointers

    def find(self, event: Find, now_us: int) -> list[Effect]:
        if not self._pointers.is_on_the_ring:
            return [NotLocated(event.token, event.key)]
        own = self.closer(0, event.key, NAMED_MAX, by_fingers=event.by_fingers)
        done = partial(self._found, event.token)
        return self._node.lookups.start(
            event.key, done, now_us, own=own, is_urgent=not event.by_fingers,
            by_fingers=event.by_fingers,
        )  # fmt: skip

    def _found(self, token: int, outcome: Outcome) -> list[Effect]:
        if not outcome.owners:
            return [NotLocated(token, outcome.key)]
        owners = self._without_the_dead(outcome.owners) or outcome.owners
        return [Located(token, outcome.key, owners, outcome.route)]

    def closer(self, request: int, key: int, count: int, *, by_fingers: bool = False) -> CloserAre:
        """Our answer to a step of a lookup."""
        node, pointers = self._node, self._pointers
        successors = pointers.successors
        mine = node.me.position
        owners: tuple[Contact, ...] = ()
        if pointers.lives_by_registry:
            size = node.settings.successors + 1
            dead = pointers.deaths.convicted
            owners = small_ring.owners(key, node.small.members, size, dead)
        elif pointers.standing is not Standing.MEMBER:
            return CloserAre(request, (), ())
        elif key == mine or (not successors and not pointers.is_seeking):
            owners = (node.me, *successors)
        elif successors and (key - mine) % SIZE <= (successors[0].position - mine) % SIZE:
            owners = tuple(successors)
            owners = self._without_the_dead(owners) or owners
        if owners:
            return CloserAre(request, (), owners)
        # All nodes before the key may be dead without our knowing it.
        away = (key - mine) % SIZE
        beyond = tuple(each for each in successors if (each.position - mine) % SIZE >= away)
        beyond = self._without_the_dead(beyond)
        if by_fingers:
            preceding = node.fingers.preceding(key, successors, count)
        else:
            preceding = node.routes.preceding(key, count)
        return CloserAre(request, preceding, (), beyond)

    def _without_the_dead(self, contacts: tuple[Contact, ...]) -> tuple[Contact, ...]:
        return self._pointers.deaths.left_out(contacts, self._node.now_us)
