"""Rings so small that the registry is the ring.

Zave's invariant demands r + 1 nodes that no successor list skips, where r is the length of a list.
A ring of at most r + 1 registered nodes has none to spare. There every list would hold every other
node anyway, so each node computes its neighbours from the registry, and nobody stabilizes. When one
more node is registered, the others begin to stabilize from what they have: an ideal ring of r + 1,
which is the initial state that the proof asks for. The new node then joins as on any ring.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Sequence

from hocket.core.ring.contact import Contact


class SmallRing:
    """What this node knows of the registry: its version, and on a small ring all of its members."""

    __slots__ = ("_turn", "members", "version")

    def __init__(self) -> None:
        self.version = -1  # -1 until anything is known
        self.members: tuple[Contact, ...] = ()  # sorted by position; this node is among them
        self._turn = 0  # whose turn it is to be pinged

    def learn(self, version: int) -> None:
        self.version = version

    def live_by(self, members: tuple[Contact, ...]) -> None:
        """From now on these members are the ring."""
        self.members = members

    def next_to_ping(self, me: Contact) -> Contact | None:
        """Each other member in turn, also one that was given up: it may be back."""
        others = [member for member in self.members if member != me]
        if not others:
            return None
        self._turn = (self._turn + 1) % len(others)
        return others[self._turn]


def neighbours(
    me: Contact, members: Sequence[Contact], count: int
) -> tuple[list[Contact], Contact | None]:
    """The successors and the predecessor of `me`.

    `members` are sorted by position, and `me` is among them.
    """
    size = len(members)
    here = bisect_left(members, me)
    count = min(count, size - 1)
    successors = [members[(here + step) % size] for step in range(1, count + 1)]
    return successors, members[here - 1] if size > 1 else None


def owners(
    key: int, members: Sequence[Contact], count: int, dead: Container[Contact]
) -> tuple[Contact, ...]:
    """The first `count` members at and behind a key that are not in `dead`.

    `members` are sorted by position.
    """
    first = bisect_left(members, key, key=_position)
    turned = [*members[first:], *members[:first]]
    return tuple([member for member in turned if member not in dead][:count])


def _position(contact: Contact) -> int:
    return contact.position
