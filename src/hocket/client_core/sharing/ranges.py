"""Offsets as ranges: what is told about many messages of a partition is told in few words."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.frames import unpacked

Range = tuple[int, int]  # half-open
Run = tuple[int, int, int]  # start, end, delivery count: messages side by side, delivered as often


def triples(data: bytes) -> list[tuple[int, int, int]]:
    """The numbers in a field of a frame, three by three."""
    numbers = unpacked(data)
    return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """The ranges that these offsets make up, in order; an offset given twice counts once."""
    ordered = sorted(offsets)
    if not ordered:
        return []
    if len(ordered) == ordered[-1] - ordered[0] + 1 == len(set(ordered)):
        return [(ordered[0], ordered[-1] + 1)]
    found = []
    start = end = ordered[0]
    for offset in ordered:
        if offset > end:
            found.append((start, end))
            start = offset
        end = offset + 1
    found.append((start, end))
    return found


def in_words(ranges: Iterable[Range]) -> str:
    """3, 7 to 9"""
    return ", ".join(
        f"{start}" if end == start + 1 else f"{start} to {end - 1}" for start, end in ranges
    )
