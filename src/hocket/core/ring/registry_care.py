"""What a node does with the registry of nodes: it asks for it, serves it, or lives by it.

The registry is with the root. A ring of at most r + 1 registered nodes lives by it (`small_ring`);
there every node must have the newest version, and asks for it when a beacon names one that it does
not have. Nodes of a large ring need it only to join. One of them may be told that the ring has
become small, and then lives by the registry again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hocket.core.ring import small_ring
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Effect, Enrol, RegistryChanged, Send, Strike
from hocket.core.ring.messages import AskRoot, Deregister, GetRegistry, Pong, Register, RegistryIs
from hocket.core.ring.standing import Standing

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring


class RegistryCare:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    # --- at the root, and at nodes that are taken for it ---------------------

    def asked(self, sender: Contact, message: Register | Deregister | GetRegistry) -> list[Effect]:
        ring = self._ring
        root = ring.root
        if root is None:
            # One that is joining itself knows no beacon, and so names no root.
            small = ring.standing is not Standing.MEMBER
            return [Send(sender, AskRoot(message.request, ring.beacon, small))]
        if not root.is_ready:
            return []
        if isinstance(message, GetRegistry):
            return [Send(sender, root.answer(message.request, sender))]
        if isinstance(message, Register):
            return [Enrol(message.who, sender, message.request)]
        return [Strike(message.who, sender, message.request)]

    def changed(self, event: RegistryChanged, now_us: int) -> list[Effect]:
        ring = self._ring
        root = ring.root
        assert root is not None, "only the root keeps the registry"
        effects = root.changed(event)
        if ring.standing is Standing.OUTSIDE or not root.is_ready:
            return []
        ring.beacons.take(root.beacon, now_us)
        request = event.request if event.sender is None else 0
        return effects + ring.told(ring.me, root.answer(request, ring.me), now_us)

    # --- at every node -------------------------------------------------------

    def told(self, sender: Contact, message: RegistryIs, now_us: int) -> list[Effect]:
        ring = self._ring
        small = ring.small
        is_few = message.count <= ring.settings.successors + 1
        if ring.standing is Standing.JOINING:
            small.version = max(small.version, message.beacon.registry)
            if is_few and ring.me in message.members:
                return ring.enter_small(message.members, message.beacon, now_us)
            if ring.me in message.founders:
                # We were on the small ring before we knew it. The others have us in their lists.
                count = ring.settings.successors
                successors, predecessor = small_ring.neighbours(ring.me, message.founders, count)
                return ring.enter(predecessor, tuple(successors), message.beacon, now_us)
            assert ring.joining is not None
            return ring.joining.told(sender, message, now_us)
        if ring.joining is not None:
            ring.joining.registered_late(message.request)
        if message.beacon.registry <= small.version:
            return []
        small.version = message.beacon.registry
        lives_by_it = ring.lives_by_registry
        if lives_by_it:
            ring.beacons.take(message.beacon, now_us)
        if is_few and ring.me in message.members:
            return ring.become_small(message.members)
        if lives_by_it:
            return self._outgrow(message)
        return []

    def _outgrow(self, message: RegistryIs) -> list[Effect]:
        """The ring is large now. Who came last joins; we begin with those who were there."""
        ring = self._ring
        if ring.me not in message.founders:  # struck out, or nobody knows any more: come back
            return ring.begin_again()
        count = ring.settings.successors
        return ring.become_member(*small_ring.neighbours(ring.me, message.founders, count))

    def news(self) -> list[Effect]:
        """The registry has changed. Thousands need not ask; those whom it may concern do."""
        ring = self._ring
        return self.fetch() if ring.lives_by_registry or ring.comes_round else []

    def fetch(self) -> list[Effect]:
        ring = self._ring
        if ring.root is not None or not ring.beacon.root:
            return []
        return [Send(seed(ring.beacon.root), GetRegistry(ring.requests.take()))]

    def look_after_small(self, now_us: int) -> list[Effect]:
        """Nobody stabilizes here, so one of the others is pinged at every turn."""
        ring = self._ring
        member = ring.small.next_to_ping(ring.me)
        if member is None:
            return []
        return ring.pings.send(member, partial(self._pinged, member), now_us)

    def _pinged(
        self, member: Contact, sender: Contact | None, _pong: Pong | None, now_us: int
    ) -> list[Effect]:
        return self._ring.suspect(member, now_us) if sender is None else []
