"""How a node leaves on purpose.

To the ring it is a failure that nobody has to find out by silence: all who hold us are told, and
from then on we say of this life that it is over. The root is asked a few times to strike us out;
if it does not answer we go all the same.

Where the registry is the ring, we are on it until we are struck out. The registry puts comings and
goings in an order; a node that went before its turn could be missing from a ring that grows large
at that moment, and has nobody to spare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.core.ring.contact import seed
from hocket.core.ring.events import Arm, Disarm, Effect, Left, Send, Strike
from hocket.core.ring.messages import Deregister, Leaving, RegistryIs
from hocket.core.ring.standing import Standing

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

LEAVE = ("leave", 0)  # the timer
TRIES = 3


class Departure:
    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._tries = TRIES
        self._request = 0

    def begin(self) -> list[Effect]:
        stays = self._ring.lives_by_registry
        return self.go_on() if stays else self._say_farewell() + self.go_on()

    def _say_farewell(self) -> list[Effect]:
        ring = self._ring
        farewell = Leaving(ring.me, ring.predecessor, tuple(ring.successors))
        effects: list[Effect] = [Send(each, farewell) for each in ring.acquaintances()]
        ring.stop(Standing.LEAVING)
        return effects

    def go_on(self) -> list[Effect]:
        ring = self._ring
        if not self._tries or (ring.root is None and not ring.beacon.root):
            return self.end()
        self._tries -= 1
        self._request = ring.requests.take()
        again = Arm(LEAVE, ring.settings.query_us)
        if ring.root is not None:
            return [Strike(ring.me, None, self._request), again]
        return [Send(seed(ring.beacon.root), Deregister(self._request, ring.me)), again]

    def is_struck_out(self, message: RegistryIs) -> bool:
        is_few = message.count == len(message.members)
        return message.request == self._request or (is_few and self._ring.me not in message.members)

    def end(self) -> list[Effect]:
        effects = self._say_farewell() if self._ring.is_on_the_ring else []
        self._ring.stop(Standing.OUTSIDE)
        return [*effects, Disarm(LEAVE), Left()]
