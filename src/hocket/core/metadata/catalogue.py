"""The topics a broker has, and which log group holds which partition.

Rule 1: a topic exists from the commit of its creation to the commit of its deletion.
Rule 2: group numbers are never used twice, so that a deleted topic's log is never taken for
        that of a new one by the same name.
Rule 3: which groups were deleted is remembered for ever. A log is deleted because its deletion is
        committed, and never because no topic is known to which it belongs.
Rule 4: a topic has a home, the node that holds all its partitions; every node knows the topic.

The catalogue is kept in the metadata's log (group 0). Its entries are the changes, and its state is
what replay of them gives. A change that is appended and not yet committed reserves the topic's
name.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hocket.core.metadata.metadata import GROUP, AppendChange, Indexes, Proposer
from hocket.core.origin import Origin
from hocket.core.sharing.ranges import Range, gaps, merged
from hocket.errors import (
    LimitExceeded,
    NotEnoughNodes,
    NotHere,
    OutOfRange,
    TopicExists,
    UnknownTopic,
)
from hocket.model import DECISIONS, PARTITIONS_MAX, TopicConfig, check_name, check_retention

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
    home: str = ""  # the id of the store that holds it; empty: the cluster's founder

    @property
    def all_groups(self) -> list[int]:
        return [*self.groups, *self.waiting]


@dataclass(slots=True)
class Change:
    """One entry of the catalogue's log."""

    kind: str  # "create", "alter" or "delete"
    topic: str
    config: TopicConfig | None = None
    groups: tuple[int, ...] = ()  # the new partitions' groups
    waiting: tuple[int, ...] = ()  # the new groups in which delayed messages wait
    home: str = ""  # of a topic that is created; empty in entries of versions without homes

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(body: bytes) -> Change:
        fields: dict[str, Any] = json.loads(body)
        config = fields["config"] and TopicConfig(**fields["config"])
        groups = tuple(fields["groups"])
        waiting = tuple(fields.get("waiting", ()))  # an old entry has none
        home = fields.get("home", "")
        return Change(fields["kind"], fields["topic"], config, groups, waiting, home)


@dataclass(slots=True)
class Changed:
    """The change is committed and in effect. `groups` were made by it, or are to be deleted."""

    origin: Origin | None  # None: nobody at this node waits for it
    change: Change
    groups: tuple[int, ...]


class Catalogue(Proposer):
    def __init__(
        self,
        *,
        nodes: int = 1,
        indexes: Indexes | None = None,
        me: str = "",
        founder: str = "",
        address_of: Callable[[str], str] = lambda _node: "",
    ) -> None:
        """`me` is this node's store, `founder` the one whose topics have no home written down."""
        super().__init__(indexes)
        self.topics: dict[str, Topic] = {}
        self.me = me
        self.address_of = address_of
        self._founder = founder
        self._nodes = nodes
        self._next_group = GROUP + 1  # with those that are given out by changes on their way
        self._next_applied = GROUP + 1  # of what is committed
        self._reserved: set[str] = set()  # names of topics with a change on its way
        self._deleted: list[Range] = []  # the groups of all topics that were deleted, merged

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

    def home_of(self, topic: Topic) -> str:
        """The id of the store that holds the topic's partitions."""
        return topic.home or self._founder

    def is_here(self, topic: Topic) -> bool:
        return (topic.home or self._founder) == self.me

    def topic_here(self, name: str) -> Topic:
        """The topic, whose partitions this node holds. Raises UnknownTopic, NotHere."""
        topic = self.topic(name)
        if not self.is_here(topic):
            raise self.not_here(topic)
        return topic

    def not_here(self, topic: Topic) -> NotHere:
        home = self.home_of(topic)
        return NotHere(
            f"the partitions of topic {topic.name!r} are on {self._named(home)}, and not on this "
            "node; connect to that one",
            node=home,
            address=self.address_of(home),
        )

    def unknown_here(self, topic: Topic) -> str:
        """What is to be said of a partition, if the node that holds it does not answer."""
        return (
            f"it is on {self._named(self.home_of(topic))}, which does not answer; what it holds is "
            "not known here"
        )

    def _named(self, node: str) -> str:
        address = self.address_of(node)
        return f"node {node}, at {address}" if address else f"node {node}"

    def is_deleted(self, group: int) -> bool:
        at = bisect_right(self._deleted, (group, DECISIONS)) - 1
        return at >= 0 and group < self._deleted[at][1]

    def create(
        self, origin: Origin, name: str, config: TopicConfig, home: str | None = None
    ) -> AppendChange:
        """Without `home`, the topic's home is this node."""
        check_name(name)
        if name in self.topics or name in self._reserved:
            raise TopicExists(f"there is a topic {name!r} already")
        if len(self.topics) + len(self._pending) >= TOPICS_MAX:
            raise LimitExceeded(f"there are {TOPICS_MAX} topics already")
        config = self._checked(config)
        groups = self._new_groups(config.partitions)
        waiting = self._new_groups(config.partitions if config.delayed else 0)
        home = self.me if home is None else home
        return self._append(origin, Change("create", name, config, groups, waiting, home))

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
        change = Change("alter", name, config, groups, waiting, topic.home)
        return self._append(origin, change)

    def delete(self, origin: Origin, name: str) -> AppendChange:
        self._free_topic(name)
        return self._append(origin, Change("delete", name))

    def _take_effect(self, index: int, body: bytes, origin: Origin | None) -> list[Changed]:
        self.applied_index = index
        change = Change.decode(body)
        self._reserved.discard(change.topic)
        return [Changed(origin, change, self._apply(change))]

    def adopt(self, groups: Iterable[int]) -> list[Topic]:
        """Make a topic for each of these groups, which have records and belong to no topic.

        To be called after the replay of a log that has lost entries, with all groups that the store
        knows. The entry that made their topics is among the lost ones. Of groups whose deletion is
        known no topic is made.
        """
        found = []
        homes = {group for topic in self.topics.values() for group in topic.all_groups}
        for group in sorted(set(groups) - homes):
            if self.is_deleted(group):
                continue
            self._next_applied = max(self._next_applied, group + 1)
            self._next_group = max(self._next_group, group + 1)
            name = f"{ADOPTED}{group}"
            while name in self.topics:
                name += "_"
            topic = Topic(name, self._checked(TopicConfig()), [group], home=self.me)
            self.topics[name] = topic
            found.append(topic)
        return found

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        state = {
            "next_group": self._next_applied,
            "topics": [asdict(topic) for topic in self.topics.values()],
            "deleted": self._deleted,
        }
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self._next_group = self._next_applied = state["next_group"]
        self.topics = {}
        for fields in state["topics"]:
            config = TopicConfig(**fields["config"])
            groups, waiting = list(fields["groups"]), list(fields.get("waiting", ()))
            topic = Topic(fields["name"], config, groups, waiting, fields.get("home", ""))
            self.topics[topic.name] = topic
        if "deleted" in state:
            self._deleted = [(start, end) for start, end in state["deleted"]]
        else:  # of an older version: whatever was given out and belongs to no topic was deleted
            kept = merged((g, g + 1) for topic in self.topics.values() for g in topic.all_groups)
            self._deleted = gaps(kept, GROUP + 1, self._next_group)

    def replace(self, index: int, state: dict[str, Any]) -> list[Changed]:
        """See `Machine`. A topic that is gone was deleted; its groups are among those that were."""
        before = self.topics
        self._reserved.clear()
        self.restore(index, state)
        gone = [
            topic
            for name, topic in before.items()
            if name not in self.topics or self.topics[name].groups[:1] != topic.groups[:1]
        ]
        changed = [
            Changed(
                None, Change("delete", topic.name), tuple(filter(self.is_deleted, topic.all_groups))
            )
            for topic in gone
        ]
        left = before.keys() - {topic.name for topic in gone}
        for name, topic in self.topics.items():
            old = before[name] if name in left else None
            groups = tuple(topic.groups[len(old.groups) if old else 0 :])
            waiting = tuple(topic.waiting[len(old.waiting) if old else 0 :])
            kind = "alter" if old else "create"
            if old is None or old != topic:
                change = Change(kind, name, topic.config, groups, waiting, topic.home)
                changed.append(Changed(None, change, groups + waiting))
        return changed

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
        assert self._next_group < DECISIONS
        return tuple(range(first, first + count))

    def _append(self, origin: Origin, change: Change) -> AppendChange:
        self._reserved.add(change.topic)
        return self._propose(origin, change.encode())

    def _apply(self, change: Change) -> tuple[int, ...]:
        topic = self.topics.get(change.topic)
        if change.kind == "delete":
            self.topics.pop(change.topic, None)
            groups = tuple(topic.all_groups) if topic else ()
            self._deleted = merged((*self._deleted, *((group, group + 1) for group in groups)))
            return groups
        assert change.config is not None
        made = change.groups + change.waiting
        self._next_applied = max(self._next_applied, *(group + 1 for group in made), 1)
        self._next_group = max(self._next_group, self._next_applied)
        if change.kind == "create":
            topic = Topic(
                change.topic, change.config, list(change.groups), list(change.waiting), change.home
            )
            self.topics[change.topic] = topic
        elif topic is not None:  # else the entry that created it is lost
            topic.config = change.config
            topic.groups.extend(change.groups)
            topic.waiting.extend(change.waiting)
        return made
