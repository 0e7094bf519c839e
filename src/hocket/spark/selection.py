"""Which topics and partitions a query reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hocket.errors import OutOfRange, UnknownPartition, UnknownTopic
from hocket.model import PARTITIONS_MAX, check_name
from hocket.spark.values import Given, json_object, shown

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client

NAMES = ("subscribe", "subscribePattern", "assign")
_EXAMPLE = '{"orders":[0,1]}'


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of the three is set: topics by name, by pattern, or certain partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @staticmethod
    def parse(given: Given) -> Selection:
        chosen = [name for name in NAMES if given.has(name)]
        if not chosen:
            raise OutOfRange(
                f"say what to read with one of the options {', '.join(NAMES)}; none is given"
            )
        if len(chosen) > 1:
            raise OutOfRange(f"only one of {' and '.join(chosen)} can be given, not both")
        name = chosen[0]
        text = given.text(name) or ""
        if name == "subscribe":
            return Selection(topics=_topics(text))
        if name == "subscribePattern":
            return Selection(pattern=_pattern(text))
        return Selection(assigned=_assigned(text))

    def find(self, client: Client) -> dict[str, list[int]]:
        """The partitions that exist now, by topic.

        Raises UnknownTopic and UnknownPartition for what was named and is not there; a pattern
        may match nothing.
        """
        if self.pattern is not None:
            return self._matching(client)
        if self.assigned:
            return {topic: _existing(client, topic, wanted) for topic, wanted in self.assigned}
        return {topic: _partitions(client, topic) for topic in self.topics}

    def _matching(self, client: Client) -> dict[str, list[int]]:
        assert self.pattern is not None
        whole_name = re.compile(self.pattern)
        found = {}
        for topic in client.topics():
            if not whole_name.fullmatch(topic):
                continue
            try:
                found[topic] = _partitions(client, topic)
            except UnknownTopic:  # deleted since the list was made
                continue
        return found


def _partitions(client: Client, topic: str) -> list[int]:
    return list(range(client.describe(topic).config.partitions))


def _existing(client: Client, topic: str, wanted: tuple[int, ...]) -> list[int]:
    there = _partitions(client, topic)
    lacking = sorted(set(wanted).difference(there))
    if lacking:
        raise UnknownPartition(
            f"assign names partition {', '.join(map(str, lacking))} of topic {topic!r}, which has "
            f"the partitions 0 to {len(there) - 1}"
        )
    return list(wanted)


def _topics(text: str) -> tuple[str, ...]:
    names = [each.strip() for each in text.split(",") if each.strip()]
    if not names:
        raise OutOfRange(f"subscribe must be a list of topics, as in orders,payments; not {text!r}")
    return tuple(sorted({check_name(each, "a topic in subscribe") for each in names}))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise OutOfRange(
            f"subscribePattern must be a regular expression, not {shown(text)}: {error}"
        ) from None
    return text


def _assigned(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = json_object(text, "assign", _EXAMPLE)
    if not found:
        raise OutOfRange(f"assign names no topic; it looks like {_EXAMPLE}")
    return tuple(
        (check_name(topic, "a topic in assign"), _numbers(topic, found[topic]))
        for topic in sorted(found)
    )


def _numbers(topic: str, numbers: object) -> tuple[int, ...]:
    if not isinstance(numbers, list) or not numbers:
        raise OutOfRange(
            f"assign must list the partitions of {topic!r}, as in {_EXAMPLE}; not {shown(numbers)}"
        )
    for each in numbers:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < PARTITIONS_MAX:
            raise OutOfRange(
                f"assign has the partition {shown(each)} of {topic!r}; partitions are numbers "
                f"from 0 to {PARTITIONS_MAX - 1}"
            )
    return tuple(sorted(set(numbers)))
