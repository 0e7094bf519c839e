"""Where a query starts and ends: given in words, offsets or times, and resolved by a broker.

A bound is either the same for all partitions, or given by partition. If it is given by partition,
every partition must be named: a forgotten one would silently begin elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hocket.errors import OutOfRange, UnknownPartition
from hocket.model import PARTITIONS_MAX, Start, check_name
from hocket.spark.offsets import Offsets
from hocket.spark.values import LONG_MAX, Given, json_object, shown, time_us, unit_us

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client

Kind = Literal["earliest", "latest", "offset", "time", "ago", "last"]
Beyond = Literal["error", "latest"]
Side = Literal["starting", "ending"]

_WORDS: dict[str, Kind] = {"earliest": "earliest", "latest": "latest"}
_NUMBERS: dict[int, Kind] = {-2: "earliest", -1: "latest"}
_RELATIVE = re.compile(r"-\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\Z")
_DIGITS = re.compile(r"-?[0-9]{1,19}\Z")
_PARTITION = re.compile(
    r"(0|[1-9][0-9]{0,5})\Z"
)  # one spelling, so that no partition is given twice
_RECORDS = ("offset", "offsets", "record", "records")
_NAMED_MAX = 10  # partitions that an error names


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a query starts or ends in one partition.

    The value of `ago` is microseconds before now, that of `last` records before the end.
    """

    kind: Kind
    value: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    option: str  # that gave these bounds; errors name it
    everywhere: Bound | None = None
    each: tuple[tuple[str, tuple[tuple[int, Bound], ...]], ...] = ()
    # What to do where no record is as late as the time asked for. None: for a named time that is
    # an error; for "-10 minutes" it means the end, since a quiet partition is nothing odd.
    beyond: Beyond | None = "latest"

    @staticmethod
    def parse(given: Given, side: Side, *, streaming: bool) -> Bounds:
        """The bounds by the first option that is given, in Kafka's order.

        The order is: a time for all partitions, times by partition, offsets.
        """
        beyond = _beyond(given) if side == "starting" else "latest"
        for_all, for_each = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
        offsets = f"{side}Offsets"
        if (text := given.text(for_all)) is not None:
            return Bounds(for_all, Bound("time", time_us(text, for_all)), beyond=beyond)
        if (text := given.text(for_each)) is not None:
            return Bounds(for_each, each=_times(text, for_each), beyond=beyond)
        text = given.text(offsets)
        if text is None:
            start_of_new = "latest" if streaming else "earliest"
            text = start_of_new if side == "starting" else "latest"
        found = _from_text(text, offsets, beyond)
        if not streaming:
            found._refuse("latest" if side == "starting" else "earliest")
        return found

    def resolve(self, client: Client, partitions: dict[str, list[int]], *, now_us: int) -> Offsets:
        """The offset of each of these partitions.

        Raises OutOfRange for a partition that is not named, for an offset beyond the end, and for
        a time beyond the last record where that is an error. An offset before the first record is
        left as it is: the reader reports what is missing.
        """
        self._check_named(partitions)
        named = {topic: dict(bounds) for topic, bounds in self.each}
        found: Offsets = {}
        for topic in sorted(partitions):
            ends = _Ends(client, topic)
            found[topic] = {
                number: self._offset(ends, number, self._bound(named, topic, number), now_us)
                for number in sorted(partitions[topic])
            }
        return found

    def _bound(self, named: dict[str, dict[int, Bound]], topic: str, number: int) -> Bound:
        return named[topic][number] if self.everywhere is None else self.everywhere

    def _offset(self, ends: _Ends, number: int, bound: Bound, now_us: int) -> int:
        if bound.kind == "offset":
            end = ends.of(Start("latest"), number)
            if bound.value > end:
                raise OutOfRange(
                    f"{self.option} is offset {bound.value} of {ends.topic}/{number}, "
                    f"which ends at {end}"
                )
            return bound.value
        if bound.kind == "last":
            end = ends.of(Start("latest"), number)
            return max(end - bound.value, ends.of(Start("earliest"), number))
        if bound.kind in ("time", "ago"):
            moment = bound.value if bound.kind == "time" else max(0, now_us - bound.value)
            return self._at_time(ends, number, bound, moment)
        return ends.of(Start("earliest" if bound.kind == "earliest" else "latest"), number)

    def _at_time(self, ends: _Ends, number: int, bound: Bound, moment_us: int) -> int:
        if self.beyond == "latest" or (self.beyond is None and bound.kind == "ago"):
            return ends.of(Start("time", moment_us), number)
        end = ends.of(
            Start("latest"), number
        )  # asked for first, so that records that come now do not count
        offset = ends.of(Start("time", moment_us), number)
        if offset >= end:
            raise OutOfRange(
                f"{self.option}: {ends.topic}/{number} has no record at {moment_us // 1000} ms or "
                "later; startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        return offset

    def _check_named(self, partitions: dict[str, list[int]]) -> None:
        if self.everywhere is not None:
            return
        named = {(topic, number) for topic, bounds in self.each for number, _ in bounds}
        wanted = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
        if lacking := wanted - named:
            raise OutOfRange(
                f"{self.option} must name every partition that is read, and lacks "
                f"{_in_words(lacking)}"
            )
        if surplus := named - wanted:
            raise OutOfRange(f"{self.option} names {_in_words(surplus)}, which is not read")

    def _refuse(self, kind: Kind) -> None:
        """A batch can neither start at the latest record nor end at the earliest."""
        limit = "start" if kind == "latest" else "end"
        if self.everywhere is not None and self.everywhere.kind == kind:
            raise OutOfRange(f"{self.option}: a batch cannot {limit} at {kind}; streams can")
        for topic, bounds in self.each:
            for number, bound in bounds:
                if bound.kind == kind:
                    raise OutOfRange(
                        f"{self.option}: a batch cannot {limit} at {kind}, as is said of "
                        f"{topic}/{number}"
                    )


class _Ends:
    """A broker's answers about one topic; each start is asked for once."""

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._found: dict[Start, list[int]] = {}

    def of(self, start: Start, number: int) -> int:
        if start not in self._found:
            self._found[start] = self._client.find_offsets(self.topic, start)
        offsets = self._found[start]
        if number >= len(offsets):  # the topic was created again with fewer
            raise UnknownPartition(
                f"topic {self.topic!r} has {len(offsets)} partitions, and none of number {number}"
            )
        return offsets[number]


def _beyond(given: Given) -> Beyond | None:
    name = "startingOffsetsByTimestampStrategy"
    text = given.text(name)
    if text is None:
        return None
    if text.lower() == "error":
        return "error"
    if text.lower() == "latest":
        return "latest"
    raise OutOfRange(f"{name} must be error or latest, not {shown(text)}")


def _from_text(text: str, option: str, beyond: Beyond | None) -> Bounds:
    if text.startswith("{"):
        example = '{"orders":{"0":23,"1":-2,"2":"-10 minutes"}}'
        return Bounds(
            option, each=_by_partition(text, option, example, _bound_of_one), beyond=beyond
        )
    if (kind := _WORDS.get(text.lower())) is not None:
        return Bounds(option, Bound(kind), beyond=beyond)
    if (bound := _relative(text)) is not None:
        return Bounds(option, bound, beyond=beyond)
    raise OutOfRange(
        f'{option} must be earliest, latest, "-10 minutes", "-100 records", or JSON that names an '
        f"offset for each partition; not {shown(text)}"
    )


def _relative(text: str) -> Bound | None:
    match = _RELATIVE.match(text)
    if match is None:
        return None
    number, word = match[1], match[2].lower()
    if word in _RECORDS:
        return None if "." in number else Bound("last", int(number))
    if (each_us := unit_us(word)) is None:
        return None
    return Bound("ago", min(round(float(number) * each_us), LONG_MAX))


def _times(text: str, option: str) -> tuple[tuple[str, tuple[tuple[int, Bound], ...]], ...]:
    example = '{"orders":{"0":1767225600000}}'

    def time_of_one(value: object, where: str) -> Bound:
        return Bound("time", time_us(value, where))

    return _by_partition(text, option, example, time_of_one)


def _bound_of_one(value: object, where: str) -> Bound:
    if isinstance(value, str):
        if (kind := _WORDS.get(value.strip().lower())) is not None:
            return Bound(kind)
        if (bound := _relative(value.strip())) is not None:
            return bound
        if _DIGITS.match(value.strip()):
            value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value in _NUMBERS:
            return Bound(_NUMBERS[value])
        if 0 <= value <= LONG_MAX:
            return Bound("offset", value)
    raise OutOfRange(
        f'{where} must be an offset, -2 (earliest), -1 (latest), "-10 minutes" or "-100 records", '
        f"not {shown(value)}"
    )


def _by_partition(
    text: str, option: str, example: str, parse: Callable[[object, str], Bound]
) -> tuple[tuple[str, tuple[tuple[int, Bound], ...]], ...]:
    found = json_object(text, option, example)
    if not found:
        raise OutOfRange(f"{option} names no topic; it looks like {example}")
    bounds = []
    for topic in sorted(found):
        check_name(topic, f"a topic in {option}")
        if not isinstance(found[topic], dict):
            raise OutOfRange(f"{option} must look like {example}; of {topic!r} it has no object")
        by_number = {
            _partition(number, option, topic): parse(value, f"{option} of {topic}/{number}")
            for number, value in found[topic].items()
        }
        bounds.append((topic, tuple(sorted(by_number.items(), key=lambda item: item[0]))))
    return tuple(bounds)


def _partition(text: str, option: str, topic: str) -> int:
    if not _PARTITION.match(text) or int(text) >= PARTITIONS_MAX:
        raise OutOfRange(
            f"{option} has the partition {shown(text)} of {topic!r}; partitions are numbers from 0 "
            f"to {PARTITIONS_MAX - 1}"
        )
    return int(text)


def _in_words(partitions: Iterable[tuple[str, int]]) -> str:
    ordered = [f"{topic}/{number}" for topic, number in sorted(partitions)]
    more = len(ordered) - _NAMED_MAX
    return ", ".join(ordered[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
