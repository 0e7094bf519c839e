"""Ranges of offsets, half-open, and runs of equal bytes, in which a shared index's maps are read.

A map has one byte for each message. Everything here works on whole stretches of a map, by searches
that run in C, so that a change of a thousand messages costs little more than a change of one.
"""

from __future__ import annotations

import base64
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

Range = tuple[int, int]  # half-open offsets

_RUN = re.compile(rb"(.)\1*", re.DOTALL)
_BLOCK = 4096  # numbers that are looked at together, in search of some that are not 0


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in sorted ranges that neither overlap nor touch."""
    result: list[Range] = []
    last_start, last_end = 0, -1
    for start, end in sorted(ranges):
        if start > last_end:
            if last_end >= 0:
                result.append((last_start, last_end))
            last_start, last_end = start, end
        elif end > last_end:
            last_end = end
    if last_end >= 0:
        result.append((last_start, last_end))
    return result


def joined(ranges: list[Range], start: int, end: int) -> None:
    """Append a range in place; one that follows the last range directly extends it."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))


def clipped(ranges: Sequence[Range], low: int, high: int) -> list[Range]:
    """The parts of these sorted ranges that lie within [low, high)."""
    if not ranges or high <= ranges[0][0] or ranges[-1][1] <= low:
        return []
    if low <= ranges[0][0] and ranges[-1][1] <= high:
        return list(ranges)
    return [
        (max(start, low), min(end, high)) for start, end in ranges if start < high and low < end
    ]


def gaps(ranges: Iterable[Range], low: int, high: int) -> list[Range]:
    """The parts of [low, high) that these ranges, sorted and without overlaps, leave out."""
    left: list[Range] = []
    for start, end in ranges:
        if low < start:
            left.append((low, start))
        low = end
    if low < high:
        left.append((low, high))
    return left


def without(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """The parts of these ranges that the others do not cover; both in any order."""
    others = merged(others)
    return [
        part
        for start, end in merged(ranges)
        for part in gaps(clipped(others, start, end), start, end)
    ]


def length(ranges: Iterable[Range]) -> int:
    return sum(end - start for start, end in ranges)


def equal_runs(data: bytes | bytearray, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, value) for each run of equal bytes in data[start:end]."""
    value = data[start]
    if end - start == 1 or data.count(value, start, end) == end - start:  # as nearly always
        yield start, end, value
        return
    for run in _RUN.finditer(data, start, end):
        yield run.start(), run.end(), data[run.start()]


def runs_of_numbers(numbers: array[int]) -> list[tuple[int, int, int]]:
    """(position, length, number) for each run of equal numbers, zeros left out.

    A run may be cut in two. Most numbers are 0.
    """
    runs: list[tuple[int, int, int]] = []
    zeros = array(numbers.typecode, bytes(numbers.itemsize * _BLOCK))
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        if block == zeros[: len(block)]:
            continue
        at = start
        for number, run in groupby(block):
            count = sum(1 for _ in run)
            if number:
                runs.append((at, count, number))
            at += count
    return runs


def deltas(rows: Sequence[tuple[int, ...]]) -> list[int]:
    """Rows that begin with (start, end), as small numbers.

    Each row becomes its distance from the end of the last one, its length, and its other numbers.
    """
    numbers: list[int] = []
    last = 0
    for start, end, *rest in rows:
        numbers += (start - last, end - start, *rest)
        last = end
    return numbers


def rows_of(numbers: Sequence[int], width: int) -> list[tuple[int, ...]]:
    """The rows that `deltas` was given."""
    rows: list[tuple[int, ...]] = []
    last = 0
    for i in range(0, len(numbers), width):
        start = last + numbers[i]
        last = start + numbers[i + 1]
        rows.append((start, last, *numbers[i + 2 : i + width]))
    return rows


def packed_map(data: bytes | bytearray) -> str:
    """A map as text. The flags of a million messages, at random, take a fifth of a megabyte."""
    return base64.b64encode(zlib.compress(data, 1)).decode()


def unpacked_map(text: str) -> bytearray:
    return bytearray(zlib.decompress(base64.b64decode(text)))
