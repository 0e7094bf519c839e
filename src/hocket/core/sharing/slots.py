"""Which consumer a key belongs to: 65,536 slots, spread evenly over the consumers of a partition.

A consumer that comes takes a little from each, and one that goes leaves its slots to the others:
nothing moves but what has to. Slots are held in ranges, not at random, because the keys of one
partition of many have only every so-many-th slot, and a range has its share of those.
"""

from __future__ import annotations

from bisect import bisect_right

from hocket.core.sharing.ranges import Range, joined, length

SLOTS = 1 << 16
NOBODY = 0  # is no consumer's number


class Slots:
    __slots__ = ("_owners", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._owners: list[int] = [NOBODY]

    def owner(self, slot: int) -> int:
        return self._owners[bisect_right(self._starts, slot) - 1]

    def ranges(self) -> dict[int, list[Range]]:
        """What each one has."""
        ends = [*self._starts[1:], SLOTS]
        found: dict[int, list[Range]] = {}
        for start, end, owner in zip(self._starts, ends, self._owners, strict=True):
            joined(found.setdefault(owner, []), start, end)
        return found

    def spread(self, members: list[int]) -> None:
        """Share the slots out among these, who are named once each."""
        had = self.ranges()
        kept = {member: had.get(member, []) for member in members}
        free = [each for owner, ranges in had.items() if owner not in kept for each in ranges]
        sizes = {member: length(ranges) for member, ranges in kept.items()}
        share, rest = divmod(SLOTS, len(members) or 1)
        # Who has most keeps one more, so that the odd slots do not move either.
        ranked = sorted(members, key=lambda member: -sizes[member])
        quotas = {member: share + (rank < rest) for rank, member in enumerate(ranked)}
        for member, ranges in kept.items():
            free += _taken_from(ranges, sizes[member] - quotas[member])
        free.sort()
        for member, ranges in kept.items():
            ranges += _taken_from(free, quotas[member] - sizes[member])
        self._set([(NOBODY, free), *kept.items()])

    def _set(self, owned: list[tuple[int, list[Range]]]) -> None:
        rows = sorted((start, owner) for owner, ranges in owned for start, _ in ranges)
        self._starts = [start for start, _ in rows]
        self._owners = [owner for _, owner in rows]


def _taken_from(ranges: list[Range], wanted: int) -> list[Range]:
    """Take so many slots from the end of these; none if that is less than one."""
    taken: list[Range] = []
    while wanted > 0:
        start, end = ranges.pop()
        cut = max(start, end - wanted)
        taken.append((cut, end))
        wanted -= end - cut
        if cut > start:
            ranges.append((start, cut))
    return taken
