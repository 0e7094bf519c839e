"""A lake in front of a topic, as one: what the lake has is read there, the rest from the topic.

Both have the same offsets, so the seam is where the lake ends when a batch is planned: below it the
lake is read, from it on the topic. A record that is in both is read once, and a record that is in
neither is missed by name, as everywhere: the reader knows which offsets there must be.

Without `servers` there is no topic, and the lake is all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hocket.errors import OutOfRange, UnknownPartition, UnknownTopic
from hocket.spark.lake import Lake, path_of
from hocket.spark.lookout import Lookout

if TYPE_CHECKING:
    from hocket.spark.bounds import Bound, Bounds
    from hocket.spark.offsets import Offsets
    from hocket.spark.options import ReadOptions
    from hocket.spark.planning import Span
    from hocket.spark.selection import Selection


def lookout_of(options: ReadOptions) -> Lookout:
    return Lookout(options) if options.archive is None else LakeLookout(options)


class LakeLookout(Lookout):
    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        assert options.archive is not None
        self.has_broker = bool(options.connection.url)
        self._lake = Lake(path_of(options.archive))

    def partitions(self) -> dict[str, list[int]]:
        there = self._in_lake(self._options.selection)
        if not self.has_broker:
            _check_all_there(self._options.selection, there, self._lake)
            return there
        served = super().partitions()
        topics = sorted({*there, *served})
        return {name: sorted({*there.get(name, ()), *served.get(name, ())}) for name in topics}

    def partitions_left(self, known: Offsets) -> dict[str, list[int]]:
        if self.has_broker:
            return super().partitions_left(known)
        return {name: sorted(numbers) for name, numbers in known.items()}

    def _in_lake(self, selection: Selection) -> dict[str, list[int]]:
        there = {name: sorted(numbers) for name, numbers in self._lake.state().partitions.items()}
        if selection.pattern is not None:
            whole_name = re.compile(selection.pattern)
            return {name: there[name] for name in there if whole_name.fullmatch(name)}
        if selection.assigned:
            wanted = {name: set(numbers) for name, numbers in selection.assigned}
            return {
                name: [each for each in there[name] if each in wanted[name]]
                for name in there
                if name in wanted
            }
        return {name: there[name] for name in there if name in selection.topics}

    def resolve(self, bounds: Bounds, partitions: dict[str, list[int]]) -> Offsets:
        state = self._lake.state().partitions
        named = {topic: dict(each) for topic, each in bounds.each}
        found: Offsets = {}
        for topic, numbers in partitions.items():
            found[topic] = {}
            for number in numbers:
                bound = bounds.everywhere or named.get(topic, {}).get(number)
                if bound is None:
                    raise OutOfRange(f"{bounds.option} lacks {topic}/{number}, which is read")
                in_lake = state.get(topic, {}).get(number)
                found[topic][number] = self._offset(bounds, topic, number, bound, in_lake)
        return found

    def _offset(
        self,
        bounds: Bounds,
        topic: str,
        number: int,
        bound: Bound,
        in_lake: tuple[int, int] | None,
    ) -> int:
        if bound.kind == "earliest" and in_lake is not None:
            return in_lake[0]
        if bound.kind in ("time", "ago") or (bound.kind == "last" and not self.has_broker):
            raise OutOfRange(
                f"{bounds.option} with archive is earliest, latest or an offset; for a time, "
                "filter by the column timestamp"
            )
        if bound.kind == "offset" and in_lake is not None and bound.value <= in_lake[1]:
            return bound.value
        if self.has_broker:
            return super().resolve(_only(bounds, bound), {topic: [number]})[topic][number]
        assert in_lake is not None
        if bound.kind == "offset":
            raise OutOfRange(
                f"{bounds.option} is offset {bound.value} of {topic}/{number}, which ends at "
                f"{in_lake[1]} in the lake"
            )
        return in_lake[1]

    def topic_ends(self, topics: list[str]) -> dict[str, list[int]]:
        if self.has_broker:
            return super().topic_ends(topics)
        state = self._lake.state().partitions
        return {
            topic: [state[topic].get(number, (0, 0))[1] for number in range(max(state[topic]) + 1)]
            for topic in topics
            if topic in state
        }

    def located(self, spans: list[Span]) -> list[Span]:
        """The spans, cut where the lake ends."""
        state = self._lake.state()
        in_lake: list[Span] = []
        in_topic: list[Span] = []
        for span in spans:
            end = state.end(span.topic, span.partition) or 0
            if span.start < end:
                part = replace(span, end=min(span.end, end), lake=str(self._lake.root))
                in_lake.append(part)
            if span.end > end:
                in_topic.append(replace(span, start=max(span.start, end)))
        return in_lake + (super().located(in_topic) if in_topic else [])


def _only(bounds: Bounds, bound: Bound) -> Bounds:
    return replace(bounds, everywhere=bound, each=())


def _check_all_there(selection: Selection, there: dict[str, list[int]], lake: Lake) -> None:
    for topic in selection.topics:
        if topic not in there:
            known = ", ".join(sorted(lake.state().partitions)) or "none"
            raise UnknownTopic(
                f"the lake {lake.root} has no topic {topic!r}; it has: {known}. Name a broker in "
                "the option servers to read the topic too"
            )
    for topic, numbers in selection.assigned:
        if lacking := sorted(set(numbers) - set(there.get(topic, ()))):
            raise UnknownPartition(
                f"the lake {lake.root} has no partition {lacking[0]} of topic {topic!r}"
            )
