"""How the deciders of a cluster learn what the founder's own decider knew of their ids.

Rule 1: an id is decided by one decider at a time. From the commit of the entry that founds the
        cluster's deciders, the founder's own decider takes no new commit; what it has begun it
        finishes.
Rule 2: a heir decides on an id only when it has heard all that the founder's decider knows of it.

The founder's decider cuts what it knows of the heir's ids into parts. The first part names the ids
that it has not finished with; each of these follows in a part of its own when it is finished. Parts
are sent until they are answered. After a restart the founder's decider begins again, under a higher
term; a heir that has everything says so, and is told nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PART_BYTES = 1 << 20  # of what one part tells, unless a single id needs more
REPEAT_US = 1_000_000  # after this long without an answer parts are sent again


class About(NamedTuple):
    """What a decider knows of an id that it is done with, as JSON knows it."""

    transaction: str
    decided: list[Any] | None  # the last number, whether it was aborted, the records by topic
    dropped: list[list[Any]]  # producers, each with the number that it had staged for


@dataclass(slots=True)
class Inheritance:
    """The side of the heir. It changes by entries of the heir's log."""

    whole: bool = False
    term: int = 0
    count: int = 0  # of the parts that are there from the beginning; 0: none has come
    came: set[int] = field(default_factory=set)
    withheld: dict[str, None] = field(default_factory=dict)  # ids that the founder is not done with

    def has(self, term: int, part: int) -> bool:
        return self.whole or term < self.term or (term == self.term and part in self.came)

    def lacks(self, transaction: str) -> bool:
        """Whether the founder's decider may know more about this id."""
        return not self.whole and (not self._has_all or transaction in self.withheld)

    @property
    def _has_all(self) -> bool:
        return self.count > 0 and all(part in self.came for part in range(self.count))

    def take(self, change: dict[str, Any]) -> list[About]:
        """Take a part, as it stands in the log. Returns what it tells."""
        term, part, count = change["term"], change["part"], change["count"]
        if self.has(term, part):
            return []
        if term > self.term:
            self.term, self.count, self.came, self.withheld = term, count, set(), {}
        self.came.add(part)
        self.withheld |= dict.fromkeys(change["withheld"])
        told = [About(*each) for each in change["about"]]
        if part >= count:
            for each in told:
                self.withheld.pop(each.transaction, None)
        self.whole = self._has_all and not self.withheld
        return told

    def snapshot(self) -> list[Any]:
        return [self.whole, self.term, self.count, sorted(self.came), list(self.withheld)]

    @staticmethod
    def restore(taken: list[Any]) -> Inheritance:
        whole, term, count, came, withheld = taken
        return Inheritance(whole, term, count, set(came), dict.fromkeys(withheld))


@dataclass(slots=True)
class _Heir:
    count: int  # of the parts that are there from the beginning
    parts: dict[int, bytes]  # that are not answered
    withheld: list[str]
    last: int  # part
    told_us: int | None = None


class Legacy:
    """The side of the founder's decider: what is to be told to whom."""

    def __init__(
        self,
        term: int,
        heirs: Iterable[int],
        heir_of: Callable[[str], int],
        known: Iterable[str],
        about: Callable[[str], About | None],
    ) -> None:
        """`known` are the ids that the decider knows; `about` tells of one that it is done with,
        and is None for another."""
        self.term = term
        self._about = about
        self._heirs: dict[int, _Heir] = {}
        by_heir: dict[int, list[str]] = {heir: [] for heir in heirs}
        for transaction in known:
            by_heir[heir_of(transaction)].append(transaction)
        for heir, theirs in by_heir.items():
            told = {transaction: about(transaction) for transaction in theirs}
            withheld = [transaction for transaction, each in told.items() if each is None]
            cut = _cut(each for each in told.values() if each is not None)
            parts = {
                part: self._encoded(part, len(cut), some, [] if part else withheld)
                for part, some in enumerate(cut)
            }
            self._heirs[heir] = _Heir(len(cut), parts, withheld, len(cut) - 1)

    @property
    def is_over(self) -> bool:
        return not self._heirs

    def due(self, now_us: int) -> list[tuple[int, int, int, bytes]]:
        """What is to be sent now: heir, count, part, bytes."""
        found = []
        for number, heir in self._heirs.items():
            self._add_finished(heir)
            is_due = heir.told_us is None or now_us - heir.told_us >= REPEAT_US
            if is_due and heir.parts:
                heir.told_us = now_us
                # The first part alone: a heir from before a restart has everything, and says so.
                parts = [0] if 0 in heir.parts else list(heir.parts)
                found += [(number, heir.count, part, heir.parts[part]) for part in parts]
        return found

    def _add_finished(self, heir: _Heir) -> None:
        for transaction in list(heir.withheld):
            about = self._about(transaction)
            if about is not None:
                heir.withheld.remove(transaction)
                heir.last += 1
                heir.parts[heir.last] = self._encoded(heir.last, heir.count, [about], [])
                heir.told_us = None

    def answered(self, number: int, term: int, part: int, *, whole: bool) -> None:
        heir = self._heirs.get(number)
        if heir is None or term != self.term:
            return
        if heir.parts.pop(part, None) is not None and not part:
            heir.told_us = None  # the others follow at once
        if whole:
            del self._heirs[number]

    def _encoded(self, part: int, count: int, some: list[About], withheld: list[str]) -> bytes:
        told = {
            "term": self.term, "part": part, "count": count, "about": some, "withheld": withheld
        }  # fmt: skip
        return json.dumps(told, separators=(",", ":")).encode()


def _cut(all_of_them: Iterable[About]) -> list[list[About]]:
    """Cut into parts that are not too large; there is always one."""
    parts: list[list[About]] = [[]]
    size = 0
    for about in all_of_them:
        size_here = len(json.dumps(about))
        if parts[-1] and size + size_here > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(about)
        size += size_here
    return parts
