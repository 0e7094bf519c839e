"""On which nodes the replicas of a partition are best kept.

Rule: pure arithmetic on what it is given. What comes out is a wish; who holds a partition is said
by its own log.

The partition's key names a place on the ring. The nodes that come next, a window of them, are those
to choose from, so that a node shares partitions with its neighbours only. Within the window failure
domains come first, then who has the partition already, then who has least to do. The choice in the
window evens out what the arcs of the ring leave uneven.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from hocket.core.relay.messages import Place
from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact

WINDOW = 8


@dataclass(slots=True, eq=False)
class Placeable:
    """A live node, as placement sees it."""

    contact: Contact
    load: float = 0.0
    capacity: float = 1.0  # in the same unit; 0: takes nothing unless nobody else can
    is_member: bool = False  # holds a replica of this partition already

    @property
    def fullness(self) -> float:
        return self.load / self.capacity if self.capacity > 0 else inf

    @property
    def domain(self) -> str:
        """What fails together with it. A node without a label is a domain of its own."""
        return self.contact.domain or f"node {self.contact.node}"


def key_of(place: Place) -> int:
    """Part of the protocol. No topic's name holds a NUL, so no two places share one text."""
    return position_of(f"{place.topic}\0{place.partition}")


def window_of(key: int, nodes: Sequence[Placeable], count: int = WINDOW) -> list[Placeable]:
    """The next `count` nodes clockwise, one at the key included. `nodes` are sorted by position."""
    start = bisect_left(nodes, key, key=_position)
    window = list(nodes[start : start + count])
    return window + list(nodes[: min(start, count - len(window))])


def place(
    key: int, nodes: Sequence[Placeable], replicas: int, window: int = WINDOW
) -> list[Contact]:
    """The nodes for a partition's replicas, fewer if there are fewer nodes.

    `nodes` are all that live, sorted by position. Each further replica goes to a domain that has
    none yet, as long as the window has one; among those, members first, then the least full, then
    the next on the ring.
    """
    free = window_of(key, nodes, window)
    chosen: list[Contact] = []
    domains: list[str] = []

    def rank(node: Placeable) -> tuple[bool, bool, float]:
        return node.domain in domains, not node.is_member, node.fullness

    while free and len(chosen) < replicas:
        best = min(free, key=rank)  # the first of equals: ring order
        free.remove(best)
        chosen.append(best.contact)
        domains.append(best.domain)
    return chosen


def _position(node: Placeable) -> int:
    return node.contact.position
