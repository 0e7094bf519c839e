"""The circle of ring positions: its arithmetic, and the positions that a node may take.

Positions are the integers below 2^64.

Rule: a node's position follows from the node's identity and from a number below a small bound. So
other nodes can check the position (`is_candidate`), and a node that wants to lie next to a certain
key has to take on many identities. Nodes that meet in the simulator trust each other and do not
check; the links of a real cluster have to.

Of its few candidates a node takes the one that evens the ring out best (k-Choices, Ledlie and
Seltzer 2005). That does what many virtual nodes would do, without a set of neighbours for each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b

BITS = 64
SIZE = 1 << BITS
CANDIDATES = 16  # positions of which a node takes one


def between(start: int, point: int, end: int) -> bool:
    """Whether `point` lies strictly between the two, going clockwise from `start`.

    If `start` is `end`, every point but that one lies between.
    """
    if start < end:
        return start < point < end
    return start < point or point < end


def distance(start: int, end: int) -> int:
    """The distance going clockwise; 0 from a point to itself."""
    return (end - start) % SIZE


def position_of(name: str | bytes) -> int:
    """The position of a name. Part of the protocol: all nodes must compute the same position."""
    data = name.encode() if isinstance(name, str) else name
    return int.from_bytes(blake2b(data, digest_size=BITS // 8).digest(), "big")


def candidates(identity: bytes, count: int = CANDIDATES) -> tuple[int, ...]:
    """The positions that a node with this identity may take.

    Part of the protocol: all nodes must compute the same candidates.
    """
    return tuple(position_of(identity + number.to_bytes(2, "big")) for number in range(count))


def is_candidate(identity: bytes, position: int, count: int = CANDIDATES) -> bool:
    return position in candidates(identity, count)


def choose(candidates: Sequence[int], members: Sequence[int]) -> int:
    """The candidate with the largest *lesser part*; the first of equals.

    `members` are the positions that are taken, sorted. A candidate cuts an arc between two members
    in two; the smaller piece is the lesser part. It is large if the arc is long and the cut is
    even: both are wanted.
    """
    if not members:
        return candidates[0]

    def lesser_part(candidate: int) -> int:
        index = bisect_left(members, candidate)
        after = members[index % len(members)]
        before = members[index - 1]
        # A lone member's arc goes all the way round: the two parts make up the circle either way.
        return min((candidate - before) % SIZE, (after - candidate) % SIZE)

    return max(candidates, key=lesser_part)
