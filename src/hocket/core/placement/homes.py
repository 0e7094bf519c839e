"""Which node serves a consumer: the consumer's home.

A consumer's name has a position on the ring, and the next node is the consumer's home: any node can
work that out. Arcs differ in length, so some nodes would have more than their share. If the first
node is well above the mean, a second name of the same consumer gives a second node, and the less
full of the two is the home. This is the power of two choices (Azar et al. 1994). The second choice
is tried only where it is needed, so that most consumers stay where anybody would look first.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.core.placement.placement import Placeable, neighbourhood_of
from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact

FULL = 1.25  # times the mean: a node that is fuller passes new consumers on


def home_of(consumer: str, nodes: Sequence[Placeable], mean: float) -> Contact | None:
    """The home of a consumer; None if there is no node.

    `nodes` are all live nodes, sorted by position. `mean` is the mean fullness of those that have
    any capacity.
    """
    first = _successor(position_of(consumer), nodes)
    if first is None:
        return None
    if first.capacity <= 0 or first.fullness > FULL * mean:
        second = _successor(position_of(f"{consumer}\0002"), nodes)
        if second is not None and second.fullness < first.fullness:
            return second.contact
    return first.contact


def _successor(key: int, nodes: Sequence[Placeable]) -> Placeable | None:
    return next(iter(neighbourhood_of(key, nodes, 1)), None)
