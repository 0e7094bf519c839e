"""Which messages of a shared index were settled, or dying, when its leases were made."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hocket.core.sharing.ranges import Range, clipped, without

_DONE = re.compile(b"\1+")  # runs of settled messages in a map of a ShareState


@dataclass(slots=True)
class Before:
    base: int  # all messages below were settled
    done: bytes  # and of those from there on these: 1 for a settled one
    dying: list[Range] = field(default_factory=list)  # on their way to the dead letters

    def settled(self, start: int, end: int) -> list[Range]:
        """Those of the range that were settled."""
        base = self.base
        settled = clipped([(start, end)], 0, base)
        low, high = max(start, base) - base, max(0, end - base)
        settled += [
            (base + run.start(), base + run.end()) for run in _DONE.finditer(self.done, low, high)
        ]
        return settled

    def were_dying(self, start: int, end: int) -> list[Range]:
        """Those of the range that were dying: they may be in the dead letters by now."""
        return clipped(self.dying, start, end)

    def without(self, runs: list[Range]) -> Before:
        """The same, but for these, which were revived."""
        more = max(0, self.base - runs[0][0])
        base, flags = self.base - more, bytearray(b"\1" * more + self.done)
        for start, end in runs:
            low, high = start - base, min(end - base, len(flags))
            flags[low:high] = bytes(max(0, high - low))
        return Before(base, bytes(flags), without(self.dying, runs))
