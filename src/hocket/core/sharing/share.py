"""What has become of each message of a shared index in one partition: the leader's memory.

Rule 1: a message is with one consumer at most, and only that one may settle it or extend its lease.
Rule 2: what is settled is never leased again. Lower offsets are leased first, so what comes back
        comes before what is new.
Rule 3: what a request does not concern (messages that somebody else has, or nobody, or that are no
        longer there) it does not change; such ranges are returned as refused.

It is made from the durable state as it was BEFORE it was logged that consumers are attached again:
afterwards the state does not know any more what it knew when it was `clean`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from hocket.core.sharing.keys import KeyOrder
from hocket.core.sharing.ledger import CLOSED, REFUSED, RESTARTED, Ledger
from hocket.core.sharing.maps import (
    AVAILABLE,
    DYING,
    EACH_LENT,
    EACH_OF,
    GAP_MAX,
    LEASED,
    RESERVED,
    SETTLED,
    WITHHELD,
    ShareMap,
)
from hocket.core.sharing.ranges import Range, clipped, equal_runs, gaps, joined, merged
from hocket.core.sharing.state import SPAN_MAX, Count, ShareChange, ShareState

GRACE_US = 2_000_000  # how long a consumer whose link broke may take to come back
IN_FLIGHT_MAX = 20_000  # messages that are leased, or being read to be

_ONE_MORE = bytes((*range(1, 256), 255))  # a count is a byte, and stays at its highest value
_ONE_LESS = bytes((0, *range(255)))
_AT_LEAST_ONE = bytes((1, *range(1, 256)))


class Share(Ledger):
    """`end` is the partition's; `immortal`: its messages are delivered without limit."""

    def __init__(
        self,
        state: ShareState,
        *,
        end: int,
        now_us: int,
        immortal: bool = False,
        grace_us: int = GRACE_US,
        in_flight_max: int = IN_FLIGHT_MAX,
        span_max: int = SPAN_MAX,
    ) -> None:
        maps = ShareMap(state.start, *state.maps())
        super().__init__(maps, state.settings, end=end, immortal=immortal)
        self._grace_us = grace_us
        self._in_flight_max = in_flight_max
        self._span_max = span_max
        self._members: list[int] = []  # who shares the keys
        self._open(state, now_us)

    def _open(self, state: ShareState, now_us: int) -> None:
        """Take over what is dying, and leave alone what consumers may still have."""
        for unit in state.dying:
            self._cover(unit.end)
            for run in self._maps.runs(EACH_OF[AVAILABLE], unit.start, unit.end):
                self._turn(*run, AVAILABLE, DYING)
        limit = state.start + self._span_max
        if state.clean:
            withheld = state.lent
        else:
            withheld = [] if self.settings.failover == "fast" else [(state.start, self.end)]
            limit = self._maps.covered  # all behind the maps is withheld, so they need not grow
        self._withheld_until = now_us + self._grace_us
        for start, end in withheld:
            self._cover(min(end, limit))
            self._withheld_end = end if end > limit else 0
            for run in self._maps.runs(EACH_OF[AVAILABLE], start, end):
                self._turn(*run, AVAILABLE, WITHHELD)
                self._set_deadline(*run, self._withheld_until)
        self._bury_spent()

    def _bury_spent(self) -> None:
        """What nobody can have any more and was delivered as often as may be."""
        if self._immortal:
            return
        spent = re.compile(b"[" + re.escape(bytes((self.settings.max_deliveries,))) + b"-\xff]+")
        base = self._maps.base
        for found in list(spent.finditer(self._maps.counts)):
            start, end = base + found.start(), base + found.end()
            for run in self._maps.runs(EACH_OF[AVAILABLE], start, end):
                self._end(*run, AVAILABLE, RESTARTED)

    # --- what can be asked -----------------------------------------------------------------------

    def available(self) -> int:
        """How many could be reserved now."""
        if self.keys is not None:
            count = self.keys.leasable if self.keys.is_ready else 0
        else:
            count = self._numbers[AVAILABLE] + max(0, self._new_end() - self._new_start())
        room = self._in_flight_max - self._numbers[LEASED] - self._numbers[RESERVED]
        return max(0, min(count, room))

    def lent(self) -> list[Range]:
        """What is, or may be, with consumers."""
        ranges = self._maps.runs(EACH_LENT, self.start, self._maps.covered)
        if self._withheld_end > self._maps.covered:
            joined(ranges, self._maps.covered, self._withheld_end)
        return ranges

    def scan_wanted(self) -> Range | None:
        """The messages whose keys should be known next, if anybody is there to have them."""
        if self.keys is None or not self._members:
            return None
        return self.keys.wanted(self.end, self._span_max)

    def _new_start(self) -> int:
        """Messages from here on were never leased, and are not withheld."""
        return max(self._maps.covered, self._withheld_end)

    def _new_end(self) -> int:
        return min(self.end, self.start + self._span_max)

    # --- leasing ---------------------------------------------------------------------------------

    def reserve(self, consumer: int, count: int) -> list[Range]:
        """The lowest that this one may have, up to so many and near to each other; to be read."""
        count = min(count, self.available())
        runs = self._lowest(count) if self.keys is None else self.keys.take(consumer, count)
        for start, end in runs:
            self._maps.set_holder(start, end, consumer)
            self._maps.set_state(start, end, RESERVED)
            self._numbers[AVAILABLE] -= end - start
            self._numbers[RESERVED] += end - start
        return runs

    def _lowest(self, count: int) -> list[Range]:
        maps = self._maps
        runs: list[Range] = []
        at = self._low
        while count:
            found = maps.states.find(AVAILABLE, at - maps.base)
            if found < 0:
                at = self._new_start()
                assert at < self._new_end(), "more was asked for than is available"
                self._cover(min(self._new_end(), at + count))
                continue
            first = maps.base + found
            if runs and first - runs[-1][1] >= GAP_MAX:
                break
            run = EACH_OF[AVAILABLE].match(maps.states, found, found + count)
            assert run is not None
            at = maps.base + run.end()
            joined(runs, first, at)
            count -= at - first
        self._low = runs[-1][1] if runs else at
        return runs

    def lease(self, runs: list[Range], now_us: int) -> list[Count]:
        """They were read, and are with their consumer from now on; how often each was by now."""
        counts: list[Count] = []
        deadline = now_us + self.settings.lease_us
        runs = clipped(runs, self.start, self._maps.covered)
        for start, end in runs:
            self._turn(start, end, RESERVED, LEASED)
            self._maps.set_deadline(start, end, deadline)
            counts += self._recount(start, end, _ONE_MORE)
        if runs:
            self._set_timer(deadline, runs[0][0], runs[-1][1])
        return counts

    def give_back(self, runs: list[Range]) -> None:
        """They were reserved and are not to be leased after all."""
        for start, end in reversed(clipped(runs, self.start, self._maps.covered)):
            self._turn(start, end, RESERVED, AVAILABLE)

    def lose(self, runs: list[Range]) -> None:
        """They were reserved and cannot be read, ever."""
        for start, end in clipped(runs, self.start, self._maps.covered):
            self._settle(start, end, RESERVED)
        self._advance()

    # --- settling --------------------------------------------------------------------------------

    def settle(
        self,
        consumer: int,
        action: str,
        ranges: Iterable[Range],
        *,
        now_us: int,
        duration_us: int = 0,
        reason: str = "",
    ) -> list[Range]:
        """Do this with what the consumer holds of these, and return the others."""
        if action == "ack":
            refused = self._ack(consumer, ranges)
        else:
            act = self._actions[action]
            refused = []
            for start, end in ranges:
                mine = self._split(consumer, start, end, refused)
                for run in reversed(mine):  # see KeyOrder: the newest first
                    act(self, *run, now_us, duration_us, reason)
        self._advance()
        return refused

    def _ack(self, consumer: int, ranges: Iterable[Range]) -> list[Range]:
        """The most frequent of all requests, often for one message here and one there."""
        maps, keys, settled = self._maps, self.keys, self._change.settled
        states, holders, base, size = maps.states, maps.holders, maps.base, len(maps.states)
        refused: list[Range] = []
        single = 0
        for start, end in ranges:
            at = start - base
            if (
                end - start == 1
                and 0 <= at < size
                and states[at] == LEASED
                and holders[at] == consumer
            ):
                if keys is None:
                    states[at] = SETTLED
                    single += 1
                else:
                    self._turn(start, end, LEASED, SETTLED)
                settled.append((start, end))
            else:
                for run in self._split(consumer, start, end, refused):
                    self._settle(*run, LEASED)
        if single:
            self._numbers[LEASED] -= single
            self._let_go(consumer, single)
        return refused

    def _split(self, consumer: int, start: int, end: int, refused: list[Range]) -> list[Range]:
        """The runs that this one holds; the others are added to `refused`."""
        mine: list[Range] = []
        at = start
        for low, high in self._maps.runs(EACH_OF[LEASED], start, end):
            for first, last, holder in self._maps.by_holder(low, high):
                if holder == consumer:
                    if at < first:
                        joined(refused, at, first)
                    mine.append((first, last))
                    at = last
        if at < end:
            joined(refused, at, end)
        return mine

    def _nack(self, start: int, end: int, now_us: int, duration_us: int, _reason: str) -> None:
        self._end(start, end, LEASED, REFUSED, now_us + duration_us if duration_us else 0)

    def _extend(self, start: int, end: int, now_us: int, duration_us: int, _reason: str) -> None:
        self._set_deadline(start, end, now_us + (duration_us or self.settings.lease_us))

    def _reject(self, start: int, end: int, _now_us: int, _duration_us: int, reason: str) -> None:
        base = self._maps.base
        counts = list(equal_runs(self._maps.counts, start - base, end - base))
        for low, high, count in reversed(counts):
            self._die(base + low, base + high, LEASED, count, reason)

    def _release(self, start: int, end: int, _now_us: int, _duration_us: int, _reason: str) -> None:
        """It was not handed out, so it does not count as delivered."""
        self._recount(start, end, _ONE_LESS)
        self._turn(start, end, LEASED, AVAILABLE)

    _actions: ClassVar[dict[str, Callable[[Share, int, int, int, int, str], None]]] = {
        "nack": _nack,
        "extend": _extend,
        "reject": _reject,
        "release": _release,
    }

    def dead_lettered(self, start: int, end: int) -> None:
        """They are in the dead letters, durably."""
        for run in self._maps.runs(EACH_OF[DYING], start, end):
            self._settle(*run, DYING)
        self._advance()

    # --- consumers -------------------------------------------------------------------------------

    def welcome(
        self, consumer: int, former: int | None, held: Iterable[Range], now_us: int
    ) -> None:
        """A consumer has come that had a former number, or is new, and says that it holds these.

        What it had and does not hold was lost on the way to it, and so was not handed out.
        """
        held = merged(held)
        if former is not None:
            for start, end in reversed(self._leased_by(former)):
                self._hand_over(start, end, former, consumer, held, now_us)
        for start, end in held:
            self._claim(consumer, start, end, now_us)

    def _hand_over(
        self, start: int, end: int, former: int, consumer: int, held: list[Range], now_us: int
    ) -> None:
        kept = clipped(held, start, end)
        self._held[consumer] = self._held.get(consumer, 0) + end - start
        self._let_go(former, end - start)
        self._maps.set_holder(start, end, consumer)
        if self.keys is not None:
            self.keys.renumbered(start, end, former=former, holder=consumer)
        for low, high in kept:
            self._set_deadline(low, high, now_us + self.settings.lease_us)
        for low, high in reversed(gaps(kept, start, end)):
            self._release(low, high, 0, 0, "")

    def _claim(self, consumer: int, start: int, end: int, now_us: int) -> None:
        """From before a restart: nobody else has been given it since."""
        room = self._in_flight_max - self._numbers[LEASED] - self._numbers[RESERVED]
        self._cover(min(end, self._withheld_end, self.start + self._span_max))
        for low, high in self._maps.runs(EACH_OF[WITHHELD], start, end):
            high = min(high, low + room)
            if low == high:
                return
            room -= high - low
            self._maps.set_holder(low, high, consumer)
            self._turn(low, high, WITHHELD, LEASED)
            self._set_deadline(low, high, now_us + self.settings.lease_us)
            # That it was delivered may not have become durable.
            self._recount(low, high, _AT_LEAST_ONE)

    def vanish(self, consumer: int, now_us: int) -> None:
        """Its link broke; it may come back."""
        until = now_us + self._grace_us
        for start, end in self._leased_by(consumer):
            for low, high, deadline in self._maps.by_deadline(start, end):
                if deadline > until:
                    self._set_deadline(low, high, until)

    def leave(self, consumer: int) -> None:
        """It closed, in good order: what it has not released was handed out."""
        for start, end in reversed(self._leased_by(consumer)):
            self._end(start, end, LEASED, CLOSED)

    def _leased_by(self, consumer: int) -> list[Range]:
        if consumer not in self._held:
            return []
        return [
            (first, last)
            for low, high in self._maps.runs(EACH_OF[LEASED], self.start, self._maps.covered)
            for first, last, holder in self._maps.by_holder(low, high)
            if holder == consumer
        ]

    # --- keys ------------------------------------------------------------------------------------

    def order_keys(self) -> None:
        """From now on it is the share of a key-shared index."""
        self.keys = KeyOrder(self._maps)

    def spread(self, members: list[int]) -> None:
        """These consumers share the keys now."""
        assert self.keys is not None
        self._members = members
        self.keys.spread(members)

    def scan(self, start: int, hashes: Sequence[int]) -> bool:
        """The hashes of the keys from `start` on. False: they are of no use."""
        assert self.keys is not None
        end = min(start + len(hashes), self._new_end())
        self._cover(end)
        return self.keys.scan(start, hashes[: max(0, end - start)])

    # --- the partition, and time -----------------------------------------------------------------

    def advanced(self, start: int, end: int) -> None:
        """The partition's log begins and ends there now."""
        self.end = max(self.end, end)
        if start > self.start:
            self._forget_below(start)

    def reset(self, offset: int) -> None:
        """The index was put there: all that was is forgotten."""
        self._begin(ShareMap(offset))
        self._change = ShareChange(reset=offset)
        if self.keys is not None:
            self.order_keys()
            self.spread(self._members)
