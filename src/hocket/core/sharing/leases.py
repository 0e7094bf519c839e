"""Which consumer has which message of a shared index in one partition: the leader's memory.

Rule 1: a message is with one consumer at most, and only that one may settle it or extend its lease.
Rule 2: a settled message is never leased again. Lower offsets are leased first, so that messages
        that come back go before new ones.
Rule 3: a request changes only messages that its consumer has. Ranges of others (somebody else has
        them, or nobody, or they are no longer there) are returned as refused.
Rule 4: what is said `again`, since the answer to the first time was lost, is not refused where it
        holds already. It is answered when the log has it, however long ago the first time was.
Rule 5: a consumer that has a suspect message, or is being read one for, gets nothing else; and
        where a suspect is the lowest message that it may have, it gets nothing before that one.

Leases are made from the durable state as it was BEFORE the log says that consumers are attached
again: that entry ends the state's being `clean`, and with it the knowledge of what was lent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from hocket.core.sharing.before import Before
from hocket.core.sharing.keys import LOOKAHEAD, KeyOrder
from hocket.core.sharing.ledger import (
    CLOSED,
    HELD_NOW,
    IN_DOUBT,
    NOT_HELD,
    ONE_LESS,
    OUTLIVED,
    REFUSED,
    RESTARTED,
    Ledger,
)
from hocket.core.sharing.maps import (
    ALONE,
    AVAILABLE,
    DYING,
    GAP_MAX,
    LEASED,
    LENT_RUNS,
    RESERVED,
    RESTING,
    RUNS_OF,
    SETTLED,
    WITHHELD,
    Maps,
)
from hocket.core.sharing.ranges import (
    Range,
    clipped,
    equal_runs,
    gaps,
    joined,
    merged,
    without,
)
from hocket.core.sharing.reservation import Reservation
from hocket.core.sharing.state import DOUBT, MARK, SPAN_MAX, Count, ShareChange, ShareState

GRACE_US = 2_000_000  # how long a consumer whose link broke may take to come back
IN_FLIGHT_MAX = 20_000  # messages that are leased, or are being read to be leased

_ONE_MORE = bytes((*range(1, 256), 255))  # a count is a byte, and stays at its highest value
_AT_LEAST_ONE = bytes((1, *range(1, 256)))
_AS_IT_IS = bytes(range(256))


class Leases(Ledger):
    """`end` is the partition's end. With `immortal`, messages are delivered without limit.

    `alone_us`: several nodes keep the partition, and from then on none but this one, which leads
    it, leases messages of it.
    """

    def __init__(
        self,
        state: ShareState,
        *,
        end: int,
        now_us: int,
        immortal: bool = False,
        alone_us: int | None = None,
        grace_us: int = GRACE_US,
        in_flight_max: int = IN_FLIGHT_MAX,
        span_max: int = SPAN_MAX,
    ) -> None:
        done, counts = state.maps()
        maps = Maps(state.start, done, counts, state.marks())
        dying = [(unit.start, unit.end) for unit in state.dying]
        self._before = Before(state.start, done, dying)  # what was settled already
        self.reservation = None if alone_us is None else Reservation(alone_us, state.high)
        replicated = self.reservation is not None
        super().__init__(maps, state.settings, end=end, immortal=immortal, replicated=replicated)
        self.revived_to, self.revivals = dict(state.revived_to), state.revivals
        self._grace_us = grace_us
        self._in_flight_max = in_flight_max
        self._span_max = span_max
        self._consumers: list[int] = []  # those that share the keys
        # What consumers had before a restart, by their identities; it is withheld at most.
        self._had: dict[bytes, list[Range]] = {}
        # The log says of some messages that their leases were extended, now or before.
        self._knows_extensions = replicated and state.knows_extensions
        self._open(state, now_us)

    def _open(self, state: ShareState, now_us: int) -> None:
        """Take over what is dying or rests, and leave alone what consumers may still have."""
        self.suspects = sum(self._suspects_in(*run) for run in self._marked())
        for unit in state.dying:
            self._cover(unit.end)
            for run in self._maps.runs(RUNS_OF[AVAILABLE], unit.start, unit.end):
                self._turn(*run, AVAILABLE, DYING)
        for start, end, until in state.rests():
            if until > now_us:  # else it is over, and the message may have been delivered since
                for run in self._maps.runs(RUNS_OF[AVAILABLE], start, end):
                    self._turn(*run, AVAILABLE, RESTING)
                    self._set_deadline(*run, until)
        limit = state.start + self._span_max
        if state.clean:
            withheld = state.lent
        else:
            end = self.end  # what comes from now on was with nobody
            if self.reservation is not None:
                end = max(state.start, min(end, state.high))
            withheld = [] if self.settings.failover == "fast" else [(state.start, end)]
            limit = self._maps.covered  # all behind the maps is withheld: they need not grow now
        self._withheld_until = now_us + self._grace_us
        if self.reservation is not None:
            over_us = self.reservation.alone_us + state.longest_us
            self._withheld_until = max(self._withheld_until, over_us)
        for start, end in withheld:
            self._cover(min(end, limit))
            self._withheld_end = end if end > limit else 0
            for run in self._maps.runs(RUNS_OF[AVAILABLE], start, end):
                self._turn(*run, AVAILABLE, WITHHELD)
                self._set_deadline(*run, self._withheld_until)
        for start, end, until in state.extended():
            if until > self._withheld_until:
                for run in self._maps.runs(RUNS_OF[WITHHELD], start, end):
                    self._set_deadline(*run, until)
        for start, end, identity in state.holders():
            self._had.setdefault(identity, []).append((start, end))
        for run in self._marked():  # those not withheld: their consumers may be alive
            self._come_back(*run, AVAILABLE, RESTARTED, NOT_HELD)
        self._bury_spent()

    # --- what can be asked -----------------------------------------------------------------------

    def is_reserved(self, high: int) -> None:
        """Messages below this offset may be leased; 0: what was asked for could not be logged."""
        assert self.reservation is not None
        self.reservation.answered(high)

    def available(self) -> int:
        """How many messages could be reserved now."""
        if self.keys is not None:
            count = self.keys.leasable if self.keys.is_ready else 0
        else:
            count = self._numbers[AVAILABLE] + self._numbers[ALONE]
            count += max(0, self._new_end() - self._new_start())
        return max(0, min(count, self._room()))

    def _room(self) -> int:
        return self._in_flight_max - self._numbers[LEASED] - self._numbers[RESERVED]

    def lent(self) -> list[Range]:
        """The messages that are, or may be, with consumers."""
        ranges = self._maps.runs(LENT_RUNS, self.start, self._maps.covered)
        if self._withheld_end > self._maps.covered:
            joined(ranges, self._maps.covered, self._withheld_end)
        return ranges

    def scan_wanted(self) -> Range | None:
        """The messages whose keys should be scanned next, if there is a consumer to have them."""
        if self.keys is None or not self._consumers:
            return None
        return self.keys.wanted(self._leasable_end(), self._span_max)

    def reservation_wanted(self) -> int:
        """Up to where to reserve messages, if there is somebody to have them; 0: enough are."""
        if self.reservation is None or self._room() <= 0:
            return 0
        at = self._new_start()
        if self.keys is None:
            starved = self.reservation.high <= min(at, self.end - 1)
            return self.reservation.ask(at, starved=starved)
        if self.keys.leasable >= self.reservation.run // 2:
            return 0
        if (self._withheld_end or self._numbers[WITHHELD]) and at >= self.start + LOOKAHEAD:
            return 0  # it is not for want of messages that few can be leased
        return self.reservation.ask(at, starved=False)

    def _new_start(self) -> int:
        """Messages from this offset on were never leased, and are not withheld."""
        return max(self._maps.covered, self._withheld_end)

    def _new_end(self) -> int:
        return min(self._leasable_end(), self.start + self._span_max)

    def _leasable_end(self) -> int:
        return self.end if self.reservation is None else min(self.end, self.reservation.high)

    # --- leasing ---------------------------------------------------------------------------------

    def reserve(self, consumer: int, count: int) -> list[Range]:
        """Reserve, to be read, up to `count` of the lowest messages that this consumer may have.

        No two neighbours among them are `GAP_MAX` messages apart, or more. What lies behind a
        suspect is not reserved before it, and the suspect is not reserved here.
        """
        count = min(count, self.available())
        runs = self._lowest(count) if self.keys is None else self.keys.take(consumer, count)
        for start, end in runs:
            self._reserve(consumer, start, end, AVAILABLE)
        return runs

    def reserve_suspect(self, consumer: int) -> list[Range]:
        """Reserve the suspect that is the lowest message that this consumer may have."""
        if self.keys is None:
            at = self._lowest_suspect()
        else:
            at = self.keys.take(consumer, 1, alone=True)[0][0]
        self._reserve(consumer, at, at + 1, ALONE)
        self._given.setdefault(consumer, set()).add(at)
        return [(at, at + 1)]

    def _reserve(self, consumer: int, start: int, end: int, before: int) -> None:
        self._maps.set_holder(start, end, consumer)
        self._maps.set_state(start, end, RESERVED)
        self._numbers[before] -= end - start
        self._numbers[RESERVED] += end - start

    def _lowest(self, count: int) -> list[Range]:
        maps = self._maps
        runs: list[Range] = []
        at = self._low
        limit = self._lowest_suspect() - maps.base if self._numbers[ALONE] else None
        while count:
            found = maps.states.find(AVAILABLE, at - maps.base, limit)
            if found < 0:
                if limit is not None:
                    break
                at = self._new_start()
                assert at < self._new_end(), "more was asked for than is available"
                self._cover(min(self._new_end(), at + count))
                continue
            first = maps.base + found
            if runs and first - runs[-1][1] >= GAP_MAX:
                break
            run = RUNS_OF[AVAILABLE].match(maps.states, found, found + count)
            assert run is not None
            at = maps.base + run.end()
            joined(runs, first, at)
            count -= at - first
        self._low = runs[-1][1] if runs else at
        return runs

    def lease(
        self, runs: list[Range], now_us: int, *, identity: bytes, in_doubt: bool = False
    ) -> list[Count]:
        """These were read, and are with their consumer from now on. Returns their deliveries.

        `identity`: what the consumer is known by when it comes back. `in_doubt`: it is going to
        tell which of them it hands out.
        """
        counts: list[Count] = []
        deadline = now_us + self.settings.lease_us
        runs = clipped(runs, self.start, self._maps.covered)
        for start, end in runs:
            self._turn(start, end, RESERVED, LEASED)
            self._maps.set_deadline(start, end, deadline)
            counts += self._recount(start, end, _ONE_MORE, IN_DOUBT if in_doubt else HELD_NOW)
            self._change.holders.append((start, end, identity))
            if self._knows_extensions:  # of the consumer that had it before
                self._change.extended.append((start, end, 0))
        if runs:
            self._set_timer(deadline, runs[0][0], runs[-1][1])
        return counts

    def handed_out(self, consumer: int, ranges: Iterable[Range]) -> None:
        """Of these messages, those that the consumer has were handed out there."""
        for start, end in ranges:
            for low, high in self._of(consumer, start, end):
                for first, last, mark in self._maps.by_mark(low, high):
                    if mark & DOUBT:
                        self._maps.remark(first, last, HELD_NOW)
                        self._log(first, last)

    def is_next(self, offset: int) -> None:
        """The consumer that has this message hands it out next: its delivery counts."""
        maps = self._maps
        at = offset - maps.base
        if maps.marks[at] & DOUBT:
            maps.marks[at] = mark = HELD_NOW[maps.marks[at]]
            self._change.counts.append((offset, offset + 1, maps.counts[at] + MARK * mark))

    def give_back(self, runs: list[Range]) -> None:
        """These were reserved, and are not leased after all."""
        for start, end in reversed(clipped(runs, self.start, self._maps.covered)):
            self._free(start, end, RESERVED)

    def lose(self, runs: list[Range]) -> None:
        """These were reserved, and can never be read: they are lost."""
        for start, end in clipped(runs, self.start, self._maps.covered):
            self._settle(start, end, RESERVED)
        self._advance()

    def bury(self, runs: list[Range], reason: str) -> None:
        """These were reserved, and are damaged where they are stored: they die undelivered."""
        base = self._maps.base
        for start, end in reversed(clipped(runs, self.start, self._maps.covered)):
            counts = list(equal_runs(self._maps.counts, start - base, end - base))
            for low, high, count in reversed(counts):
                # One unit: nothing of it can be read, so it makes one dead letter.
                self._die(base + low, base + high, RESERVED, count, reason, high - low)

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
        again: bool = False,
        lost: list[Range] | None = None,
    ) -> list[Range]:
        """Do this with the messages of these ranges that the consumer holds; returns the others.

        What was said before (`again`) and holds by that is not among the others. `lost` is what the
        consumer had when a link of it broke, and had lost when it came back; None: it was not here
        before.
        """
        if action == "ack":
            refused = self._ack(consumer, ranges)
        else:
            act = self._actions[action]
            refused = []
            for start, end in ranges:
                mine = self._split(consumer, start, end, refused)
                for run in reversed(mine):  # the newest first: rule 4 of core.sharing.ledger
                    act(self, *run, now_us, duration_us, reason)
        if again:
            refused = self._not_yet(action, refused, lost)
        self._advance()
        return refused

    def _not_yet(self, action: str, refused: list[Range], lost: list[Range] | None) -> list[Range]:
        """Of these messages, those that the first telling of an ack, or a reject, has not settled.

        The first telling came before the consumer's link broke, or never. So what is `lost` was not
        settled by it, though another consumer may have settled it since. Likewise for a consumer
        that was not here before: its first telling came before the broker's process, or never, so
        only what was settled at the start can be settled by it. (That another consumer had settled
        it, before a restart, cannot be told apart; the message is done then.)

        What holds is logged once more. That changes nothing, and the answer waits for it: the entry
        of the first telling may not be durable yet. A reject holds for what is dying, too, or was
        when this began. A nack has nothing to hold on to, since its message goes on to others.
        """
        if action not in ("ack", "reject"):
            return refused
        settled: list[Range] = []
        dying: list[Range] = []
        for start, end in refused:
            if lost is None:
                settled += self._before.settled(start, end)
                settled += self._before.were_dying(start, end) if action == "reject" else []
            else:
                settled += clipped([(start, end)], 0, self.start)
                settled += self._maps.runs(RUNS_OF[SETTLED], start, end)
            if action == "reject":
                dying += self._maps.runs(RUNS_OF[DYING], start, end)
        settled = without(settled, [*dying, *(lost or ())])
        self._change.settled += settled
        for run in dying:
            self._log(*run)
        return without(refused, settled + dying)

    def _ack(self, consumer: int, ranges: Iterable[Range]) -> list[Range]:
        """Acks are the most frequent requests, often of single messages in no order."""
        maps, keys, settled = self._maps, self.keys, self._change.settled
        states, holders, base, size = maps.states, maps.holders, maps.base, len(maps.states)
        refused: list[Range] = []
        single = 0
        is_plain = keys is None and not self.suspects
        for start, end in ranges:
            at = start - base
            if (
                end - start == 1
                and 0 <= at < size
                and states[at] == LEASED
                and holders[at] == consumer
            ):
                if is_plain:
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
        """The runs that this consumer holds; the rest is added to `refused`."""
        mine: list[Range] = []
        at = start
        for low, high in self._maps.runs(RUNS_OF[LEASED], start, end):
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
        self._recount(start, end, _AS_IT_IS, OUTLIVED)
        self._end(start, end, LEASED, REFUSED, now_us + duration_us if duration_us else 0)

    def _extend(self, start: int, end: int, now_us: int, duration_us: int, _reason: str) -> None:
        until = now_us + (duration_us or self.settings.lease_us)
        if self.reservation is not None and duration_us > self.settings.lease_us:
            self._knows_extensions = True
            self._change.extended.append((start, end, until))
        elif self._knows_extensions:
            self._change.extended += [
                (low, high, 0)
                for low, high, deadline in self._maps.by_deadline(start, end)
                if deadline > until
            ]
        self._set_deadline(start, end, until)

    def _reject(self, start: int, end: int, _now_us: int, _duration_us: int, reason: str) -> None:
        base = self._maps.base
        counts = list(equal_runs(self._maps.counts, start - base, end - base))
        for low, high, count in reversed(counts):
            self._die(base + low, base + high, LEASED, count, reason)

    def _release(self, start: int, end: int, _now_us: int, _duration_us: int, _reason: str) -> None:
        """These were not handed out, so that delivery does not count."""
        self._recount(start, end, ONE_LESS, NOT_HELD)
        self._free(start, end, LEASED)

    _actions: ClassVar[dict[str, Callable[[Leases, int, int, int, int, str], None]]] = {
        "nack": _nack,
        "extend": _extend,
        "reject": _reject,
        "release": _release,
    }

    def dead_lettered(self, start: int, end: int) -> None:
        """These messages are in the dead letters, durably."""
        for run in self._maps.runs(RUNS_OF[DYING], start, end):
            self._settle(*run, DYING)
        self._advance()

    def reaches(self, offset: int) -> bool:
        """Whether a message this far back can be revived: the maps must span all behind it."""
        return self._maps.covered - offset <= self._span_max

    def _revive(self, runs: list[Range]) -> None:
        """A key-shared index begins its order anew: what it knew of keys begins behind these."""
        keys, self.keys = self.keys, None
        super()._revive(runs)
        self._before = self._before.without(runs)
        if self.reservation is not None:  # they may lie behind all that was leased since a seek
            self.reservation.high = max(self.reservation.high, self._maps.covered)
            self._change.high = self._maps.covered
        if keys is not None:
            self.order_keys()
            self.spread(self._consumers)

    # --- consumers -------------------------------------------------------------------------------

    def welcome(
        self,
        consumer: int,
        identity: bytes,
        former: int | None,
        held: Iterable[Range],
        now_us: int,
    ) -> None:
        """A consumer has come, and says that it holds these. It is new, or had a `former` number.

        What was leased to it and it does not hold was lost on the way, and so not handed out; also
        if that was before a restart.
        """
        held = merged(held)
        if former is not None:
            for start, end in reversed(self.leased_by(former)):
                self._hand_over(start, end, former, consumer, held, now_us)
        for start, end in held:
            self._claim(consumer, identity, start, end, now_us)
        for start, end in reversed(without(self._had.get(identity, ()), held)):
            for run in reversed(self._maps.runs(RUNS_OF[WITHHELD], start, end)):
                self._recount(*run, ONE_LESS, NOT_HELD)
                self._free(*run, WITHHELD)

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
            self._note_suspects(consumer, low, high)
        self.handed_out(consumer, kept)
        for low, high in reversed(gaps(kept, start, end)):
            self._release(low, high, 0, 0, "")

    def _claim(self, consumer: int, identity: bytes, start: int, end: int, now_us: int) -> None:
        """The consumer has these from before a restart, and nobody else was given them since."""
        room = self._room()
        self._cover(min(end, self._withheld_end, self.start + self._span_max))
        for low, high in self._maps.runs(RUNS_OF[WITHHELD], start, end):
            high = min(high, low + room)
            if low == high:
                return
            room -= high - low
            self._maps.set_holder(low, high, consumer)
            self._turn(low, high, WITHHELD, LEASED)
            full = now_us + self.settings.lease_us
            for first, last, until in self._maps.by_deadline(low, high):
                was_extended = until > max(full, self._withheld_until)
                self._set_deadline(first, last, until if was_extended else full)
            # The log may not say that they were delivered: the broker crashed before that.
            self._recount(low, high, _AT_LEAST_ONE, HELD_NOW)
            self._change.holders.append((low, high, identity))
            self._note_suspects(consumer, low, high)

    def vanish(self, consumer: int, now_us: int) -> None:
        """The consumer's link broke; it may come back."""
        until = now_us + self._grace_us
        for start, end in self.leased_by(consumer):
            for low, high, deadline in self._maps.by_deadline(start, end):
                if deadline > until:
                    self._set_deadline(low, high, until)

    def leave(self, consumer: int) -> None:
        """The consumer closed in good order: what it has not released was handed out."""
        for start, end in reversed(self.leased_by(consumer)):
            self._recount(start, end, _AS_IT_IS, OUTLIVED)
            self._end(start, end, LEASED, CLOSED)

    # --- keys ------------------------------------------------------------------------------------

    def order_keys(self) -> None:
        """Keep the order of keys from now on: the index is key-shared."""
        self.keys = KeyOrder(self._maps)
        self.keys.claimed(self._maps.in_flight_end())

    def spread(self, consumers: list[int]) -> None:
        """These consumers share the keys now."""
        assert self.keys is not None
        self._consumers = consumers
        self.keys.spread(consumers)

    def scan(self, start: int, hashes: Sequence[int]) -> bool:
        """The hashes of the keys from `start` on. Returns False if none of them is new and next."""
        assert self.keys is not None
        end = min(start + len(hashes), self._new_end())
        self._cover(end)
        return self.keys.scan(start, hashes[: max(0, end - start)])

    # --- the partition, and time -----------------------------------------------------------------

    def advanced(self, start: int, end: int) -> None:
        """The partition's log begins at `start` and ends at `end` now."""
        self.end = max(self.end, end)
        if start > self.start:
            self._forget_below(start)

    def reset(self, offset: int) -> None:
        """The index was put to this offset: everything else is forgotten."""
        self._begin(Maps(offset))
        self._before = Before(offset, b"")
        if self.reservation is not None:
            self.reservation.reset()
        self._had = {}
        self._knows_extensions = False
        self._change = ShareChange(reset=offset)
        if self.keys is not None:
            self.order_keys()
            self.spread(self._consumers)
