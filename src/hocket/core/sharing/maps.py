"""The maps of a shared index in one partition: state, count, mark, holder, deadline of a message.

Every message below `start` is settled. The maps begin at `base`, which is `start` or a little less:
moving the maps up for every few messages would cost more than the room that it saves. The maps end
at `covered`; messages behind it were never leased. Offsets here are those of the partition.
"""

from __future__ import annotations

import re
from array import array
from itertools import groupby

from hocket.core.sharing.ranges import Range, equal_runs

# The states of a message: AVAILABLE to any consumer that is ready, RESERVED while it is read for
# one, LEASED to one, RESTING after a nack, DYING on its way to the dead letters, WITHHELD because a
# consumer may have it from before a restart, SETTLED, ALONE if it is available but suspect: then
# only a consumer that has nothing else may have it.
AVAILABLE, RESERVED, LEASED, RESTING, DYING, WITHHELD, SETTLED, ALONE = range(8)
STATES = 8

GAP_MAX = 2_000  # messages that may lie between two that are read together
COMPACT_MIN = 4_096  # settled messages at the front before the maps are moved up


def _runs_in(*states: int) -> re.Pattern[bytes]:
    """A pattern that finds runs of messages, each of which is in one of these states."""
    return re.compile(b"[" + re.escape(bytes(states)) + b"]+")


RUNS_OF = {state: _runs_in(state) for state in range(STATES)}
TIMED_RUNS = _runs_in(LEASED, RESTING, WITHHELD)  # messages with a deadline
LENT_RUNS = _runs_in(LEASED, WITHHELD)  # messages that are, or may be, with a consumer

_STATES_OF_DONE = bytes((AVAILABLE, SETTLED)) + bytes(254)  # the states for the flags 0 and 1


class Maps:
    __slots__ = ("base", "counts", "deadlines", "holders", "marks", "start", "states")

    def __init__(
        self, start: int, done: bytes = b"", counts: bytes = b"", marks: bytes = b""
    ) -> None:
        self.base = self.start = start
        self.states = bytearray(done.translate(_STATES_OF_DONE))
        self.counts = bytearray(counts)
        self.marks = bytearray(marks)  # see core.sharing.state
        self.holders = array("Q", bytes(8 * len(done)))
        self.deadlines = array("q", bytes(8 * len(done)))

    @property
    def covered(self) -> int:
        return self.base + len(self.states)

    def cover(self, end: int) -> int:
        """Extend the maps to `end`; new messages are AVAILABLE. Returns where the maps ended."""
        covered = self.covered
        if end > covered:
            more = end - covered
            self.states += bytes(more)
            self.counts += bytes(more)
            self.marks += bytes(more)
            self.holders.frombytes(bytes(8 * more))
            self.deadlines.frombytes(bytes(8 * more))
        return covered

    def clip(self, start: int, end: int) -> Range:
        """The part of a range that is in the maps. It may be empty, and start <= end holds."""
        low = min(max(start, self.start), self.covered)  # an offset may be any number
        return low, max(low, min(end, self.covered))

    def runs(self, pattern: re.Pattern[bytes], start: int, end: int) -> list[Range]:
        """The runs of messages within the range that the pattern finds, in order."""
        low, high = self.clip(start, end)
        base = self.base
        return [
            (base + run.start(), base + run.end())
            for run in pattern.finditer(self.states, low - base, high - base)
        ]

    def by_holder(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(start, end, holder) for each run of messages with the same holder."""
        return _equal_runs(self.holders, self.base, start, end)

    def by_deadline(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(start, end, deadline) for each run of messages with the same deadline."""
        return _equal_runs(self.deadlines, self.base, start, end)

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
        """Replace each count by its entry in the table."""
        cut = slice(start - self.base, end - self.base)
        self.counts[cut] = self.counts[cut].translate(table)

    def remark(self, start: int, end: int, table: bytes) -> None:
        """Replace each mark by its entry in the table."""
        cut = slice(start - self.base, end - self.base)
        self.marks[cut] = self.marks[cut].translate(table)

    def by_mark(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """(start, end, mark) for each run of messages with the same mark."""
        base = self.base
        return [
            (base + low, base + high, mark)
            for low, high, mark in equal_runs(self.marks, start - base, end - base)
        ]

    def skip(self, start: int) -> None:
        """Every message below `start` is settled."""
        if start >= self.covered:
            for column in (self.states, self.counts, self.marks, self.holders, self.deadlines):
                del column[:]
            self.base = start
        self.start = start

    def in_flight_end(self) -> int:
        """Behind the last message that is reserved or leased; 0: there is none."""
        return 1 + max(
            (
                self.base + at
                for state in (RESERVED, LEASED)
                if (at := self.states.rfind(state)) >= 0
            ),
            default=-1,
        )

    def reopen(self, start: int) -> None:
        """Messages from `start` on may be settled no longer; so far all below are settled."""
        more = self.base - start
        if more > 0:
            self.states[:0] = bytes((SETTLED,)) * more
            self.counts[:0] = bytes(more)
            self.marks[:0] = bytes(more)
            self.holders = array("Q", bytes(8 * more)) + self.holders
            self.deadlines = array("q", bytes(8 * more)) + self.deadlines
            self.base = start
        self.start = min(self.start, start)

    def advance(self) -> None:
        """Move `start` behind the settled messages at the front, and the maps if it is worth it."""
        found = RUNS_OF[SETTLED].match(self.states, self.start - self.base)
        if found is not None:
            self.start = self.base + found.end()
        dead = self.start - self.base
        if dead < COMPACT_MIN or dead < len(self.states) // 2:
            return
        del self.states[:dead]
        del self.counts[:dead]
        del self.marks[:dead]
        del self.holders[:dead]
        del self.deadlines[:dead]
        self.base = self.start


def _equal_runs(values: array[int], base: int, start: int, end: int) -> list[tuple[int, int, int]]:
    cut = values[start - base : end - base]
    first = cut[0]
    if cut == array(cut.typecode, (first,)) * len(cut):  # as nearly always
        return [(start, end, first)]
    runs = []
    for value, run in groupby(cut):
        length = sum(1 for _ in run)
        runs.append((start, start + length, value))
        start += length
    return runs
