"""Rings so small that the registry is the ring.

Zave's invariant wants more nodes than a successor list is long: r + 1 at least that no list skips.
A ring of at most r + 1 registered nodes has no such reserve. There every list would hold every node
anyway, so each node computes its neighbours from the registry, and nobody stabilizes. When one node
more is registered, the others begin to stabilize from what they have: an ideal ring of r + 1, which
is the initial state that the proof asks for. The new one then joins as on any ring.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Sequence

from hocket.core.ring.contact import Contact


class SmallRing:
    """What we know of the registry. Only a ring that lives by it knows all of its members."""

    __slots__ = ("_turn", "members", "version")

    def __init__(self) -> None:
        self.version = -1  # before anything is known
        self.members: tuple[Contact, ...] = ()  # by position, with ourselves among them
        self._turn = 0

    def next_to_ping(self, me: Contact) -> Contact | None:
        """All others in turn, those given up as well: they may be back."""
        others = [member for member in self.members if member != me]
        if not others:
            return None
        self._turn = (self._turn + 1) % len(others)
        return others[self._turn]


def neighbours(
    me: Contact, members: Sequence[Contact], count: int
) -> tuple[list[Contact], Contact | None]:
    """The successors, and the predecessor. `members`: by position, with ourselves among them."""
    size = len(members)
    here = bisect_left(members, me)
    count = min(count, size - 1)
    successors = [members[(here + step) % size] for step in range(1, count + 1)]
    return successors, members[here - 1] if size > 1 else None


def owners(
    key: int, members: Sequence[Contact], count: int, dead: Container[Contact]
) -> tuple[Contact, ...]:
    """The first live nodes at and behind a key."""
    first = bisect_left(members, key, key=_position)
    turned = [*members[first:], *members[:first]]
    return tuple([member for member in turned if member not in dead][:count])


def _position(contact: Contact) -> int:
    return contact.position
