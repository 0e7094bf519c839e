"""What a lookup may answer.

On an ideal ring: the key's live successor. While the ring changes the answer may lag behind, but
not by much: no list skips a principal, so no lookup gets past the first principal at or after the
key, if that was one when the lookup began and still lives. (This is why Zave's principals are what
matters to a user of the ring.) On a ring that lives by the registry a lookup passes only dead nodes
by, and it must pass by those that have been dead for long.

A lookup that finds nothing is excused while faults strike, since messages may be lost or late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from hocket.core.ring.circle import distance
from hocket.core.ring.contact import Contact
from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import Member, RingView, name

if TYPE_CHECKING:
    from hocket.sim.workload import Lookup

# On a ring that lives by the registry all others are pinged in turn, one a period; then a case is
# opened. With stalls that begin it anew, nobody is taken for living so long after its death.
DEAD_US = 8_000_000
LATE = ("loss", "tails", "slow", "stall")  # who does not answer at once is asked twice, no more
# Two periods of stabilization (`core/ring/suspicion.py`): so long a node that has given up one that
# lives names others instead, since it may know better than they do.
FRESH_US = 2_000_000
HISTORY_MAX = 1_000  # views; a lookup is short


class LookupsFindTheSuccessor(RingChecker):
    name = "lookups_find_the_successor"
    sentence = "A lookup finds the key's successor, and never passes a principal by."

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._looked = 0  # lookups
        self._calm_since_us: int | None = None  # faults are over
        # Moments at which nobody was asking, and the principals of then.
        self._history: deque[tuple[int, list[Member]]] = deque(maxlen=HISTORY_MAX)
        self._small: tuple[Contact, ...] | None = None  # the registry, if all live by the same
        self._small_since_us = 0

    def after_event(self) -> None:
        watch = self._watch
        view = watch.demanded
        if self._calm_since_us is None and not watch.cluster.is_safety_phase:
            self._calm_since_us = watch.cluster.now_us
        if view is None:
            self._history.clear()
        elif view.quiet:
            self._history.append((watch.cluster.now_us, view.principals))
        small = self._agreed_registry()
        if small != self._small:
            self._small, self._small_since_us = small, watch.cluster.now_us
        self._look_at_lookups()

    def at_end(self) -> None:
        self._look_at_lookups()

    def look(self, view: RingView) -> None:
        """Lookups are looked at when they end."""

    def _look_at_lookups(self) -> None:
        lookups = self._watch.cluster.lookups
        while self._looked < len(lookups):
            lookup = lookups[self._looked]
            self._looked += 1
            self._look_exactly(lookup)
            self._look_for_principals(lookup)
            self._look_at_the_registry(lookup)

    def _look_exactly(self, lookup: Lookup) -> None:
        watch = self._watch
        since_us = watch.ideal_since_us
        if since_us is None or since_us > lookup.asked_at_us:
            return
        calm_since_us = self._calm_since_us
        is_calm = calm_since_us is not None and lookup.asked_at_us >= calm_since_us
        is_undeceived = is_calm and lookup.asked_at_us >= (calm_since_us or 0) + FRESH_US
        if watch.cluster.deceived and not is_undeceived and lookup.owners[:1] != lookup.truth[1:]:
            return  # who takes the living for dead passes them by for a while
        if not lookup.owners:
            options = watch.cluster.options
            is_late = options.temper in ("wild", "split") or any(map(options.faults.count, LATE))
            if is_calm or not is_late:
                raise self.broken(f"the ring is ideal, and yet nothing was found: {lookup}")
            return
        self.seen += 1
        if lookup.owners[0] != lookup.truth[1]:
            raise self.broken(f"the ring is ideal, and yet {lookup}")

    def _look_for_principals(self, lookup: Lookup) -> None:
        if not lookup.owners:
            return
        before = bisect_right(self._history, lookup.asked_at_us, key=lambda then: then[0])
        if not before:
            return
        living = [
            member
            for member in self._history[before - 1][1]
            if not self._watch.has_failed(member.me)
        ]
        if not living:
            return
        self.seen += 1
        key = lookup.key
        first = min(living, key=lambda member: distance(key, member.me.position))
        if distance(key, lookup.owners[0].position) > distance(key, first.me.position):
            raise self.broken(f"{name(first.me)} was passed by: {lookup}")

    def _agreed_registry(self) -> tuple[Contact, ...] | None:
        known = [
            ring.small.members if ring.standing == "small" else None
            for ring in self._watch.cluster.rings()
        ]
        return known[0] if known and all(each == known[0] for each in known) else None

    def _look_at_the_registry(self, lookup: Lookup) -> None:
        if self._small is None or self._small_since_us > lookup.asked_at_us or not lookup.owners:
            return
        key, owner = lookup.key, lookup.owners[0]
        self.seen += 1
        if owner not in self._small:
            raise self.broken(f"{name(owner)} is not in the registry: {lookup}")
        died_at_us = self._watch.failed_at_us(owner)
        if died_at_us is not None:
            since_us = max(died_at_us, self._small_since_us)
            if lookup.asked_at_us - since_us > DEAD_US:
                raise self.broken(f"{name(owner)} has been dead for long: {lookup}")
        truth = lookup.truth[1]
        if truth is None or self._watch.cluster.deceived:
            return
        if distance(key, owner.position) > distance(key, truth.position):
            raise self.broken(f"{name(truth)} was passed by: {lookup}")
