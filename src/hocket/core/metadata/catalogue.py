"""The topics a broker has, and which log group holds which partition.

Rule 1: a topic exists from the commit of its creation to the commit of its deletion.
Rule 2: group numbers are never used twice, so that a deleted topic's log is never taken for
        that of a new one by the same name.

The catalogue is kept in the metadata's log (group 0). Its entries are the changes, and its state is
what replay of them gives. A change that is appended and not yet committed reserves the topic's
name.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from hocket.core.metadata.metadata import GROUP, AppendChange, Indexes
from hocket.core.origin import Origin
from hocket.errors import (
    LimitExceeded,
    NotEnoughNodes,
    OutOfRange,
    TopicExists,
    UnknownTopic,
)
from hocket.model import PARTITIONS_MAX, TopicConfig, check_name, check_retention

TOPICS_MAX = 100_000
SEGMENT_BYTES_LEAST = 1024


@dataclass(slots=True)
class Topic:
    name: str
    config: TopicConfig
    groups: list[int]  # the log group of each partition


@dataclass(slots=True)
class Change:
    """One entry of the catalogue's log."""

    kind: str  # "create", "alter" or "delete"
    topic: str
    config: TopicConfig | None = None
    groups: tuple[int, ...] = ()  # the new partitions' groups

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(body: bytes) -> Change:
        fields: dict[str, Any] = json.loads(body)
        config = fields["config"] and TopicConfig(**fields["config"])
        return Change(fields["kind"], fields["topic"], config, tuple(fields["groups"]))


@dataclass(slots=True)
class Changed:
    """The change is committed and in effect. `groups` were made by it, or are to be deleted."""

    origin: Origin
    change: Change
    groups: tuple[int, ...]


class Catalogue:
    def __init__(self, *, nodes: int = 1, indexes: Indexes | None = None) -> None:
        self.topics: dict[str, Topic] = {}
        self.applied_index = 0
        self._indexes = indexes or Indexes()
        self._nodes = nodes
        self._next_group = GROUP + 1
        self._reserved: set[str] = set()  # names of topics with a change on its way
        self._pending: deque[tuple[int, Origin, Change]] = deque()

    @property
    def last_index(self) -> int:
        return self._indexes.last

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            check_name(name)
            raise UnknownTopic(
                f"there is no topic {name!r}; create it with create_topic({name!r}) "
                f"or: hocket topic create {name}"
            )
        return topic

    def create(self, origin: Origin, name: str, config: TopicConfig) -> AppendChange:
        check_name(name)
        if name in self.topics or name in self._reserved:
            raise TopicExists(f"there is a topic {name!r} already")
        if len(self.topics) + len(self._pending) >= TOPICS_MAX:
            raise LimitExceeded(f"there are {TOPICS_MAX} topics already")
        config = self._checked(config)
        groups = self._new_groups(config.partitions)
        return self._append(origin, Change("create", name, config, groups))

    def alter(self, origin: Origin, name: str, config: TopicConfig) -> AppendChange:
        topic = self._free_topic(name)
        config = self._checked(config, topic.config)
        more = config.partitions - topic.config.partitions
        if more < 0:
            raise OutOfRange(
                f"topic {name!r} has {topic.config.partitions} partitions, and their number "
                f"cannot be made smaller ({config.partitions}): their records would be lost"
            )
        return self._append(origin, Change("alter", name, config, self._new_groups(more)))

    def delete(self, origin: Origin, name: str) -> AppendChange:
        self._free_topic(name)
        return self._append(origin, Change("delete", name))

    def durable(self, index: int) -> list[Changed]:
        done = []
        while self._pending and self._pending[0][0] <= index:
            entry, origin, change = self._pending.popleft()
            self.applied_index = entry
            self._reserved.discard(change.topic)
            done.append(Changed(origin, change, self._apply(change)))
        return done

    def replayed(self, index: int, body: bytes) -> None:
        assert index == self.last_index + 1
        self._indexes.last = self.applied_index = index
        self._apply(Change.decode(body))

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        state = {
            "next_group": self._next_group,
            "topics": [asdict(topic) for topic in self.topics.values()],
        }
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self._next_group = state["next_group"]
        for fields in state["topics"]:
            config = TopicConfig(**fields["config"])
            groups = list(fields["groups"])
            self.topics[fields["name"]] = Topic(fields["name"], config, groups)

    def _free_topic(self, name: str) -> Topic:
        topic = self.topic(name)
        if name in self._reserved:
            raise TopicExists(f"topic {name!r} is being changed by somebody else; try again")
        return topic

    def _checked(self, config: TopicConfig, before: TopicConfig | None = None) -> TopicConfig:
        if not 1 <= config.partitions <= PARTITIONS_MAX:
            raise OutOfRange(
                f"a topic has 1 to {PARTITIONS_MAX} partitions, not {config.partitions}"
            )
        if config.durability not in ("quorum", "memory"):
            raise OutOfRange(f"durability is 'quorum' or 'memory', not {config.durability!r}")
        if config.segment_bytes_max < SEGMENT_BYTES_LEAST:
            raise OutOfRange(
                f"a segment has {SEGMENT_BYTES_LEAST} bytes or more, not {config.segment_bytes_max}"
            )
        for name in (
            "memory_retention_us",
            "memory_bytes_max",
            "disk_retention_us",
            "disk_bytes_max",
        ):
            value = getattr(config, name)
            if value is not None and value < 0:
                raise OutOfRange(f"{name} must be 0 or more, not {value}")
        check_retention(config, before)
        replication = 1 if config.replication is None else config.replication
        if replication < 1:
            raise OutOfRange(f"replication must be 1 or more, not {replication}")
        if replication > self._nodes:
            raise NotEnoughNodes(
                f"{replication} replicas need {replication} nodes, and there "
                f"{'is' if self._nodes == 1 else 'are'} {self._nodes}"
            )
        return replace(config, replication=replication)

    def _new_groups(self, count: int) -> tuple[int, ...]:
        first = self._next_group
        self._next_group += count
        return tuple(range(first, first + count))

    def _append(self, origin: Origin, change: Change) -> AppendChange:
        index = self._indexes.take()
        self._reserved.add(change.topic)
        self._pending.append((index, origin, change))
        return AppendChange(index, change.encode())

    def _apply(self, change: Change) -> tuple[int, ...]:
        if change.kind == "delete":
            return tuple(self.topics.pop(change.topic).groups)
        assert change.config is not None
        self._next_group = max(self._next_group, *(group + 1 for group in change.groups), 1)
        if change.kind == "create":
            self.topics[change.topic] = Topic(change.topic, change.config, list(change.groups))
        else:
            topic = self.topics[change.topic]
            topic.config = change.config
            topic.groups.extend(change.groups)
        return change.groups
