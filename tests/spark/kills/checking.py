"""What must be in the output, worked out from the input and the query's own log, and what is."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

Input = dict[int, list[tuple[str, str]]]  # partition -> keys and values, by offset
Values = dict[str, list[str]]  # key -> values, in order
Ends = dict[int, int]  # partition -> offset


def expected(shape: str, records: Input, batches: list[Ends]) -> Values:
    """`batches` are the ends of the micro-batches, in their order."""
    found: Values = defaultdict(list)
    totals: Counter[str] = Counter()
    start: Ends = {}
    for end in batches:
        rows = [
            record
            for partition in sorted(end)
            for record in records[partition][start.get(partition, 0) : end[partition]]
        ]
        totals.update(key for key, _ in rows)
        if shape in ("map", "shuffle"):
            for key, value in rows:
                found[key].append(f"out {value}")
        elif rows:
            changed = {key for key, _ in rows}
            for key in totals if shape == "stateful" else changed:
                found[key].append(f"count {totals[key]}")
        start = end
    return dict(found)


@dataclass
class Verdict:
    """Each finding is a key and a value."""

    looked_at: int = 0
    lost: list[tuple[str, str]] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    unexpected: list[tuple[str, str]] = field(default_factory=list)
    misordered: list[str] = field(default_factory=list)  # keys

    @property
    def is_exact(self) -> bool:
        """Having looked at nothing is not exact either."""
        wrong = self.lost or self.doubled or self.unexpected or self.misordered
        return self.looked_at > 0 and not wrong

    def __str__(self) -> str:
        counts = {
            "lost": self.lost,
            "doubled": self.doubled,
            "unexpected": self.unexpected,
            "misordered keys": self.misordered,
        }
        wrong = [f"{len(found)} {what}, as {found[0]}" for what, found in counts.items() if found]
        return f"{self.looked_at} records: " + ("; ".join(wrong) or "each exactly once, in order")


def compare(wanted: Values, found: Values) -> Verdict:
    verdict = Verdict(looked_at=sum(map(len, found.values())))
    for key in sorted({*wanted, *found}):
        should, does = wanted.get(key, []), found.get(key, [])
        missing = Counter(should) - Counter(does)
        extra = Counter(does) - Counter(should)
        verdict.lost += [(key, value) for value in missing.elements()]
        for value in extra.elements():
            known = verdict.doubled if value in should else verdict.unexpected
            known.append((key, value))
        if not missing and not extra and should != does:
            verdict.misordered.append(key)
    return verdict
