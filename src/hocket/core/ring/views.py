"""The ring as its nodes see it, for people: every node's own pointers, gathered by one of them.

What is gathered is not a snapshot: each node answers at its own moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.core.ring.contact import Contact
from hocket.core.ring.ring import Ring

ON_THE_RING = ("member", "small")


@dataclass(slots=True)
class GetView:
    """Tell me how you see the ring."""

    request: int


@dataclass(slots=True)
class ViewIs:
    """The answer to `GetView`: how the sender sees the ring."""

    request: int
    me: Contact
    name: str  # for people
    standing: str
    predecessor: Contact | None
    successors: tuple[Contact, ...]
    fingers: tuple[Contact, ...]  # from the longest step to the shortest, each once
    dead: tuple[Contact, ...] = ()  # those that it has given up


ViewMessage = GetView | ViewIs


def view_of(ring: Ring, request: int, name: str) -> ViewIs:
    fingers = sorted(ring.fingers.entries.items(), reverse=True)
    return ViewIs(
        request,
        ring.me,
        name,
        str(ring.standing),
        ring.predecessor,
        tuple(ring.successors),
        tuple(dict.fromkeys(contact for _exponent, contact in fingers)),
        tuple(ring.pointers.deaths.convicted),
    )


def named_in(view: ViewIs) -> list[Contact]:
    """The nodes that the sender counts on, in no particular order."""
    named = [*view.successors, *view.fingers]
    return named if view.predecessor is None else [*named, view.predecessor]


def is_ideal(views: Sequence[ViewIs], successors: int) -> bool:
    """Whether every successor list and every predecessor is exactly right.

    `views` are those of all nodes on the ring, sorted by position. A list that names a node which
    has not answered is not right.
    """
    count = len(views)
    length = min(successors, count - 1)
    for number, view in enumerate(views):
        if view.standing not in ON_THE_RING:
            return False
        following = [views[(number + step) % count].me for step in range(1, length + 1)]
        if list(view.successors) != following:
            return False
        before = views[number - 1].me if count > 1 else None
        if view.predecessor != before and not (count == 1 and view.predecessor == view.me):
            return False
    return count > 0
