"""Arithmetic on the circle of ring positions, which are the integers below 2^64."""

from __future__ import annotations

from hashlib import blake2b

BITS = 64
SIZE = 1 << BITS


def between(start: int, point: int, end: int) -> bool:
    """Strictly, going clockwise. Between a point and itself lies all of the circle but it."""
    if start < end:
        return start < point < end
    return start < point or point < end


def distance(start: int, end: int) -> int:
    """How far it is clockwise; 0 from a point to itself."""
    return (end - start) % SIZE


def position_of(name: str | bytes) -> int:
    """Where a name lies. Part of the protocol: every node must come to the same answer."""
    data = name.encode() if isinstance(name, str) else name
    return int.from_bytes(blake2b(data, digest_size=BITS // 8).digest(), "big")
