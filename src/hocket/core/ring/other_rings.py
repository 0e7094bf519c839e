"""Looks for another ring, when ours has lost the root (`root.Beacons`).

We ping some nodes that we know, also those that we gave up lately: when a network is cut, the nodes
on the other side are the ones that were given up. A node that has a newer beacon than ours leads a
lookup of our own position on its ring. If we are the owner of that position there, then it is our
own ring, and only the beacon was late. If another node is the owner, we notify it
(`Pointers.meet`). Often that is enough, and a newer beacon comes by way of it. If none comes, we
drop all we have and join again: ring state is soft.
"""

from __future__ import annotations

from functools import partial

from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Effect
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import Beacon, Pong
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers
from hocket.core.ring.registry_care import RegistryCare

BEGIN_AGAIN = ("begin again", 0)  # the timer
PROBES = 3  # nodes pinged at a time, beside the root and a seed
PATIENCE = 2  # periods of stabilization in which a beacon may come from the node we notified


class OtherRings:
    """See the head of the file."""

    def __init__(self, node: OwnNode, pointers: Pointers, registry_care: RegistryCare) -> None:
        self._node = node
        self._pointers = pointers
        self._registry_care = registry_care
        self._after = node.me.position  # the next nodes to ping lie after this position
        self._turn = 0  # among the seeds
        self._is_looking = False  # a lookup on the other ring is out
        self._is_going = False  # we are about to join there

    def look(self, now_us: int) -> list[Effect]:
        """Ping some nodes; each answer carries a beacon."""
        node, seeds = self._node, self._pointers.seeds
        known = node.routes.passive(self._after, PROBES)
        if known:
            self._after = known[-1].position
        addresses = [contact.address for contact in known]
        if seeds:
            self._turn = (self._turn + 1) % len(seeds)
            addresses.append(seeds[self._turn].address)
        addresses.append(node.beacon.root)
        effects: list[Effect] = []
        for address in dict.fromkeys(addresses):
            if address not in ("", node.me.address):
                # Ping whichever life is there: the one that we knew may be over.
                effects += node.pings.send(seed(address), self._answered, now_us)
        return effects

    def _answered(self, sender: Contact | None, pong: Pong | None, now_us: int) -> list[Effect]:
        node = self._node
        if sender is None or pong is None or pong.beacon <= node.beacon or self._is_looking:
            return []
        if self._pointers.lives_by_registry:  # the registry is one ring, whoever tells of it
            return self._registry_care.take_beacon(pong.beacon, now_us)
        self._is_looking = True
        done = partial(self._looked, pong.beacon)
        return node.lookups.start(node.me.position, done, now_us, via=(sender,))

    def _looked(self, beacon: Beacon, outcome: Outcome) -> list[Effect]:
        node = self._node
        self._is_looking = False
        if not outcome.owners:
            return []
        if outcome.owners[0] == node.me:
            return self._registry_care.take_beacon(beacon, node.now_us)
        if self._is_going:
            return []
        self._is_going = True
        settings = node.settings
        patience = Arm(BEGIN_AGAIN, PATIENCE * settings.stabilize_us, settings.rejoin_jitter_us)
        return [patience, *self._pointers.meet(outcome.owners[0], node.now_us)]

    def due(self, now_us: int) -> list[Effect]:
        """Nodes that were cut off come back one by one, so a beacon may have come by our ring."""
        self._is_going = False
        is_stale = self._node.beacons.is_stale(now_us)
        return self._pointers.begin_again() if is_stale else []
