"""The nodes that a relay feeds, and the choice where a newcomer goes when there is no room.

Theory. Each child has the arc of the ring from its own position clockwise to the position of the
next child. A newcomer goes to the child in whose arc the newcomer lies: the child that comes
closest before it. That takes nothing but the positions of the children, sends the same newcomer the
same way each time, also after a repair, and narrows at every level, as the children of that child
lie in its arc. Positions are hashes, so arcs are unequal: the longest of k arcs is about ln k times
the mean. With arcs alone the tree would be deep there. So a child that carries much more than the
mean does not get the newcomer; the least loaded child does. (Scribe, JSAC 2002, section IV pushes
down likewise, by distance in the network.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hocket.core.relay.messages import Fetch
from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact

OVERLOADED = 1.25  # a child with more than so many times the mean load, and one, gets no newcomer


class Child:
    __slots__ = (
        "contact", "credit_bytes", "load", "next_offset", "request", "sent_bytes", "silent",
        "waiting",
    )  # fmt: skip

    def __init__(self, contact: Contact, request: int, next_offset: int, load: int) -> None:
        self.contact = contact
        self.request = request  # the newest that was heard; a request that is older is late
        self.next_offset = next_offset  # where the child goes on after what was sent to it
        self.load = load  # consumers at the child and below, as it said, and those sent to it since
        self.credit_bytes = 0  # of the newest fetch
        self.sent_bytes = 0  # of batches, since it is a child
        self.silent = 0  # ticks since the child was heard
        self.waiting: Fetch | None = None  # the fetch that is not answered yet

    @property
    def is_eager(self) -> bool:
        """The child wants what comes next, and asks for it now or in a moment."""
        return self.credit_bytes > 0 and self.silent == 0

    def is_newer_than(self, sender: Contact, request: int) -> bool:
        """Whether the child has said something newer. A new life counts requests from anywhere."""
        return (self.contact.incarnation, self.request) >= (sender.incarnation, request)


class Children:
    """The children by the node's name: a new life of a node replaces the old one."""

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
        """Drop each suspect, which others could not reach, if it is silent here too."""
        for suspect in suspects:
            child = self.get(suspect)
            if child is not None and child.silent >= ticks:
                self.drop(suspect)

    def choose(self, newcomer: Contact, load: int, avoid: Sequence[Contact]) -> Contact:
        """Where a newcomer with `load` consumers is sent to; if possible to none of `avoid`."""
        avoided = [contact.node for contact in avoid]
        able = [child for child in self if child.contact.node not in avoided] or list(self)
        chosen = min(able, key=lambda child: distance(child.contact.position, newcomer.position))
        if chosen.load > OVERLOADED * sum(child.load for child in able) / len(able) + 1:
            chosen = min(able, key=lambda child: child.load)
        chosen.load += load
        return chosen.contact
