"""The state of every message of a shared index in one partition, and how one state follows another.

Rule 1: every change of a message's state goes through `_turn`, for a run of messages that are in
        the same state and, if they are in flight, with the same consumer. (Two hot paths of
        `core.sharing.leases`, `reserve` and `_ack`, do for themselves what they need of it.)
Rule 2: what ends (a lease, a rest, a time of withholding) ends by its deadline in the map. The heap
        of timers says only where to look, and may be out of date.
Rule 3: a lease whose time is over counts as a delivery unless its message is in DOUBT: then nobody
        has said that it was handed out. The messages of a consumer that died are SUSPECT until
        another one has outlived them (settled them, or let the lease end, or closed); so long they
        are available ALONE.
Rule 4: where several runs come back, the newest comes first: in the order of keys each message then
        belongs at the front of its key's queue.

Rule 5: a settled message becomes available again only if it is revived, once for each dead letter:
        `revived_to` says which dead letters were used up.
Rule 6: where several nodes keep the partition (`returning`), what comes back to be leased again
        waits until the log has that: see `core.sharing.returning`.

What has to survive the broker's process is gathered as a ShareChange.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence

from hocket.core.sharing.keys import KeyOrder
from hocket.core.sharing.maps import (
    ALONE,
    AVAILABLE,
    DYING,
    LEASED,
    RESERVED,
    RESTING,
    RUNS_OF,
    SETTLED,
    STATES,
    TIMED_RUNS,
    WITHHELD,
    Maps,
)
from hocket.core.sharing.ranges import Range, equal_runs, merged
from hocket.core.sharing.returning import FAR_US, Returning
from hocket.core.sharing.state import (
    DOUBT,
    HELD,
    MARK,
    SUSPECT,
    UNIT_MAX,
    Count,
    ShareChange,
    ShareSettings,
    Unit,
)

REASON_MAX = 500  # characters
TIMERS_MAX = 10_000  # timers in the heap; with more, those out of date are cleared away

EXPIRED = "not acknowledged in time"
REFUSED = "refused by its consumer"
CLOSED = "not acknowledged before its consumer closed"
RESTARTED = "not acknowledged before the broker restarted"


ONE_LESS = bytes((0, *range(255)))
# What becomes of marks, by the mark: a table has as many entries as there are bytes.
NOT_HELD = bytes(mark & SUSPECT for mark in range(256))
HELD_NOW = bytes(mark & SUSPECT | HELD for mark in range(256))
IN_DOUBT = bytes(mark & SUSPECT | DOUBT for mark in range(256))
SUSPECTED = bytes((SUSPECT,)) * 256
OUTLIVED = bytes(256)
# Of those that were with a consumer when the broker died, and whom nobody claims: what had been
# handed out is suspect. What had not been may well have waited in a consumer that is alive.
UNCLAIMED = bytes(SUSPECT if mark & HELD else mark & SUSPECT for mark in range(256))
_NOT_SUSPECT = bytes(mark & ~SUSPECT for mark in range(256))
_SUSPECTS = bytes(mark for mark in range(256) if mark & SUSPECT)

_MARKED = re.compile(b"[^\0]+")  # runs of messages that have a mark


def _never(_consumer: int, _deadline: int) -> bool:
    return False


class Ledger:
    def __init__(
        self,
        maps: Maps,
        settings: ShareSettings,
        *,
        end: int,
        immortal: bool,
        replicated: bool = False,
    ) -> None:
        self.settings = settings
        self.returning = Returning() if replicated else None
        self.awaited = 0  # the number of the last change taken, if messages wait for it; else 0
        self.end = end  # of the partition
        self.keys: KeyOrder | None = None  # of a key-shared index
        self._immortal = immortal
        self.revived_to: dict[int, int] = {}  # see core.sharing.state
        self.revivals = 0
        self._change = ShareChange()
        self._begin(maps)

    def _begin(self, maps: Maps) -> None:
        self._maps = maps
        if self.returning is not None:
            self.returning.reset()
        self._numbers = [0] * STATES  # how many messages in the maps are in each state
        self._numbers[AVAILABLE] = maps.states.count(AVAILABLE)
        self.suspects = 0  # how many messages are suspect, whatever their state
        # consumer -> suspects that were given to it; some it may not have any more
        self._given: dict[int, set[int]] = {}
        self._held: dict[int, int] = {}  # consumer -> how many messages are leased to it
        self._low = maps.start  # no message below is AVAILABLE
        self._timers: list[tuple[int, int, int]] = []  # a heap of (deadline, start, end)
        self._timers_max = TIMERS_MAX
        # Messages that the maps do not cover yet are withheld up to this offset, until this time.
        self._withheld_end = 0
        self._withheld_until = 0

    @property
    def start(self) -> int:
        """Every message below this offset is settled."""
        return self._maps.start

    @property
    def leased(self) -> int:
        return self._numbers[LEASED]

    @property
    def is_idle(self) -> bool:
        """No consumer has, or may have, a message of it, and no message comes back by itself."""
        return not self._withheld_end and not any(
            self._numbers[state] for state in (RESERVED, LEASED, RESTING, WITHHELD)
        )

    def held_by(self, consumer: int) -> int:
        return self._held.get(consumer, 0)

    # --- who has what ----------------------------------------------------------------------------

    def leased_by(self, consumer: int) -> list[Range]:
        """The messages that the consumer has."""
        if consumer not in self._held:
            return []
        return self._of(consumer, self.start, self._maps.covered)

    def all_leases(self) -> list[tuple[int, int, int, int]]:
        """(start, end, consumer, deadline) of all messages that consumers have."""
        return [
            (start, end, holder, deadline)
            for run in self._maps.runs(RUNS_OF[LEASED], self.start, self._maps.covered)
            for first, last, holder in self._maps.by_holder(*run)
            for start, end, deadline in self._maps.by_deadline(first, last)
        ]

    def is_handed_out(self, consumer: int, offset: int) -> bool:
        """Whether the consumer has this message, and its delivery counts."""
        at = offset - self._maps.base
        return self._has(consumer, offset) and not self._maps.marks[at] & DOUBT

    def first_of(self, consumer: int, start: int, end: int) -> int:
        """The lowest message of the range that the consumer has; -1: none."""
        if end <= self.start:
            return -1
        if self._has(consumer, start):
            return start
        mine = self._of(consumer, start, end)
        return mine[0][0] if mine else -1

    def _has(self, consumer: int, offset: int) -> bool:
        maps = self._maps
        at = offset - maps.base
        return (
            maps.start <= offset < maps.base + len(maps.states)
            and maps.states[at] == LEASED
            and maps.holders[at] == consumer
        )

    def _of(self, consumer: int, start: int, end: int) -> list[Range]:
        """The runs of messages of the range that the consumer has."""
        return [
            (first, last)
            for low, high in self._maps.runs(RUNS_OF[LEASED], start, end)
            for first, last, holder in self._maps.by_holder(low, high)
            if holder == consumer
        ]

    # --- suspects --------------------------------------------------------------------------------

    def suspect_is_next(self, consumer: int) -> bool:
        """Whether the lowest message that this consumer may have is a suspect."""
        if not self._numbers[ALONE]:
            return False
        if self.keys is not None:
            first = self.keys.first(consumer)
            return first >= 0 and self._maps.states[first - self._maps.base] == ALONE
        base, at = self._maps.base, self._lowest_suspect()
        return self._maps.states.find(AVAILABLE, self._low - base, at - base) < 0

    def _lowest_suspect(self) -> int:
        base = self._maps.base
        return base + self._maps.states.index(ALONE, self.start - base)

    def has_suspect(self, consumer: int) -> bool:
        """Whether the consumer has a suspect, or is being read one for."""
        given = self._given.get(consumer)
        if not given:
            return False
        maps = self._maps
        kept = {
            at
            for at in given
            if at >= maps.start
            and maps.holders[at - maps.base] == consumer
            and maps.states[at - maps.base] in (RESERVED, LEASED)
            and maps.marks[at - maps.base] & SUSPECT
        }
        if kept:
            self._given[consumer] = kept
        else:
            del self._given[consumer]
        return bool(kept)

    def _note_suspects(self, consumer: int, start: int, end: int) -> None:
        if self.suspects:
            given = self._given.setdefault(consumer, set())
            for low, high, mark in self._maps.by_mark(start, end):
                if mark & SUSPECT:
                    given.update(range(low, high))

    # --- what happens ----------------------------------------------------------------------------

    def take_change(self) -> ShareChange | None:
        """What happened since the last call and has to be logged; None: nothing."""
        if not self._has_changed():
            return None
        change, self._change = self._change, ShareChange()
        change.dying.sort()
        if self.returning is not None:
            self.awaited = self.returning.took(rests=bool(change.rests))
        return change

    def _has_changed(self) -> bool:
        change = self._change
        return bool(  # what rests has a count, too
            change.settled
            or change.counts
            or change.dying
            or change.reset is not None
            or change.revived_to
            or change.extended
        )

    def committed(self, change: int) -> None:
        """The log has the changes up to this one: what came back by them can be leased."""
        assert self.returning is not None
        for start, end in reversed(merged(self.returning.committed(change))):
            for run in reversed(self._maps.runs(RUNS_OF[RESTING], start, end)):
                self._set_free(*run, RESTING)  # the others are below the log's start by now

    def pass_time(
        self, now_us: int, is_dead: Callable[[int, int], bool] = _never
    ) -> list[tuple[int, int]]:
        """End what has come to its deadline; returns (consumer, deadline) of each lease ended.

        `is_dead` tells whether a consumer whose lease came to this deadline seems to be dead.
        """
        due: list[Range] = []
        while self._timers and self._timers[0][0] <= now_us:
            due.append(heapq.heappop(self._timers)[1:])
        if self._withheld_until <= now_us:
            self._withheld_end = 0
        expired: list[tuple[int, int]] = []
        for start, end in reversed(merged(due)):
            for run in reversed(self._maps.runs(TIMED_RUNS, start, end)):
                for low, high, deadline in reversed(self._maps.by_deadline(*run)):
                    if deadline <= now_us:
                        self._expire(low, high, deadline, expired, is_dead)
        return expired

    def _expire(
        self,
        start: int,
        end: int,
        deadline: int,
        expired: list[tuple[int, int]],
        is_dead: Callable[[int, int], bool],
    ) -> None:
        base = self._maps.base
        states = list(equal_runs(self._maps.states, start - base, end - base))
        for low, high, state in reversed(states):
            if state == LEASED:
                for first, last, holder in reversed(self._maps.by_holder(base + low, base + high)):
                    expired.append((holder, deadline))
                    marks = SUSPECTED if is_dead(holder, deadline) else OUTLIVED
                    self._come_back(first, last, LEASED, EXPIRED, marks)
            elif state == WITHHELD:
                self._come_back(base + low, base + high, WITHHELD, RESTARTED, UNCLAIMED)
            else:
                self._end(base + low, base + high, state, REFUSED)

    def revive(self, letters: Sequence[tuple[int, int]], log: int) -> list[Range]:
        """Deliver messages again that are dead letters: (offset, offset of its dead letter).

        The dead letters come in order, and `log` is the number of the log that has them. Of those
        that were used up before nothing is revived; nor is a message that is not settled, since
        that one is delivered anyway. Returns the others. That all are used up is logged in any
        case, so that whoever asked can wait until it is durable.
        """
        used_up = self.revived_to.get(log, 0)
        runs = merged(
            (offset, offset + 1)
            for offset, letter in letters
            if letter >= used_up and self._is_settled(offset)
        )
        self.revived_to[log] = max(used_up, *(letter + 1 for _, letter in letters))
        self._change.revived_to[log] = self.revived_to[log]
        if runs:
            self._revive(runs)
        return runs

    def _revive(self, runs: list[Range]) -> None:
        self.revivals += 1
        self._change.revive(runs)
        self._change.revivals = self.revivals
        maps = self._maps
        maps.reopen(runs[0][0])
        for start, end in runs:
            cut = slice(start - maps.base, end - maps.base)
            maps.counts[cut] = maps.marks[cut] = bytes(end - start)
            self._free(start, end, SETTLED)

    def _is_settled(self, offset: int) -> bool:
        maps = self._maps
        if not maps.start <= offset < maps.covered:
            return offset < maps.start
        return maps.states[offset - maps.base] == SETTLED

    def is_dying(self, offset: int) -> bool:
        maps = self._maps
        return maps.start <= offset < maps.covered and maps.states[offset - maps.base] == DYING

    # --- from state to state ---------------------------------------------------------------------

    def _turn(self, start: int, end: int, before: int, after: int) -> None:
        count = end - start
        self._maps.set_state(start, end, after)
        self._numbers[before] -= count
        self._numbers[after] += count
        holder = self._maps.holders[start - self._maps.base]
        if before == LEASED:
            self._let_go(holder, count)
        elif after == LEASED:
            self._held[holder] = self._held.get(holder, 0) + count
        if after == AVAILABLE and start < self._low:
            self._low = start
        if self.suspects and after in (SETTLED, DYING):
            self._remark(start, end, _NOT_SUSPECT)
        if self.keys is not None:
            self.keys.turned(start, end, before, after, holder)

    def _let_go(self, holder: int, count: int) -> None:
        self._held[holder] -= count
        if not self._held[holder]:
            del self._held[holder]

    def _come_back(self, start: int, end: int, before: int, why: str, marks: bytes) -> None:
        """No consumer has these any more, and nobody has said what to do with them."""
        for low, high, mark in reversed(self._maps.by_mark(start, end)):
            if mark & DOUBT:
                self._maps.recount(low, high, ONE_LESS)
            if marks[mark] != mark:
                self._remark(low, high, marks)
                self._log(low, high)
            self._end(low, high, before, why)

    def _end(self, start: int, end: int, before: int, why: str, resting_until: int = 0) -> None:
        """No consumer has these any more: deliver them again, or bury those delivered too often."""
        base = self._maps.base
        counts = list(equal_runs(self._maps.counts, start - base, end - base))
        for low, high, count in reversed(counts):
            run = base + low, base + high
            if count >= self.settings.max_deliveries and not self._immortal:
                self._die(*run, before, count, f"{count} deliveries, the last one {why}")
            elif resting_until:
                self._turn(*run, before, RESTING)
                self._set_deadline(*run, resting_until)
                self._change.rests.append((*run, resting_until))
            else:
                self._free(*run, before)

    def _free(self, start: int, end: int, before: int) -> None:
        """These are available, perhaps when the log has it that they came back."""
        if self.returning is not None:
            change = self.returning.waits_for(before, changes=self._has_changed())
            if change:
                self.returning.add(change, start, end)
                self._turn(start, end, before, RESTING)
                self._maps.set_deadline(start, end, FAR_US)
                return
        self._set_free(start, end, before)

    def _set_free(self, start: int, end: int, before: int) -> None:
        """These are available: suspect ones alone."""
        if not self.suspects:
            self._turn(start, end, before, AVAILABLE)
            return
        for low, high, mark in reversed(self._maps.by_mark(start, end)):
            self._turn(low, high, before, ALONE if mark & SUSPECT else AVAILABLE)

    def _die(
        self,
        start: int,
        end: int,
        before: int,
        deliveries: int,
        reason: str,
        unit_max: int = UNIT_MAX,
    ) -> None:
        self._turn(start, end, before, DYING)
        # The reason becomes a header in UTF-8, and a consumer in this process may give any string.
        reason = reason[:REASON_MAX].encode(errors="replace").decode()
        self._change.dying += [
            Unit(first, min(end, first + unit_max), deliveries, reason, self.revivals)
            for first in range(start, end, unit_max)
        ]

    def _settle(self, start: int, end: int, before: int) -> None:
        self._turn(start, end, before, SETTLED)
        self._change.settled.append((start, end))

    def _recount(self, start: int, end: int, table: bytes, marks: bytes) -> list[Count]:
        """Change counts and marks as the tables say; log them, and return the new counts."""
        self._maps.recount(start, end, table)
        self._remark(start, end, marks)
        return self._log(start, end)

    def _remark(self, start: int, end: int, marks: bytes) -> None:
        before = self._suspects_in(start, end) if self.suspects else 0
        self._maps.remark(start, end, marks)
        if before or marks is SUSPECTED or marks is UNCLAIMED:
            self.suspects += self._suspects_in(start, end) - before

    def _suspects_in(self, start: int, end: int) -> int:
        cut = self._maps.marks[start - self._maps.base : end - self._maps.base]
        return len(cut) - len(cut.translate(None, _SUSPECTS))

    def _log(self, start: int, end: int) -> list[Count]:
        """Log the counts and marks of these messages; returns the counts."""
        base = self._maps.base
        counts = [
            (base + low, base + high, count)
            for low, high, count in equal_runs(self._maps.counts, start - base, end - base)
        ]
        self._change.counts += [
            (first, last, count + MARK * mark)
            for low, high, count in counts
            for first, last, mark in self._maps.by_mark(low, high)
        ]
        return counts

    def _marked(self) -> list[Range]:
        """The available messages that have a mark."""
        base = self._maps.base
        return [
            run
            for found in _MARKED.finditer(bytes(self._maps.marks))
            for run in self._maps.runs(RUNS_OF[AVAILABLE], base + found.start(), base + found.end())
        ]

    def _bury_spent(self) -> None:
        """Bury the available messages that were delivered as often as they may be."""
        if self._immortal:
            return
        spent = re.compile(b"[" + re.escape(bytes((self.settings.max_deliveries,))) + b"-\xff]+")
        base = self._maps.base
        for found in list(spent.finditer(self._maps.counts)):
            start, end = base + found.start(), base + found.end()
            for run in self._maps.runs(RUNS_OF[AVAILABLE], start, end):
                self._end(*run, AVAILABLE, RESTARTED)

    # --- the maps --------------------------------------------------------------------------------

    def _cover(self, end: int) -> None:
        covered = self._maps.cover(end)
        if end > covered:
            self._numbers[AVAILABLE] += end - covered
            withheld = min(end, self._withheld_end)
            if withheld > covered:
                self._turn(covered, withheld, AVAILABLE, WITHHELD)
                self._set_deadline(covered, withheld, self._withheld_until)

    def _advance(self) -> None:
        """Forget what is settled at the front."""
        self._maps.advance()
        if self.keys is not None:
            self.keys.advanced()
        self._low = max(self._low, self._maps.start)

    def _forget_below(self, start: int) -> None:
        """The log begins at `start` now: older messages are gone, and nobody holds them."""
        for state in (AVAILABLE, RESERVED, LEASED, RESTING, DYING, WITHHELD, ALONE):
            for run in self._maps.runs(RUNS_OF[state], self.start, start):
                for low, high, _ in self._maps.by_holder(*run):
                    self._turn(low, high, state, SETTLED)
        self._maps.skip(start)
        self._advance()

    def _set_deadline(self, start: int, end: int, deadline: int) -> None:
        self._maps.set_deadline(start, end, deadline)
        self._set_timer(deadline, start, end)

    def _set_timer(self, deadline: int, start: int, end: int) -> None:
        """At the deadline, look within [start, end) for what has come to its end."""
        heapq.heappush(self._timers, (deadline, start, end))
        if len(self._timers) > self._timers_max:
            self._renew_timers()

    def _renew_timers(self) -> None:
        """Keep one timer for each run that has a deadline, and drop those out of date."""
        self._timers = [
            (deadline, low, high)
            for run in self._maps.runs(TIMED_RUNS, self.start, self._maps.covered)
            for low, high, deadline in self._maps.by_deadline(*run)
        ]
        heapq.heapify(self._timers)
        self._timers_max = TIMERS_MAX + 2 * len(self._timers)
