"""Offsets as ranges: what is told about many messages of a partition is told in few words."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]  # half-open


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
