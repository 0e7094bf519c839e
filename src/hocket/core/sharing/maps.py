"""The maps of a shared index in one partition: state, count, holder and deadline of each message.

Everything below `start` is settled. The maps begin at `base`, at or a little below `start`, since
moving them up for every few messages would cost more than the room it saves, and they end at
`covered`; what lies behind that has never been touched. Offsets here are those of the partition.
"""

from __future__ import annotations

import re
from array import array
from itertools import groupby

from hocket.core.sharing.ranges import Range

# A message is ... : AVAILABLE to whoever is ready, RESERVED while it is read for a consumer, LEASED
# to one, RESTING after a nack, DYING on its way to the dead letters, WITHHELD since a consumer may
# have it from before a restart, or SETTLED.
AVAILABLE, RESERVED, LEASED, RESTING, DYING, WITHHELD, SETTLED = range(7)

GAP_MAX = 2_000  # messages between two that are read together
COMPACT_MIN = 4_096  # settled messages at the front before the maps are moved up


def _each(*states: int) -> re.Pattern[bytes]:
    """Finds runs of messages that are in one of these states."""
    return re.compile(b"[" + re.escape(bytes(states)) + b"]+")


EACH_OF = {state: _each(state) for state in range(SETTLED + 1)}
EACH_TIMED = _each(LEASED, RESTING, WITHHELD)
EACH_LENT = _each(LEASED, WITHHELD)

_NOT_DONE_OR_DONE = bytes((AVAILABLE, SETTLED)) + bytes(254)


class ShareMap:
    __slots__ = ("base", "counts", "deadlines", "holders", "start", "states")

    def __init__(self, start: int, done: bytes = b"", counts: bytes = b"") -> None:
        self.base = self.start = start
        self.states = bytearray(done.translate(_NOT_DONE_OR_DONE))
        self.counts = bytearray(counts)
        self.holders = array("Q", bytes(8 * len(done)))
        self.deadlines = array("q", bytes(8 * len(done)))

    @property
    def covered(self) -> int:
        return self.base + len(self.states)

    def cover(self, end: int) -> int:
        """Make the maps reach up to there, with what is new AVAILABLE; returns where they ended."""
        covered = self.covered
        if end > covered:
            more = end - covered
            self.states += bytes(more)
            self.counts += bytes(more)
            self.holders.frombytes(bytes(8 * more))
            self.deadlines.frombytes(bytes(8 * more))
        return covered

    def clip(self, start: int, end: int) -> Range:
        """The part of a range that is in the maps; empty, but never inside out."""
        low = min(max(start, self.start), self.covered)  # an offset may be any number
        return low, max(low, min(end, self.covered))

    def runs(self, each: re.Pattern[bytes], start: int, end: int) -> list[Range]:
        """The runs of messages in the states of the pattern, within the range, in order."""
        low, high = self.clip(start, end)
        base = self.base
        return [
            (base + run.start(), base + run.end())
            for run in each.finditer(self.states, low - base, high - base)
        ]

    def by_holder(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(start, end, holder) for each run of messages with one holder."""
        return _equal(self.holders, self.base, start, end)

    def by_deadline(self, start: int, end: int) -> list[tuple[int, int, int]]:
        return _equal(self.deadlines, self.base, start, end)

    def set_state(self, start: int, end: int, state: int) -> None:
        base = self.base
        if end - start == 1:  # with keys most runs are of one message
            self.states[start - base] = state
        else:
            self.states[start - base : end - base] = bytes((state,)) * (end - start)

    def set_holder(self, start: int, end: int, holder: int) -> None:
        base = self.base
        if end - start == 1:
            self.holders[start - base] = holder
        else:
            self.holders[start - base : end - base] = array("Q", (holder,)) * (end - start)

    def set_deadline(self, start: int, end: int, deadline: int) -> None:
        base = self.base
        if end - start == 1:
            self.deadlines[start - base] = deadline
        else:
            self.deadlines[start - base : end - base] = array("q", (deadline,)) * (end - start)

    def recount(self, start: int, end: int, table: bytes) -> None:
        """Change each count to what the table says of it."""
        part = slice(start - self.base, end - self.base)
        self.counts[part] = self.counts[part].translate(table)

    def skip(self, start: int) -> None:
        """What is older is settled, every bit of it."""
        if start >= self.covered:
            for each in (self.states, self.counts, self.holders, self.deadlines):
                del each[:]
            self.base = start
        self.start = start

    def advance(self) -> None:
        """Move `start` behind what is settled, and the maps up if that is worth it."""
        found = EACH_OF[SETTLED].match(self.states, self.start - self.base)
        if found is not None:
            self.start = self.base + found.end()
        dead = self.start - self.base
        if dead < COMPACT_MIN or dead < len(self.states) // 2:
            return
        del self.states[:dead]
        del self.counts[:dead]
        del self.holders[:dead]
        del self.deadlines[:dead]
        self.base = self.start


def _equal(values: array[int], base: int, start: int, end: int) -> list[tuple[int, int, int]]:
    part = values[start - base : end - base]
    first = part[0]
    if part == array(part.typecode, (first,)) * len(part):  # as nearly always
        return [(start, end, first)]
    runs = []
    for value, each in groupby(part):
        length = sum(1 for _ in each)
        runs.append((start, start + length, value))
        start += length
    return runs
