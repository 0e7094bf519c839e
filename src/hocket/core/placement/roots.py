"""Which replica of a partition a node takes the batches from, where several may root a tree.

Each replica has the log anyway. So nodes divide themselves among the replicas: by a hash of both
names (rendezvous hashing, Thaler and Ravishankar 1998), which anybody can work out, which spreads
nodes evenly, and which moves only the nodes of a replica that goes. The leader is a replica like
the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact


def root_for(node: str, replicas: Iterable[Contact]) -> Contact | None:
    """The replica that this node asks first; None: there is none beside itself."""
    others = (each for each in replicas if each.node != node)
    return max(others, key=lambda each: position_of(f"{node}\0{each.node}"), default=None)
