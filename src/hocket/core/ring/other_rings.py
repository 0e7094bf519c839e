"""Looking for another ring, when ours has lost the root (see `beacons`).

We ping some whom we know, those given up lately too: when a network is cut, the other side is just
those. Whoever has a newer beacon than ours shows the way to look our own position up over there. If
we are its owner there, then it is our own ring, and only the beacon was late. If another node is,
we tell it of us (see `second_look`). Often that is enough, and a newer beacon comes by way of it.
If none comes, we drop all we have and join again: ring state is soft.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Effect
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import Beacon, Pong

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

BEGIN_AGAIN = ("begin again", 0)  # the timer
PROBES = 3  # at a time, beside the root and a seed
PATIENCE = 2  # periods of stabilization, in which a beacon may come from those we have met


class OtherRings:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._after = ring.me.position  # where the round of those we know goes on
        self._turn = 0  # among the seeds
        self._is_looking = False  # a lookup on the other ring is out
        self._is_going = False  # we are about to join there

    def look(self, now_us: int) -> list[Effect]:
        ring = self._ring
        known = ring.routes.passive(self._after, PROBES)
        if known:
            self._after = known[-1].position
        addresses = [contact.address for contact in known]
        if ring.seeds:
            self._turn = (self._turn + 1) % len(ring.seeds)
            addresses.append(ring.seeds[self._turn].address)
        addresses.append(ring.beacon.root)
        effects: list[Effect] = []
        for address in dict.fromkeys(addresses):
            if address not in ("", ring.me.address):
                # Whoever lives there now: the life that we knew may be over.
                effects += ring.pings.send(seed(address), self._answered, now_us)
        return effects

    def _answered(self, sender: Contact | None, pong: Pong | None, now_us: int) -> list[Effect]:
        ring = self._ring
        if sender is None or pong is None or pong.beacon <= ring.beacon or self._is_looking:
            return []
        if ring.lives_by_registry:  # then there is one ring, whoever tells of it
            return ring.take_beacon(pong.beacon, now_us)
        self._is_looking = True
        done = partial(self._looked, pong.beacon)
        return ring.lookups.start(ring.me.position, done, now_us, via=(sender,))

    def _looked(self, beacon: Beacon, outcome: Outcome) -> list[Effect]:
        ring = self._ring
        self._is_looking = False
        if not outcome.owners:
            return []
        if outcome.owners[0] == ring.me:
            return ring.take_beacon(beacon, ring.now_us)
        if self._is_going:
            return []
        self._is_going = True
        settings = ring.settings
        patience = Arm(BEGIN_AGAIN, PATIENCE * settings.stabilize_us, settings.rejoin_jitter_us)
        return [patience, *ring.meet(outcome.owners[0], ring.now_us)]

    def due(self, now_us: int) -> list[Effect]:
        """Those who were cut off come back one by one; a beacon may have come by our ring since."""
        self._is_going = False
        ring = self._ring
        return ring.begin_again() if ring.beacons.is_stale(now_us) else []
