"""Where on the ring a node may settle, and where it does.

Rule: a position follows from the node's identity, which is the public key of its certificate, and
from a number below a small bound. So others can check it, and nobody can take a place next to a key
of their choice without making many certificates.

Of its few candidates a node takes the one that evens the ring out best (k-Choices, Ledlie and
Seltzer 2005). That does what many virtual nodes would do, without a set of neighbours for each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from hocket.core.ring.circle import SIZE, position_of

CANDIDATES = 16


def candidates(identity: bytes, count: int = CANDIDATES) -> tuple[int, ...]:
    """Part of the protocol: every node must come to the same answer."""
    return tuple(position_of(identity + number.to_bytes(2, "big")) for number in range(count))


def is_candidate(identity: bytes, position: int, count: int = CANDIDATES) -> bool:
    return position in candidates(identity, count)


def choose(candidates: Sequence[int], members: Sequence[int]) -> int:
    """The candidate that cuts off the largest lesser part of an arc; of equals the first.

    `members` are the positions taken, sorted. The lesser part is large if the arc is, and if the
    cut is even: both are wanted.
    """
    if not members:
        return candidates[0]

    def lesser_part(candidate: int) -> int:
        place = bisect_left(members, candidate)
        after = members[place % len(members)]
        before = members[place - 1]
        # A lone member's arc goes all the way round: the two parts make up the circle either way.
        return min((candidate - before) % SIZE, (after - candidate) % SIZE)

    return max(candidates, key=lesser_part)
