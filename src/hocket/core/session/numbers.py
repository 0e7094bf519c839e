"""The packed lists of numbers in clients' frames, taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.errors import ProtocolError
from hocket.frames import unpacked


def numbers_of(data: bytes) -> list[int]:
    if len(data) % 8:
        raise ProtocolError(f"a packed list of numbers has {len(data)} bytes, not a multiple of 8")
    return unpacked(data)


def partitions_of(positions: bytes) -> list[int]:
    """The partitions of packed pairs (partition, offset)."""
    numbers = numbers_of(positions)
    if len(numbers) % 2:
        raise ProtocolError(f"positions are pairs, and these are {len(numbers)} numbers")
    return numbers[::2]


def triples(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Packed ranges as (partition, start, end)."""
    numbers = numbers_of(data)
    if len(numbers) % 3:
        raise ProtocolError(f"ranges are three numbers each, and these are {len(numbers)}")
    return zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
