"""How a node leaves on purpose.

To the ring a leave is a failure that nobody has to find out by silence: we tell all nodes that we
hold, and from then on we answer that this life is over. We ask the root a few times to strike us
from the registry; if it does not answer we go all the same.

Where the registry is the ring, we are on the ring until we are struck. The registry puts joins and
leaves in an order. A node that went before its turn could be missing from a ring that grows large
at that moment, and has no node to spare.
"""

from __future__ import annotations

from hocket.core.ring.contact import seed
from hocket.core.ring.events import Arm, Disarm, Effect, Left, Send, Strike
from hocket.core.ring.messages import Deregister, Leaving, RegistryIs
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing

LEAVE = ("leave", 0)  # the timer
TRIES = 3  # how often the root is asked


class Departure:
    """See the head of the file. A life has one departure at most."""

    def __init__(self, node: OwnNode, pointers: Pointers) -> None:
        self._node = node
        self._pointers = pointers
        self._tries = TRIES
        self._request = 0

    def begin(self) -> list[Effect]:
        stays = self._pointers.lives_by_registry
        return self.go_on() if stays else self._say_farewell() + self.go_on()

    def _say_farewell(self) -> list[Effect]:
        pointers = self._pointers
        farewell = Leaving(self._node.me, pointers.predecessor, tuple(pointers.successors))
        effects: list[Effect] = [Send(each, farewell) for each in pointers.acquaintances()]
        pointers.stop(Standing.LEAVING)
        return effects

    def go_on(self) -> list[Effect]:
        """Ask the root once more, or end."""
        node = self._node
        if not self._tries or (node.root is None and not node.root_address):
            return self.end()
        self._tries -= 1
        self._request = node.requests.take()
        again = Arm(LEAVE, node.settings.query_us)
        if node.root is not None:
            return [Strike(node.me, None, self._request), again]
        return [Send(seed(node.root_address), Deregister(self._request, node.me)), again]

    def is_struck(self, message: RegistryIs) -> bool:
        """Whether the message says that the registry does not have this node any more."""
        is_few = message.count == len(message.members)
        return message.request == self._request or (is_few and self._node.me not in message.members)

    def end(self) -> list[Effect]:
        effects = self._say_farewell() if self._pointers.is_on_the_ring else []
        self._pointers.stop(Standing.OUTSIDE)
        return [*effects, Disarm(LEAVE), Left()]
