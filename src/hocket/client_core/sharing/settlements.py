"""What was said about messages of a shared index, until the broker has answered it.

Rule 1: the same verdict on many messages is told together, as ranges, in one Settle; extensions go
first and releases last, so that what is nacked comes again before what was released behind it.
Rule 2: what the application said is told until it is answered. If a link breaks before the answer,
nobody knows whether the broker has heard it, so it is told again on the next link; only a nack
without delay is not, since it comes true by itself. Until it is answered, its messages count as
held, which keeps their leases. Told `again`, an ack or a reject that holds by now is not refused;
so what the broker does refuse was never settled, and is reported. The refusal of a nack that was
told twice is not: if the first telling was heard, its message is with somebody else, or was.
Rule 3: what the client said of its own accord (*quiet*: about messages that it had not handed out)
is told on one link only, and the application does not hear of a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from hocket.client_core.outbox import Outbox
from hocket.client_core.sharing.progress import SharedProgress
from hocket.client_core.sharing.ranges import Range, in_words, ranges_of
from hocket.client_core.sharing.verdict import NACK, Verdict
from hocket.errors import LeaseLost
from hocket.frames import packed
from hocket.model import SECOND_US

NAMED_MAX = 5  # how many ranges an error names
BURST_US = SECOND_US  # refusals that follow each other faster are logged as one burst

_TURNS = {"extend": 0, "ack": 1, "nack": 2, "reject": 3, "release": 4}


@dataclass(slots=True, eq=False)
class Telling:
    """One verdict, told to the broker or about to be."""

    number: int
    verdict: Verdict
    ranges: list[tuple[SharedProgress, int, int]]
    quiet: bool
    delivery: int  # the number of the last Lease that had come when this was put together
    waits: bool = True  # it has yet to be sent
    sent_us: int = 0
    doubtful: bool = False  # it was sent on a link that broke
    # What came again before the answer: it may be given back once more by then, and the answer to
    # this telling says nothing of that.
    heard: set[tuple[SharedProgress, int]] = field(default_factory=set)

    @property
    def is_given_back(self) -> bool:
        """A nack without delay on a link that broke: whether heard or not, the message is free.

        If the nack was not heard, the message becomes free when this consumer opens anew without
        claiming it. Told again, the nack might end the lease of the next delivery.
        """
        return self.doubtful and self.verdict == NACK

    @property
    def is_refused_in_vain(self) -> bool:
        """A refusal of it says nothing about what the application has asked for."""
        return self.quiet or (self.doubtful and self.verdict.action == "nack")

    @property
    def gives_back(self) -> bool:
        return self.verdict.action in ("nack", "release")

    def let_keys_go_on(self) -> None:
        """The broker has heard this, or never will: what comes from now on comes in order."""
        if self.gives_back:
            for progress, offset in self.offsets():
                if (progress, offset) not in self.heard:
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
    def __init__(self, topic: str, outbox: Outbox) -> None:
        self.refused = 0  # messages whose settling was refused, in all
        self._topic = topic
        self._outbox = outbox
        self._last = 0  # the number of the last telling
        self._open: dict[int, Telling] = {}  # by number: not answered yet
        self._said: dict[tuple[Verdict, bool], dict[SharedProgress, list[int]]] = {}
        self._extended: dict[tuple[SharedProgress, int], Verdict] = {}  # the last extension counts
        self._named: list[tuple[int, Range]] = []  # the first ranges refused since the last commit
        self._lost = 0  # how many messages were refused since the last commit
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
        """Make tellings of what was said. `delivery` is the number of the last Lease so far."""
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
        """Messages that the application has settled, and the broker has not answered for."""
        for telling in self._open.values():
            if not telling.quiet and telling.verdict.action != "extend":
                yield from telling.offsets()

    def contested(self, progress: SharedProgress) -> set[int]:
        """Messages that would be settled by a telling under way if they came again now.

        A nack that is told for the first time does not count: it is why its messages come again.
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

    def came_again(self, progress: SharedProgress, offsets: set[int]) -> None:
        """These were leased to us: if they were given back, the broker has heard that."""
        again = progress.returned.keys() & offsets
        for telling in self._open.values() if again else ():
            if telling.gives_back:
                telling.heard.update((progress, offset) for offset in again)
        for offset in again:
            del progress.returned[offset]

    def answered(
        self,
        telling: Telling,
        refused: Iterable[tuple[int, int, int]],
        now_us: int,
        *,
        awaited: bool,
    ) -> None:
        """`awaited`: somebody waits in a commit, which raises refusals, so they are not logged."""
        del self._open[telling.number]
        if telling.is_refused_in_vain:
            return
        by_partition = telling.by_partition()  # without those that were replaced
        found = [(at, (start, end)) for at, start, end in refused if at in by_partition]
        if telling.verdict.action == "extend":
            # What was settled since has an answer of its own. That may have overtaken this one: a
            # broker that shares the partition with others may have to ask them first.
            found = [
                (at, each)
                for at, run in found
                for each in ranges_of(n for n in range(*run) if n in by_partition[at].held)
            ]
        self.add_refused(found, now_us, awaited=awaited)

    def is_open(self, telling: Telling) -> bool:
        return telling.number in self._open

    def drop(self, telling: Telling) -> None:
        del self._open[telling.number]

    def link_lost(self, is_here: Callable[[SharedProgress, int], bool]) -> None:
        """`is_here` tells whether this client has a message; a nacked one has come again then."""
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
        """The index was put elsewhere: do not tell what was said about `replaced`."""
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

    def hand_over(self, moved: SharedProgress, to: Settlements) -> None:
        """Another part of the subscription tells from now on what was said about `moved`."""
        for said, offsets in self._said.items():
            if moved in offsets:
                to._said.setdefault(said, {})[moved] = offsets.pop(moved)
        for key in [key for key in self._extended if key[0] is moved]:
            to._extended[key] = self._extended.pop(key)
        for number, telling in list(self._open.items()):
            ranges = [each for each in telling.ranges if each[0] is moved]
            if not ranges:
                continue
            telling.ranges = [each for each in telling.ranges if each[0] is not moved]
            if not telling.ranges:
                del self._open[number]
            to._last += 1
            to._open[to._last] = Telling(
                to._last, telling.verdict, ranges, telling.quiet, 0, doubtful=telling.doubtful,
                heard=telling.heard,
            )  # fmt: skip

    # --- refusals --------------------------------------------------------------------------------

    def add_refused(self, refused: list[tuple[int, Range]], now_us: int, *, awaited: bool) -> None:
        """Keep refused ranges, with their partitions, for the next commit; report them to the log
        unless a commit waits."""
        if not refused:
            return
        number = sum(end - start for _, (start, end) in refused)
        self.refused += number
        self._lost += number
        self._named += refused[: NAMED_MAX - len(self._named)]
        if not awaited and now_us - self._refused_us >= BURST_US:
            self._outbox.report("warning", "%s", self._in_words(number, refused[:NAMED_MAX]))
        self._refused_us = now_us

    def mark(self) -> int:
        return self._last

    def is_answered(self, mark: int) -> bool:
        """Whether all up to `mark` is answered, but for what the client said of its own accord."""
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
