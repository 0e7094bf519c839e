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
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
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
ADOPTED = "recovered."  # begins the name of a topic whose own is lost; its group's number follows


@dataclass(slots=True)
class Topic:
    name: str
    config: TopicConfig
    groups: list[int]  # the log group of each partition
    # Of a topic with delayed messages: the log group in which those of each partition wait.
    waiting: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Change:
    """One entry of the catalogue's log."""

    kind: str  # "create", "alter" or "delete"
    topic: str
    config: TopicConfig | None = None
    groups: tuple[int, ...] = ()  # the new partitions' groups
    waiting: tuple[int, ...] = ()  # the new groups in which delayed messages wait

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(body: bytes) -> Change:
        fields: dict[str, Any] = json.loads(body)
        config = fields["config"] and TopicConfig(**fields["config"])
        waiting = tuple(fields.get("waiting", ()))  # an old entry has none
        return Change(fields["kind"], fields["topic"], config, tuple(fields["groups"]), waiting)


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
        self.deleted: set[int] = set()  # the groups of topics that replay saw being deleted

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
        waiting = self._new_groups(config.partitions if config.delayed else 0)
        return self._append(origin, Change("create", name, config, groups, waiting))

    def alter(self, origin: Origin, name: str, config: TopicConfig) -> AppendChange:
        topic = self._free_topic(name)
        config = self._checked(config, topic.config)
        # An older client does not know this setting, and must not take it away.
        config = replace(config, delayed=config.delayed or topic.config.delayed)
        more = config.partitions - topic.config.partitions
        if more < 0:
            raise OutOfRange(
                f"topic {name!r} has {topic.config.partitions} partitions, and their number "
                f"cannot be made smaller ({config.partitions}): their records would be lost"
            )
        groups = self._new_groups(more)
        waiting = self._new_groups(config.partitions - len(topic.waiting) if config.delayed else 0)
        return self._append(origin, Change("alter", name, config, groups, waiting))

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
        change = Change.decode(body)
        groups = self._apply(change)
        if change.kind == "delete":
            self.deleted.update(groups)

    def adopt(self, groups: Iterable[int]) -> list[Topic]:
        """Make a topic for each of these groups, which have records and belong to no topic.

        To be called after the replay of a log that has lost entries, with all groups that the store
        knows. The entry that made their topics is among the lost ones.
        """
        found = []
        for group in sorted(groups):
            self._next_group = max(self._next_group, group + 1)
            name = f"{ADOPTED}{group}"
            while name in self.topics:
                name += "_"
            topic = Topic(name, self._checked(TopicConfig()), [group])
            self.topics[name] = topic
            found.append(topic)
        return found

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
            groups, waiting = list(fields["groups"]), list(fields.get("waiting", ()))
            self.topics[fields["name"]] = Topic(fields["name"], config, groups, waiting)

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
        topic = self.topics.get(change.topic)
        if change.kind == "delete":
            self.topics.pop(change.topic, None)
            return (*topic.groups, *topic.waiting) if topic else ()
        assert change.config is not None
        made = change.groups + change.waiting
        self._next_group = max(self._next_group, *(group + 1 for group in made), 1)
        if change.kind == "create":
            self.topics[change.topic] = Topic(
                change.topic, change.config, list(change.groups), list(change.waiting)
            )
        elif topic is not None:  # else the entry that created it is lost
            topic.config = change.config
            topic.groups.extend(change.groups)
            topic.waiting.extend(change.waiting)
        return made
