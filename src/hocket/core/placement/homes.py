"""At which node a consumer is at home.

A consumer's name lies somewhere on the ring, and the next node is its home: anybody can work that
out. Arcs differ, so some nodes would have more than their part. If the first is well above the
mean, a second name of the same consumer gives a second node, and the less full one is its home: the
power of two choices (Azar et al. 1994), tried only where it is needed so that most stay put.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.core.placement.placement import Placeable, window_of
from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact

FULL = 1.25  # times the mean: then a node passes newcomers on


def home_of(consumer: str, nodes: Sequence[Placeable], mean: float) -> Contact | None:
    """`nodes` are all that live, sorted by position; `mean` is the mean fullness of those that
    have any capacity.

    None if there is no node.
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
    return next(iter(window_of(key, nodes, 1)), None)
