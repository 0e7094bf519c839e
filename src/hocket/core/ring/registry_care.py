"""What a node on the ring does with the registry of nodes: ask for it, serve it, live by it.

The root keeps the registry (`root`). A ring of at most r + 1 registered nodes lives by it
(`small_ring`). There every node must have the newest version, and asks for it when a beacon names a
version that the node does not have. Nodes of a large ring need the registry only to join. A node of
a large ring may be told that the ring has become small, and lives by the registry again.
"""

from __future__ import annotations

from functools import partial

from hocket.core.ring import small_ring
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Effect, Enrol, RegistryChanged, Send, Strike
from hocket.core.ring.messages import (
    AskRoot,
    Beacon,
    Deregister,
    GetRegistry,
    Pong,
    Register,
    RegistryIs,
)
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing


class RegistryCare:
    """See the head of the file."""

    def __init__(self, node: OwnNode, pointers: Pointers) -> None:
        self._node = node
        self._pointers = pointers

    # --- at the root, and at nodes that are taken for it ---------------------

    def asked(self, sender: Contact, message: Register | Deregister | GetRegistry) -> list[Effect]:
        root = self._node.root
        if root is None:
            # A node that is joining itself has no beacon yet, and perhaps names no root.
            small = self._pointers.standing is not Standing.MEMBER
            return [Send(sender, AskRoot(message.request, self._node.root_beacon, small))]
        if not root.is_ready:
            return []
        if isinstance(message, GetRegistry):
            return [Send(sender, root.answer(message.request, sender))]
        if isinstance(message, Register):
            return [Enrol(message.who, sender, message.request)]
        return [Strike(message.who, sender, message.request)]

    def changed(
        self, event: RegistryChanged, now_us: int
    ) -> tuple[list[Effect], RegistryIs | None]:
        """What others are told, and what the root itself is told by its registry.

        None: the root itself is told nothing yet, since it is not on its way to the ring, or the
        registry is not complete.
        """
        root = self._node.root
        assert root is not None, "only the root keeps the registry"
        effects = root.changed(event)
        if self._pointers.standing is Standing.OUTSIDE or not root.is_ready:
            return [], None
        self._node.beacons.take(root.beacon, now_us)
        request = event.request if event.sender is None else 0
        return effects, root.answer(request, self._node.me)

    # --- at every node -------------------------------------------------------

    def told(self, message: RegistryIs, now_us: int) -> list[Effect]:
        """The root tells a node that is on the ring what the registry says."""
        node, pointers = self._node, self._pointers
        if message.beacon.registry <= node.small.version:
            return []
        node.small.learn(message.beacon.registry)
        lives_by_it = pointers.lives_by_registry
        if lives_by_it:
            node.beacons.take(message.beacon, now_us)
        is_few = message.count <= node.settings.successors + 1
        if is_few and node.me in message.members:
            return pointers.become_small(message.members)
        if lives_by_it:
            return self._outgrow(message)
        return []

    def _outgrow(self, message: RegistryIs) -> list[Effect]:
        """The ring is large now. The node that came last joins; the founders stabilize."""
        node, pointers = self._node, self._pointers
        if node.me not in message.founders:  # this node was struck, or missed too many changes
            return pointers.begin_again()
        count = node.settings.successors
        return pointers.become_member(*small_ring.neighbours(node.me, message.founders, count))

    def take_beacon(self, beacon: Beacon, now_us: int) -> list[Effect]:
        """A beacon came by our own ring. If it names a newer registry, ask for that.

        Thousands of nodes need not ask; those do that the change may concern.
        """
        node, pointers = self._node, self._pointers
        if not node.beacons.take(beacon, now_us) or beacon.registry <= node.small.version:
            return []
        return self.fetch() if pointers.lives_by_registry or pointers.comes_round else []

    def fetch(self) -> list[Effect]:
        """Ask the root for the registry."""
        node = self._node
        if node.root is not None or not node.root_address:
            return []
        return [Send(seed(node.root_address), GetRegistry(node.requests.take()))]

    def look_after_small(self, now_us: int) -> list[Effect]:
        """Nobody stabilizes on a small ring, so another member is pinged at every turn."""
        node = self._node
        member = node.small.next_to_ping(node.me)
        if member is None:
            return []
        return node.pings.send(member, partial(self._pinged, member), now_us)

    def _pinged(
        self, member: Contact, sender: Contact | None, _pong: Pong | None, now_us: int
    ) -> list[Effect]:
        return self._pointers.suspect(member, now_us) if sender is None else []
