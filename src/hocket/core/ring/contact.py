"""Who a node is, as other nodes know it."""

from __future__ import annotations

from typing import NamedTuple


class Contact(NamedTuple):
    """One life of one node, with its position on the ring.

    A node that starts again, or joins again after a cut, is a new incarnation. A message to or from
    an older incarnation is not about the new one. A contact is a tuple because contacts are
    compared and hashed all the time.
    """

    position: int
    node: str  # the node's name, the same in every life
    incarnation: int  # 0: unknown; a seed, of which only the address is known
    address: str
    domain: str = ""  # what fails together: a rack, a zone
    capacity: int = 1  # how many partitions it takes, relative to others; 0: none, if another can


def seed(address: str) -> Contact:
    """The contact of whichever node is at this address; nothing else is known about it."""
    return Contact(0, "", 0, address)
