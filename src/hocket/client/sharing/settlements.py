"""What was said about messages of a shared index, on its way to the broker and back.

Rule 1: what is said alike is told together, as ranges, one Settle for each verdict; extensions go
first and releases last, so that what is nacked comes again before what was released behind it.
Rule 2: what the application said is told until it is answered. If a link breaks before the answer,
nobody knows whether the broker has heard it, so it is told again on the next one (but for a nack
without delay, which comes true by itself). Until then the messages count as held, which keeps their
leases; and a refusal of something told twice is not reported, since the first telling may be what
has settled it.
Rule 3: what the client said of its own accord (*quiet*: about messages that it had not handed out)
is told once, and its refusal is no news for the application.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hocket.client.sharing.progress import SharedProgress
from hocket.client.sharing.ranges import Range, in_words, ranges_of
from hocket.client.sharing.verdict import NACK, Verdict
from hocket.errors import LeaseLost
from hocket.frames import packed
from hocket.model import SECOND_US

log = logging.getLogger("hocket")

NAMED_MAX = 5  # ranges that an error names
BURST_US = SECOND_US  # refusals with less than that between them are one burst

_TURNS = {"extend": 0, "ack": 1, "nack": 2, "reject": 3, "release": 4}


@dataclass(slots=True, eq=False)
class Telling:
    """One verdict, told to the broker or about to be."""

    number: int
    verdict: Verdict
    ranges: list[tuple[SharedProgress, int, int]]
    quiet: bool
    delivery: int  # the last one that had come when it was made
    waits: bool = True  # to be sent
    doubtful: bool = False  # it was sent on a link that broke

    @property
    def is_given_back(self) -> bool:
        """A plain nack on a link that broke: whether it was heard or not, the message is free.

        If not, it is when this consumer opens anew without naming it. Told again, the nack might
        meet the lease of the next delivery.
        """
        return self.doubtful and self.verdict == NACK

    def let_keys_go_on(self) -> None:
        """The broker has heard it, or never will: what comes from now on comes in order."""
        if self.verdict.action in ("nack", "release"):
            for progress, offset in self.offsets():
                progress.returned.pop(offset, None)

    def triples(self) -> bytes:
        return packed(
            n for progress, start, end in self.ranges for n in (progress.partition, start, end)
        )

    def by_partition(self) -> dict[int, SharedProgress]:
        return {progress.partition: progress for progress, _, _ in self.ranges}

    def offsets(self) -> Iterator[tuple[SharedProgress, int]]:
        return (
            (progress, each) for progress, start, end in self.ranges for each in range(start, end)
        )

    def keep(self, wanted: Callable[[SharedProgress, int], bool]) -> None:
        offsets: dict[SharedProgress, list[int]] = {}
        for progress, offset in self.offsets():
            if wanted(progress, offset):
                offsets.setdefault(progress, []).append(offset)
        self.ranges = _ranges(offsets)


class Settlements:
    def __init__(self, topic: str) -> None:
        self.refused = 0  # messages whose settling was refused, in all
        self._topic = topic
        self._last = 0  # number given to a telling
        self._open: dict[int, Telling] = {}  # not answered, in order
        self._said: dict[tuple[Verdict, bool], dict[SharedProgress, list[int]]] = {}
        self._extended: dict[tuple[SharedProgress, int], Verdict] = {}  # of several the last counts
        self._named: list[tuple[int, Range]] = []  # refused since the last commit: the first few
        self._lost = 0  # and how many in all
        self._refused_us = -BURST_US

    # --- what is said ----------------------------------------------------------------------------

    def add(
        self,
        verdict: Verdict,
        progress: SharedProgress,
        offsets: Iterable[int],
        *,
        quiet: bool = False,
    ) -> None:
        if verdict.action == "extend" and not quiet:
            self._extended.update(((progress, offset), verdict) for offset in offsets)
        else:
            self._said.setdefault((verdict, quiet), {}).setdefault(progress, []).extend(offsets)

    def put_together(self, delivery: int) -> None:
        """Make of what was said what is to be told. `delivery` is the last one that has come."""
        said, self._said = self._said, {}
        extended, self._extended = self._extended, {}
        for (progress, offset), verdict in extended.items():
            said.setdefault((verdict, False), {}).setdefault(progress, []).append(offset)
        for (verdict, quiet), offsets in sorted(said.items(), key=_turn):
            if ranges := _ranges(offsets):
                self._last += 1
                self._open[self._last] = Telling(self._last, verdict, ranges, quiet, delivery)

    def to_send(self) -> list[Telling]:
        return [telling for telling in self._open.values() if telling.waits]

    def held(self) -> Iterator[tuple[SharedProgress, int]]:
        """Messages that are settled as far as the application is concerned, and not answered."""
        for telling in self._open.values():
            if not telling.quiet and telling.verdict.action != "extend":
                yield from telling.offsets()

    def contested(self, progress: SharedProgress) -> set[int]:
        """Messages that a telling under way settles, should they come again: it meets their lease.

        A nack that is told for the first time is no such case: it is why they come again.
        """
        return {
            offset
            for telling in self._open.values()
            if telling.verdict.action in ("ack", "reject")
            or (telling.verdict.action == "nack" and telling.doubtful)
            for each, offset in telling.offsets()
            if each is progress
        }

    # --- what becomes of it ----------------------------------------------------------------------

    def answered(
        self,
        telling: Telling,
        refused: Iterable[tuple[int, int, int]],
        now_us: int,
        *,
        log_it: bool,
    ) -> None:
        del self._open[telling.number]
        if telling.quiet or telling.doubtful:
            return
        by_partition = telling.by_partition()  # without those that were replaced since
        self.report(
            [(at, (start, end)) for at, start, end in refused if at in by_partition],
            now_us,
            log_it=log_it,
        )

    def is_open(self, telling: Telling) -> bool:
        return telling.number in self._open

    def drop(self, telling: Telling) -> None:
        del self._open[telling.number]

    def link_lost(self, is_here: Callable[[SharedProgress, int], bool]) -> None:
        """`is_here` tells whether we hold a message: if we nacked it, it has come again since."""
        for number, telling in list(self._open.items()):
            telling.doubtful |= not telling.waits
            telling.waits = True
            if telling.verdict.action == "nack":
                telling.keep(lambda progress, offset: not is_here(progress, offset))
            elif telling.verdict.action == "extend":
                telling.keep(
                    lambda progress, offset: offset in progress.held
                )  # else it was settled
            if telling.quiet or not telling.ranges or telling.is_given_back:
                del self._open[number]
                telling.let_keys_go_on()

    def forget(self, replaced: SharedProgress) -> None:
        """What is said about a place that is void need not be told, nor its answer be heard."""
        for offsets in self._said.values():
            offsets.pop(replaced, None)
        self._extended = {
            (progress, offset): verdict
            for (progress, offset), verdict in self._extended.items()
            if progress is not replaced
        }
        for number, telling in list(self._open.items()):
            telling.ranges = [each for each in telling.ranges if each[0] is not replaced]
            if telling.waits and not telling.ranges:
                del self._open[number]

    # --- reports ---------------------------------------------------------------------------------

    def report(self, refused: list[tuple[int, Range]], now_us: int, *, log_it: bool) -> None:
        """Refused ranges, with their partitions: for the next commit, and for the log."""
        if not refused:
            return
        number = sum(end - start for _, (start, end) in refused)
        self.refused += number
        self._lost += number
        self._named += refused[: NAMED_MAX - len(self._named)]
        if log_it and now_us - self._refused_us >= BURST_US:
            log.warning("%s", self._in_words(number, refused[:NAMED_MAX]))
        self._refused_us = now_us

    def mark(self) -> int:
        return self._last

    def is_answered(self, mark: int) -> bool:
        """What the client says of its own accord is not waited for."""
        return all(telling.quiet or number > mark for number, telling in self._open.items())

    def take_lost(self) -> LeaseLost | None:
        """What was refused since this was last asked."""
        number, self._lost = self._lost, 0
        named, self._named = self._named, []
        return LeaseLost(self._in_words(number, named)) if number else None

    def _in_words(self, number: int, named: list[tuple[int, Range]]) -> str:
        by_partition: dict[int, list[Range]] = {}
        for partition, each in named:
            by_partition.setdefault(partition, []).append(each)
        words = "; ".join(
            f"partition {partition}, offset {in_words(ranges)}"
            for partition, ranges in by_partition.items()
        )
        more = " and others" if number > sum(end - start for _, (start, end) in named) else ""
        return (
            f"{number} message{'s' if number > 1 else ''} of topic {self._topic!r} had been leased "
            f"to somebody else, or to nobody, when settled here ({words}{more}): the lease had "
            "ended. Ask for a longer lease, or extend it"
        )


def _turn(said: tuple[tuple[Verdict, bool], object]) -> int:
    return _TURNS[said[0][0].action]


def _ranges(offsets: dict[SharedProgress, list[int]]) -> list[tuple[SharedProgress, int, int]]:
    return [
        (progress, start, end)
        for progress, each in offsets.items()
        for start, end in ranges_of(each)
    ]
