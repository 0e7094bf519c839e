"""The nodes that a relay feeds, and which of them a newcomer is sent to when there is no room.

Theory. Each child has the arc of the ring from its own position clockwise to the next child's. A
newcomer goes to the child whose arc it lies in: the one that comes closest before it. That takes
nothing but the positions of the children, sends the same newcomer the same way each time, also
after a repair, and narrows at every level, as the children of that child lie in its arc. Positions
are hashes, so arcs are unequal, the longest of k about ln k times the mean. Left alone the tree
would be deep there. So a child that carries much more than the mean does not get the newcomer; the
least loaded does. (Scribe, JSAC 2002, section IV pushes down likewise, by distance in the network.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hocket.core.relay.messages import Fetch
from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact

OVERLOADED = 1.25  # times the mean, and one more


class Child:
    __slots__ = ("contact", "credit_bytes", "load", "next_offset", "request", "silent", "waiting")

    def __init__(self, contact: Contact, request: int, next_offset: int, load: int) -> None:
        self.contact = contact
        self.request = request  # the newest that was heard; what is older comes too late
        self.next_offset = next_offset  # where it goes on when it has got what was sent
        self.load = load  # consumers at it and below, as it said; and those we sent there since
        self.credit_bytes = 0  # of its newest fetch
        self.silent = 0  # ticks since it was heard
        self.waiting: Fetch | None = None  # a fetch not answered yet

    @property
    def is_eager(self) -> bool:
        """It wants what comes next, and will ask for it in a moment if it does not ask now."""
        return self.credit_bytes > 0 and self.silent == 0

    def is_newer_than(self, sender: Contact, request: int) -> bool:
        """A new life counts its requests from anywhere."""
        return (self.contact.incarnation, self.request) >= (sender.incarnation, request)


class Children:
    """By the node's name: a new life of a node takes the place of the old one."""

    __slots__ = ("_by_node", "_max")

    def __init__(self, children_max: int) -> None:
        self._max = children_max
        self._by_node: dict[str, Child] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._by_node.values())

    @property
    def contacts(self) -> tuple[Contact, ...]:
        return tuple(child.contact for child in self)

    @property
    def room(self) -> int:
        return max(0, self._max - len(self._by_node))

    @property
    def load(self) -> int:
        return sum(child.load for child in self)

    def get(self, contact: Contact) -> Child | None:
        return self._by_node.get(contact.node)

    def put(self, child: Child) -> None:
        self._by_node[child.contact.node] = child

    def drop(self, contact: Contact) -> None:
        self._by_node.pop(contact.node, None)

    def clear(self) -> None:
        self._by_node.clear()

    def drop_if_silent(self, suspects: Sequence[Contact], ticks: int) -> None:
        """Others could not reach them, and they are silent here too: that is enough."""
        for suspect in suspects:
            child = self.get(suspect)
            if child is not None and child.silent >= ticks:
                self.drop(suspect)

    def choose(self, newcomer: Contact, load: int, avoid: Sequence[Contact]) -> Contact:
        """Where a newcomer with so many consumers is sent, if possible to none of `avoid`."""
        avoided = [contact.node for contact in avoid]
        able = [child for child in self if child.contact.node not in avoided] or list(self)
        chosen = min(able, key=lambda child: distance(child.contact.position, newcomer.position))
        if chosen.load > OVERLOADED * sum(child.load for child in able) / len(able) + 1:
            chosen = min(able, key=lambda child: child.load)
        chosen.load += load
        return chosen.contact
