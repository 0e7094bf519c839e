"""How far a shared index has come in one partition, durably: which messages are done.

Rule 1: a settled message stays settled, until the index is put elsewhere or the message is revived:
        it was a dead letter, and is to be delivered again, as if it were new.
Rule 2: a change says only what is new, so that the changes of a turn make one entry. It makes no
        difference whether changes are applied one by one or merged.

Which consumer holds which message is the leader's memory (`core.sharing.leases`). After a crash
any message may still be with a consumer; after an orderly end the state is `clean`, and `lent` says
which messages are with consumers. From `start` on, each message has a flag, a count and a mark of
one byte each. The mark says what a death would mean for the message: whether its last delivery
counts, and whether it is suspect.

Who was given a message is logged with its count, by the identity that its consumer keeps when it
comes back. So whoever comes back after a restart is known to be alive, and nothing that it had is
suspect. Of a message that is with nobody, by its mark, that says nothing any more.

A message that was nacked with a delay has a time before which it is not delivered again. That time
stays where it is when the message is delivered again: it has passed by then, and says nothing any
more. So nobody has to log that it is over.

Of a partition that several nodes keep, the log also says how far messages may have been leased
(`high`, see `core.sharing.reservation`), and until when leases last that were extended beyond the
usual time. What it says of a message that is with nobody, by its mark, is void.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from hocket.core.sharing.ranges import (
    Range,
    clipped,
    deltas,
    gaps,
    merged,
    packed_map,
    rows_of,
    runs_of_numbers,
    unpacked_map,
    without,
)

UNIT_MAX = 100  # messages that go to the dead letters together
SPAN_MAX = 1_000_000  # messages between the oldest one not settled and the newest one leased

# The marks of a message. HELD: it is with a consumer, and that delivery counts. DOUBT: it is with a
# consumer, and that delivery does not count unless the message turns out to have been handed out.
# SUSPECT: it was with a consumer that died.
HELD, DOUBT, SUSPECT = 1, 2, 4
MARK = 256  # in a Count that is logged, the deliveries come with MARK times the mark

HOLDERS_MAX = 1_000  # rows that say who was given what; with more, those that are void are dropped
_NOT_HELD = bytes(m for m in range(8) if not m & (HELD | DOUBT))
_WITH_NOBODY = re.compile(b"[" + _NOT_HELD + b"]+")


class ShareSettings(NamedTuple):
    lease_us: int = 30_000_000
    max_deliveries: int = 5
    failover: str = "safe"


class Unit(NamedTuple):
    """Adjacent messages that go to the dead letters together, for one reason."""

    start: int
    end: int
    deliveries: int
    reason: str
    life: int = 0  # how often messages of the index had been revived before; it tells apart the
    # deaths of one message


DyingRow = Unit | tuple[int, int, int, str]
Count = tuple[int, int, int]  # start, end, deliveries so far (and the mark, where it is logged)
Rest = tuple[int, int, int]  # start, end, the time in microseconds before which nobody gets them
Holding = tuple[int, int, bytes]  # start, end, the identity of the consumer that they were given to


@dataclass(slots=True)
class ShareChange:
    """What is logged. `reset` is applied first, then `revived`; later counts, rests, holders and
    extensions override earlier ones."""

    settled: list[Range] = field(default_factory=list)  # done for good
    counts: list[Count] = field(default_factory=list)  # of messages not settled, with marks
    dying: list[DyingRow] = field(default_factory=list)
    settings: ShareSettings | None = None
    reset: int | None = None  # the new start; everything from before is forgotten
    clean: bool = False  # the broker closed in good order ...
    lent: list[Range] = field(default_factory=list)  # ... and these were with consumers then
    revived: list[Range] = field(default_factory=list)  # settled no longer: to be delivered again
    # The number of a log of dead letters -> what lies below this offset there was revived.
    revived_to: dict[int, int] = field(default_factory=dict)
    revivals: int = 0  # how often there was one, with this one; 0: this is none
    rests: list[Rest] = field(default_factory=list)  # nacked with a delay
    holders: list[Holding] = field(default_factory=list)  # given to a consumer
    # Leases that last longer than usual, and until when; 0: not any more.
    extended: list[Rest] = field(default_factory=list)
    high: int = 0  # messages below this offset may be leased from now on

    @property
    def first(self) -> int:
        """The first message that the change speaks of; beyond all messages if there is none."""
        spoken = [(row[0], row[1]) for row in (*self.settled, *self.counts, *self.dying)]
        if self.revived:  # these lie before the start of the index, and rightly so
            spoken = without(spoken, self.revived)
        return min((first for first, _ in spoken), default=1 << 64)

    def merge(self, later: ShareChange) -> None:
        if later.reset is not None:
            self.reset = later.reset
            self.settled, self.counts, self.dying, self.revived = [], [], [], []
            self.rests, self.holders, self.extended, self.high = [], [], [], 0
        if later.revived:
            self.revive(later.revived)
        self.revived_to |= later.revived_to
        self.revivals = later.revivals or self.revivals
        self.settled += later.settled
        self.counts += later.counts
        self.rests += later.rests
        self.holders += later.holders
        self.extended += later.extended
        self.high = max(self.high, later.high)
        self.dying += later.dying
        self.settings = later.settings or self.settings
        self.clean, self.lent = later.clean, list(later.lent)

    def revive(self, ranges: list[Range]) -> None:
        """These are to be delivered again: what was said of them before this is void."""
        void = merged(ranges)
        self.settled = without(self.settled, void)
        self.counts = [
            (low, high, count)
            for start, end, count in self.counts
            for low, high in gaps(clipped(void, start, end), start, end)
        ]
        self.rests = [
            (low, high, until)
            for start, end, until in self.rests
            for low, high in gaps(clipped(void, start, end), start, end)
        ]
        self.dying = [
            unit._replace(start=low, end=high)
            for unit in (Unit(*row) for row in self.dying)
            for low, high in gaps(clipped(void, unit.start, unit.end), unit.start, unit.end)
        ]
        self.revived += ranges

    def encode(self) -> dict[str, Any]:
        """As JSON knows it, without the empty fields."""
        fields = {
            "settled": deltas(merged(self.settled)),
            "counts": deltas([(start, end, n % MARK) for start, end, n in self.counts]),
            "dying": [list(unit[:4] if unit[4:] == (0,) else unit) for unit in self.dying],
            "settings": list(self.settings or ()),
            "clean": self.clean,
            "lent": deltas(self.lent),
            "marks": _packed_marks([n // MARK for _, _, n in self.counts]),
            "revived": deltas(merged(self.revived)),
            "revivedTo": [list(each) for each in self.revived_to.items()],
            "revivals": self.revivals,
            "rests": deltas(self.rests),
            "holders": [
                [identity.hex(), *deltas([(start, end) for start, end, _ in rows])]
                for identity, rows in groupby(self.holders, _identity)
            ],
            "extended": deltas(self.extended),
            "high": self.high,
        }
        found: dict[str, Any] = {name: value for name, value in fields.items() if value}
        if self.reset is not None:
            found["reset"] = self.reset
        return found

    @staticmethod
    def decode(data: dict[str, Any]) -> ShareChange:
        settings = data.get("settings")
        counts = [(start, end, n) for start, end, n in rows_of(data.get("counts", ()), 3)]
        if "marks" in data:
            marks = _unpacked_marks(data["marks"])
            counts = [
                (start, end, n + MARK * mark)
                for (start, end, n), mark in zip(counts, marks, strict=True)
            ]
        return ShareChange(
            settled=[(start, end) for start, end in rows_of(data.get("settled", ()), 2)],
            counts=counts,
            dying=[Unit(*unit) for unit in data.get("dying", ())],
            settings=ShareSettings(*settings) if settings else None,
            reset=data.get("reset"),
            clean=data.get("clean", False),
            lent=[(start, end) for start, end in rows_of(data.get("lent", ()), 2)],
            revived=[(start, end) for start, end in rows_of(data.get("revived", ()), 2)],
            revived_to=dict(data.get("revivedTo", ())),
            revivals=data.get("revivals", 0),
            rests=[(start, end, until) for start, end, until in rows_of(data.get("rests", ()), 3)],
            holders=[
                (start, end, bytes.fromhex(identity))
                for identity, *numbers in data.get("holders", ())
                for start, end in rows_of(numbers, 2)
            ],
            extended=[(start, end, n) for start, end, n in rows_of(data.get("extended", ()), 3)],
            high=data.get("high", 0),
        )


def _identity(holding: Holding) -> bytes:
    return holding[2]


def _packed_marks(marks: list[int]) -> list[int]:
    """The marks of many rows in few numbers: a mark, how many rows have it, the next mark ...

    Nothing if no row has one. (A broker that knows no marks does not look at this field.)
    """
    if not any(marks):
        return []
    return [n for mark, run in groupby(marks) for n in (mark, sum(1 for _ in run))]


def _unpacked_marks(packed: list[int]) -> list[int]:
    return [
        mark for mark, count in zip(packed[::2], packed[1::2], strict=True) for _ in range(count)
    ]


class ShareState:
    """Every message below `start` is settled, and `start` itself is not. A new state is clean."""

    __slots__ = (
        "_counts", "_done", "_extended", "_extended_max", "_holders", "_holders_max", "_marks",
        "_rests", "clean", "dying", "high", "lent", "longest_us", "lost", "revivals", "revived_to",
        "settings", "start",
    )  # fmt: skip

    def __init__(self, start: int, settings: ShareSettings = ShareSettings()) -> None:  # noqa: B008
        self.start = start
        self.settings = settings
        self.clean = True
        self.lost = 0  # messages that were gone before they were settled, since the last reset
        self.lent: list[Range] = []
        self.dying: list[Unit] = []  # in order, without overlaps
        self.revivals = 0
        self.revived_to: dict[int, int] = {}
        self._done = bytearray()  # one byte for each message from `start` on: 1 if it is settled
        self._counts = bytearray()  # as long as `_done`
        self._marks = bytearray()  # as long as `_done`
        # Before which time nobody gets a message; as long as `_done`, or empty if none has one.
        self._rests = array("q")
        # Who was given what; later rows override earlier ones. Most of it may be void.
        self._holders: list[Holding] = []
        self._holders_max = HOLDERS_MAX
        self.high = 0  # no message from this offset on was leased, where several nodes keep them
        self.longest_us = settings.lease_us  # no lease that may be left is longer, but for these:
        self._extended: list[Rest] = []  # later rows override earlier ones; 0: not extended
        self._extended_max = HOLDERS_MAX

    def apply(self, change: ShareChange) -> None:
        if change.reset is not None:
            self.start, self.lost = change.reset, 0
            self._done, self._counts, self._marks = bytearray(), bytearray(), bytearray()
            self._rests = array("q")
            self.dying, self._holders, self._extended = [], [], []
            self.high = self.longest_us = 0
        self.settings = change.settings or self.settings
        self.clean, self.lent = change.clean, list(change.lent)
        if self.clean and not self.lent:
            self.longest_us = 0
        self.longest_us = max(self.longest_us, self.settings.lease_us)
        self.high = max(self.high, change.high)
        if change.extended:
            if len(self._extended) > self._extended_max:
                self._extended = self.extended()
                self._extended_max = max(HOLDERS_MAX, 2 * len(self._extended))
            self._extended += change.extended
        if change.revived:
            self._revive(change.revived)
        self.revived_to |= change.revived_to
        self.revivals = max(self.revivals, change.revivals)
        if change.counts:
            self._count(change.counts)
        if change.rests:
            self._rest(change.rests)
        if change.holders:
            self._hold(change.holders)
        for row in change.dying:
            unit = Unit(*row)
            if unit.end > self.start:  # else the log start has passed it meanwhile
                insort(self.dying, unit._replace(start=max(unit.start, self.start)))
        if change.settled:
            self._settle(change.settled)

    def ahead(self) -> int:
        """How many messages behind `start` are settled already."""
        return self._done.count(1)

    def maps(self) -> tuple[bytes, bytes]:
        """Two maps of the messages from `start` on: whether it is settled; its deliveries."""
        return bytes(self._done), bytes(self._counts)

    def marks(self) -> bytes:
        """A map of the marks of the messages from `start` on."""
        return bytes(self._marks)

    def rests(self) -> list[Rest]:
        """The messages that were nacked with a delay, and until when; it may be over by now."""
        base = self.start
        return [
            (base + at, base + at + count, until)
            for at, count, until in runs_of_numbers(self._rests)
        ]

    def holders(self) -> list[Holding]:
        """Whom those messages were given to that are with a consumer, by their marks."""
        if not self._holders:
            return []
        base, size = self.start, len(self._marks)
        numbers: dict[bytes, int] = {}
        given = array("I", bytes(4 * size))
        for start, end, identity in self._holders:
            first, last = max(start, base) - base, min(end - base, size)
            if first < last:
                number = numbers.setdefault(identity, len(numbers) + 1)
                given[first:last] = array("I", (number,)) * (last - first)
        for run in _WITH_NOBODY.finditer(self._marks):
            given[run.start() : run.end()] = array("I", bytes(4 * (run.end() - run.start())))
        identities = list(numbers)
        return [
            (base + at, base + at + count, identities[number - 1])
            for at, count, number in runs_of_numbers(given)
        ]

    def extended(self) -> list[Rest]:
        """The messages with a consumer that has extended their leases, and until when."""
        if not self._extended:
            return []
        base, size = self.start, len(self._marks)
        times = array("q", bytes(8 * size))
        for start, end, until in self._extended:
            first, last = max(start, base) - base, min(end - base, size)
            if first < last:
                times[first:last] = array("q", (until,)) * (last - first)
        for run in _WITH_NOBODY.finditer(self._marks):
            times[run.start() : run.end()] = array("q", bytes(8 * (run.end() - run.start())))
        return [
            (base + at, base + at + count, until) for at, count, until in runs_of_numbers(times)
        ]

    @property
    def knows_extensions(self) -> bool:
        """Whether a message may have been extended, also one that is with nobody now."""
        return bool(self._extended)

    def was_cut_off(self) -> None:
        """Changes are lost: any message that is not settled may be with a consumer."""
        self.clean, self.lent = False, []

    def log_start_moved(self, offset: int) -> None:
        """Messages below this offset are gone, and so settled."""
        gone = offset - self.start
        if gone > 0:
            self.lost += gone - self._done.count(1, 0, gone)
            self._leave(self.start, offset)
            self._drop(gone)
            self.start = offset
            self._advance()

    def _drop(self, count: int) -> None:
        """Forget so many messages at the front of the maps."""
        del self._done[:count]
        del self._counts[:count]
        del self._marks[:count]
        del self._rests[:count]

    def snapshot(self) -> dict[str, Any]:
        taken: dict[str, Any] = {"start": self.start, "settings": list(self.settings)}
        if self.lost:
            taken["lost"] = self.lost
        if self.longest_us != self.settings.lease_us:
            taken["longest"] = self.longest_us
        if self._done:
            taken |= {"done": packed_map(self._done), "counts": packed_map(self._counts)}
            if self._marks.count(0) < len(self._marks):
                taken["marks"] = packed_map(self._marks)
        as_change = ShareChange(
            dying=list(self.dying), clean=self.clean, lent=self.lent, rests=self.rests(),
            revived_to=self.revived_to, revivals=self.revivals, holders=self.holders(),
            extended=self.extended(), high=self.high,
        )  # fmt: skip
        return taken | {"rest": as_change.encode()}

    @staticmethod
    def restore(taken: dict[str, Any]) -> ShareState:
        state = ShareState(taken["start"], ShareSettings(*taken["settings"]))
        state.lost = taken.get("lost", 0)
        if "done" in taken:
            state._done = unpacked_map(taken["done"])
            state._counts = unpacked_map(taken["counts"])
            marks = taken.get("marks")
            state._marks = unpacked_map(marks) if marks else bytearray(len(state._done))
        state.apply(ShareChange.decode(taken["rest"]))
        state.longest_us = taken.get("longest", state.settings.lease_us)
        return state

    def _cover(self, end: int) -> None:
        more = end - self.start - len(self._done)
        if more > 0:
            self._done += bytes(more)
            self._counts += bytes(more)
            self._marks += bytes(more)
            if self._rests:
                self._rests.frombytes(bytes(8 * more))

    def _count(self, counts: list[Count]) -> None:
        self._cover(max(end for _, end, _ in counts))
        base = self.start
        for start, end, value in counts:
            if end > base:
                mark, count = divmod(value, MARK)
                cut = slice(max(start, base) - base, end - base)
                size = cut.stop - cut.start
                self._counts[cut] = bytes((count,)) * size
                self._marks[cut] = bytes((mark,)) * size

    def _revive(self, ranges: list[Range]) -> None:
        first = min(start for start, _ in ranges)
        if first < self.start:
            more = self.start - first
            self._done[:0] = b"\1" * more
            self._counts[:0] = bytes(more)
            self._marks[:0] = bytes(more)
            if self._rests:
                self._rests[:0] = array("q", bytes(8 * more))
            self.start = first
        self._cover(max(end for _, end in ranges))
        for start, end in ranges:
            cut = slice(start - self.start, end - self.start)
            self._done[cut] = self._counts[cut] = self._marks[cut] = bytes(end - start)
            self._leave(start, end)
        if self._rests:
            self._end_rests(ranges)

    def _rest(self, rests: list[Rest]) -> None:
        self._cover(max(end for _, end, _ in rests))
        if not self._rests:
            self._rests.frombytes(bytes(8 * len(self._done)))
        base = self.start
        for start, end, until in rests:
            if end > base:
                first, last = max(start, base) - base, end - base
                self._rests[first:last] = array("q", (until,)) * (last - first)

    def _hold(self, holders: list[Holding]) -> None:
        self._holders += holders
        if len(self._holders) > self._holders_max:
            self._holders = self.holders()
            self._holders_max = max(HOLDERS_MAX, 2 * len(self._holders))

    def _settle(self, ranges: list[Range]) -> None:
        self._cover(max(end for _, end in ranges))
        base, done, counts, marks = self.start, self._done, self._counts, self._marks
        for start, end in ranges:
            if end - start == 1 and start >= base:  # acks come in no order, so this is frequent
                done[start - base] = 1
                counts[start - base] = 0
                marks[start - base] = 0
            elif end > base:
                first, last = max(start, base) - base, end - base
                done[first:last] = b"\1" * (last - first)
                counts[first:last] = marks[first:last] = bytes(last - first)
        if self._rests:
            self._end_rests(ranges)
        if self.dying:
            for start, end in merged(ranges):
                self._leave(start, end)
        if done and done[0]:
            self._advance()

    def _end_rests(self, ranges: list[Range]) -> None:
        """These messages are settled: nothing is to be waited for."""
        base = self.start
        for start, end in ranges:
            first, last = max(start, base) - base, max(end, base) - base
            self._rests[first:last] = array("q", bytes(8 * (last - first)))

    def _advance(self) -> None:
        """Move `start` behind the settled messages at the front."""
        first = self._done.find(0)
        first = len(self._done) if first < 0 else first
        self._drop(first)
        self.start += first

    def _leave(self, start: int, end: int) -> None:
        """These messages are dying no longer; a unit that lies partly within is cut."""
        first = bisect_left(self.dying, (start,))
        if first and self.dying[first - 1].end > start:
            first -= 1
        last = bisect_left(self.dying, (end,))
        kept = [
            unit._replace(start=low, end=high)
            for unit in self.dying[first:last]
            for low, high in clipped([(unit.start, unit.end)], 0, start)
            + clipped([(unit.start, unit.end)], end, unit.end)
        ]
        self.dying[first:last] = kept
