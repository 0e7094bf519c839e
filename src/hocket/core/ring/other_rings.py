"""How two rings become one again, after a cut or a mistake.

Stabilization never makes one ring of two, so a node looks for others in two ways.

`SecondLook`: silence is no proof of death. A cut makes the living look dead to each other, and when
the cut is healed there may be two rings where one was. Those two may know each other by some old
fingers, and so share even the beacon. Therefore, at every stabilization, we ping one of the nodes
that we gave up lately; every other time it is the one that would be our successor. A node that
answers, or speaks to us by itself, shows that we were wrong about it, and perhaps about more nodes.
If it lies before our successor, we ask it to be our successor. Then we look our own position up by
way of that node. If another node is taken for the owner over there, we notify that owner, and
likewise ask it to be our successor if it lies before the one we have (`Pointers.meet`). None of
this can do harm: a notification sets a predecessor at most, and the question is Zave's
StabilizeFromPredecessor, for which it does not matter how we have heard of the nearer node.
Stabilization does the rest.

`OtherRings`: our ring has lost the root if no beacon comes any more (`root.Beacons`). Then we ping
some nodes that we know, also those that we gave up lately: when a network is cut, the nodes on the
other side are the ones that were given up. A node that has a newer beacon than ours leads a lookup
of our own position on its ring. If we are the owner of that position there, then it is our own
ring, and only the beacon was late. If another node is the owner, we meet it as above. Often that is
enough, and a newer beacon comes by way of it. If none comes, we drop all we have and join again:
ring state is soft.
"""

from __future__ import annotations

from functools import partial

from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Effect
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import Beacon, Pong
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing
from hocket.core.ring.registry_care import RegistryCare
from hocket.core.ring.settings import SECOND

BEGIN_AGAIN = ("begin again", 0)  # the timer
LATELY_US = 600 * SECOND  # for so long; afterwards only a stale beacon leads to that node
PROBES = 3  # nodes pinged at a time, beside the root and a seed
PATIENCE = 2  # periods of stabilization in which a beacon may come from the node we notified


class SecondLook:
    """Looks again at the nodes that this node gave up, and at its own position."""

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


class OtherRings:
    """Looks for the ring that has the root, when no beacon comes any more."""

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
