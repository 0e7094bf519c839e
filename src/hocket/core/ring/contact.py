"""Who a node is, as others know it."""

from __future__ import annotations

from typing import NamedTuple


class Contact(NamedTuple):
    """One life of one node at its place on the ring.

    A node that starts again, or joins again after a cut, is a new incarnation: what is said to or
    by an older one is not about it. A tuple: contacts are compared and hashed at every turn.
    """

    position: int
    node: str  # the node's name, the same in every life
    incarnation: int  # 0: not known, whoever is there (a seed, of which we have only the address)
    address: str
    domain: str = ""  # what fails together: a rack, a zone


def seed(address: str) -> Contact:
    """Somebody of whom only the address is known."""
    return Contact(0, "", 0, address)
