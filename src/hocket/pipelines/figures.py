"""How a pipeline is doing, as the broker sees it: lag per topic, rows read, records that misfit.

The indexes of a pipeline's streams say how far it has come, and so does the end of each side topic.
So any terminal can tell, and a run that is busy with Spark need not be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.errors import NotAllowed, UnknownTopic

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.pipelines.declared import Declared


@dataclass(slots=True)
class Figures:
    """`read` counts the records before each index, over all of a pipeline's streams.

    A pipeline that reads no topic, but a lake say, has no index: what it has written counts then.
    """

    read: int = 0
    bad: int = 0
    lag: dict[str, int] = field(default_factory=dict)  # by topic; of the stream furthest behind


@dataclass(frozen=True, slots=True)
class Watched:
    """What to look at: pairs of topic and index, and the side topics."""

    indexes: tuple[tuple[str, str], ...]
    side_topics: tuple[str, ...]
    written: tuple[str, ...] = ()  # topics that count where there is no index

    @staticmethod
    def of(declared: Declared) -> Watched:
        pairs = {
            (topic, source.index)
            for source in declared.sources
            if source.index and "servers" in source.options
            for topic in source.topics
        }
        side = {each.topic for each in declared.targets if each.is_misfits and each.topic}
        written = {each.topic for each in declared.targets if each.topic} - side
        return Watched(
            tuple(sorted(pairs)), tuple(sorted(side)), () if pairs else tuple(sorted(written))
        )

    def look(self, client: Client, timeout: float) -> Figures:
        found = Figures()
        for topic in sorted({topic for topic, _ in self.indexes}):
            self._look_at(client, topic, found, timeout)
        found.bad = sum(_end(client, topic, timeout) for topic in self.side_topics)
        found.read += sum(_end(client, topic, timeout) for topic in self.written)
        return found

    def _look_at(self, client: Client, topic: str, found: Figures, timeout: float) -> None:
        try:
            there = {each.name: each for each in client.indexes(topic, timeout=timeout)}
            ends = client.find_offsets(topic, "latest", timeout=timeout)
            starts = client.find_offsets(topic, "earliest", timeout=timeout)
        except (UnknownTopic, NotAllowed):
            return
        for name, index in self.indexes:
            if name != topic:
                continue
            if index in there:
                found.read += sum(one.position for one in there[index].partitions)
                behind = there[index].lag
            else:  # the stream has not begun
                behind = sum(ends) - sum(starts)
            found.lag[topic] = max(found.lag.get(topic, 0), behind)


def _end(client: Client, topic: str, timeout: float) -> int:
    try:
        return sum(client.find_offsets(topic, "latest", timeout=timeout))
    except UnknownTopic:
        return 0
