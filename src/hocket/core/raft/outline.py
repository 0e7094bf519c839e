"""The outline of a log: which term each entry is of. No entry and no byte of the log is here.

Terms never go down along a log, so the outline is a list of runs, one for each term that has
entries. Rule: entries are added at the end, cut off at the end, and forgotten at the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Run = tuple[int, int]  # the last index of a run, and its term

UNKNOWN = -1  # the term of an entry that is not here


class Outline:
    """Entries `start` + 1 to `last`. The one at `start` is gone, or was never; its term is known.

    `flushed` is the last entry up to which all are durable.
    """

    __slots__ = ("_firsts", "_terms", "flushed", "last", "start")

    def __init__(self, start: int = 0, start_term: int = 0) -> None:
        self.reset(start, start_term)
        self.flushed = start

    def reset(self, start: int, term: int) -> None:
        """Forget all; the next entry is the one behind `start`."""
        self.start = self.last = start
        self._firsts = [start]  # the first index of each run; the first run begins with `start`
        self._terms = [term]

    @property
    def last_term(self) -> int:
        return self._terms[-1]

    def term_of(self, index: int) -> int:
        if not self.start <= index <= self.last:
            return UNKNOWN
        return self._terms[bisect_right(self._firsts, index) - 1]

    def runs(self, first: int, last: int) -> tuple[Run, ...]:
        """The runs of this stretch, for the message that carries it."""
        firsts, terms = self._firsts, self._terms
        found: list[Run] = []
        at = bisect_right(firsts, first) - 1
        while first <= last:
            end = firsts[at + 1] - 1 if at + 1 < len(firsts) else self.last
            found.append((min(end, last), terms[at]))
            at, first = at + 1, end + 1
        return tuple(found)

    def add(self, last: int, term: int) -> None:
        """Entries of this term follow, up to `last`."""
        if term != self._terms[-1]:
            assert term > self._terms[-1], (term, self._terms)
            self._firsts.append(self.last + 1)
            self._terms.append(term)
        self.last = last

    def cut(self, first: int) -> None:
        """Cut the end off, from `first` on."""
        assert self.start < first <= self.last, (self.start, first, self.last)
        while self._firsts[-1] >= first:
            self._firsts.pop()
            self._terms.pop()
        self.last = first - 1
        self.flushed = min(self.flushed, self.last)

    def forget(self, index: int) -> None:
        """Forget what lies before `index`, and the entry there but for its term."""
        at = bisect_right(self._firsts, index) - 1
        del self._firsts[:at]
        del self._terms[:at]
        self._firsts[0] = self.start = index

    def difference(self, first: int, runs: Iterable[Run]) -> int:
        """The first of these entries, from `first` on, that is not here with the same term."""
        for last, term in runs:
            while first <= last:
                if self.term_of(first) != term:
                    return first
                at = bisect_right(self._firsts, first)
                end = self._firsts[at] - 1 if at < len(self._firsts) else self.last
                first = min(end, last) + 1
        return first

    def last_before(self, index: int, term: int) -> int:
        """The last entry up to `index` whose term is at most this; `start` if there is none."""
        index = min(index, self.last)
        at = min(bisect_right(self._terms, term), bisect_right(self._firsts, index)) - 1
        if at < 0:
            return self.start
        end = self._firsts[at + 1] - 1 if at + 1 < len(self._firsts) else self.last
        return max(min(end, index), self.start)
