"""Which consumer a key belongs to: 65,536 slots, spread evenly over the consumers of a partition.

A consumer that comes takes a few slots from each, and one that goes leaves its slots to the others:
no other slot moves. Each consumer has ranges of slots and not slots at random: the keys of one
partition of n fall on every n-th slot only, and each range has its share of those.
"""

from __future__ import annotations

from bisect import bisect_right

from hocket.core.sharing.ranges import Range, joined, length

SLOTS = 1 << 16
NOBODY = 0  # owns a slot while there are no consumers; no consumer has this number


class Slots:
    __slots__ = ("_owners", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._owners: list[int] = [NOBODY]

    def owner(self, slot: int) -> int:
        return self._owners[bisect_right(self._starts, slot) - 1]

    def ranges(self) -> dict[int, list[Range]]:
        """The ranges of slots that each owner has."""
        ends = [*self._starts[1:], SLOTS]
        found: dict[int, list[Range]] = {}
        for start, end, owner in zip(self._starts, ends, self._owners, strict=True):
            joined(found.setdefault(owner, []), start, end)
        return found

    def spread(self, consumers: list[int]) -> None:
        """Leases the slots out among these, who are named once each."""
        had = self.ranges()
        kept = {consumer: had.get(consumer, []) for consumer in consumers}
        free = [each for owner, ranges in had.items() if owner not in kept for each in ranges]
        sizes = {consumer: length(ranges) for consumer, ranges in kept.items()}
        least, rest = divmod(SLOTS, len(consumers) or 1)
        # Those with the most slots keep one more, so that the odd slots do not move either.
        ranked = sorted(consumers, key=lambda consumer: -sizes[consumer])
        quotas = {consumer: least + (rank < rest) for rank, consumer in enumerate(ranked)}
        for consumer, ranges in kept.items():
            free += _taken_from(ranges, sizes[consumer] - quotas[consumer])
        free.sort()
        for consumer, ranges in kept.items():
            ranges += _taken_from(free, quotas[consumer] - sizes[consumer])
        self._set([(NOBODY, free), *kept.items()])

    def _set(self, owned: list[tuple[int, list[Range]]]) -> None:
        rows = sorted((start, owner) for owner, ranges in owned for start, _ in ranges)
        self._starts = [start for start, _ in rows]
        self._owners = [owner for _, owner in rows]


def _taken_from(ranges: list[Range], wanted: int) -> list[Range]:
    """Take this many slots from the end of the ranges, in place; none if `wanted` is negative."""
    taken: list[Range] = []
    while wanted > 0:
        start, end = ranges.pop()
        cut = max(start, end - wanted)
        taken.append((cut, end))
        wanted -= end - cut
        if cut > start:
            ranges.append((start, cut))
    return taken
