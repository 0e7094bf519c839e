"""The topics a broker has, and which log group holds which partition.

Rule 1: a topic exists from the commit of its creation to the commit of its deletion.
Rule 2: group numbers are never used twice, so that a deleted topic's log is never taken for
        that of a new one by the same name.
Rule 3: which groups were deleted is remembered for ever. A log is deleted because its deletion is
        committed, and never because no topic is known to which it belongs.
Rule 4: a partition has a home, the node that holds it; every node knows all topics and all homes.
        What waits for a partition is at the partition's home.
        If several nodes keep a partition, its home is the first of them when it was founded; which
        of them leads it is not written here (`leaders`): they agree on that among themselves.
Rule 5: where the partitions of a change are to be is decided by whoever proposes it, and stands in
        the entry; whoever applies the entry decides nothing.

The catalogue is kept in the metadata's log (group 0). Its entries are the changes, and its state is
what replay of them gives. A change that is appended and not yet committed reserves the topic's
name.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hocket.core.metadata.flat import flat
from hocket.core.metadata.metadata import GROUP, AppendChange, Indexes, Proposer
from hocket.core.metadata.placed import Replicas, folded, holders, unfolded
from hocket.core.metadata.preferences import REPLICATION_DEFAULT
from hocket.core.origin import Origin
from hocket.core.sharing.ranges import Range, gaps, merged
from hocket.errors import (
    BadName,
    LimitExceeded,
    NotEnoughNodes,
    NotHere,
    OutOfRange,
    SeveralNodes,
    TopicExists,
    UnknownTopic,
)
from hocket.model import (
    DECIDERS,
    DECIDERS_COUNT,
    DECIDERS_REPLICAS,
    DECISIONS,
    OWN_TOPICS,
    PARTITIONS_MAX,
    REPLICAS_MAX,
    TopicConfig,
    check_name,
    check_retention,
    is_own_topic,
)

TOPICS_MAX = 100_000
SEGMENT_BYTES_LEAST = 1024
ADOPTED = "recovered."  # begins the name of a topic whose own is lost; its group's number follows

Place = Callable[[str, range, int], Sequence[Replicas]]


@dataclass(slots=True)
class Topic:
    name: str
    config: TopicConfig
    groups: list[int]  # the log group of each partition
    # Of a topic with delayed messages: the log group in which those of each partition wait.
    waiting: list[int] = field(default_factory=list)
    replicas: list[Replicas] = field(default_factory=list)  # of each partition

    @property
    def all_groups(self) -> list[int]:
        return [*self.groups, *self.waiting]

    @property
    def homes(self) -> list[str]:
        """The id of the store that each partition was founded at."""
        return [each[0] for each in self.replicas]

    @property
    def replication(self) -> int:
        """How many nodes keep each partition, whether the topic says so itself or not."""
        return len(self.replicas[0])

    @property
    def is_replicated(self) -> bool:
        return self.replication > 1

    def fields(self) -> dict[str, Any]:
        """As a snapshot has it."""
        return {
            "name": self.name, "config": flat(self.config), "groups": [*self.groups],
            "waiting": [*self.waiting], **folded(self.replicas),
        }  # fmt: skip


@dataclass(slots=True)
class Change:
    """One entry of the catalogue's log."""

    kind: str  # "create", "alter" or "delete"; or "place": all partitions are to be there
    topic: str
    config: TopicConfig | None = None
    groups: tuple[int, ...] = ()  # the new partitions' groups
    waiting: tuple[int, ...] = ()  # the new groups in which delayed messages wait
    # Of the new partitions; an empty text in entries of versions without homes.
    replicas: tuple[Replicas, ...] = ()

    def encode(self) -> bytes:
        config = self.config and flat(self.config)
        fields = {
            "kind": self.kind, "topic": self.topic, "config": config, "groups": self.groups,
            "waiting": self.waiting, **folded(self.replicas),
        }  # fmt: skip
        return json.dumps(fields).encode()

    @staticmethod
    def decode(body: bytes) -> Change:
        fields: dict[str, Any] = json.loads(body)
        config = fields["config"] and TopicConfig(**fields["config"])
        groups = tuple(fields["groups"])
        waiting = tuple(fields.get("waiting", ()))  # an old entry has none
        replicas = tuple(unfolded(fields, len(groups)))
        return Change(fields["kind"], fields["topic"], config, groups, waiting, replicas)


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
        self.nodes: Callable[[], int] = lambda: 1  # how many the cluster has
        # How many replicas a new topic has that does not say so itself.
        self.default_replication: Callable[[], int] = lambda: REPLICATION_DEFAULT
        # Told the name of a topic and the numbers of new partitions of it: where these are to be.
        self.place: Place = lambda _topic, numbers, _count: [(me,)] * len(numbers)
        # Who leads a partition that several nodes keep, by group, as far as this node has heard: an
        # empty text if nobody is known to. This node is named only while it serves the partition.
        self.leaders: dict[int, str] = {}
        # Partitions of which this node keeps a copy that has stopped: who leads them is hearsay.
        self.deaf: set[int] = set()
        self._turn = 0  # which replica is named next, of those of whom nothing is known
        self.is_dead: Callable[[str], bool] = lambda _node: False  # as far as this node knows
        # How many partitions each node has, with those of changes on their way. The broker's own
        # are not counted: they hold little, and what users have is to be spread evenly.
        self.loads: Counter[str] = Counter()
        self._founder = founder
        self._next_group = GROUP + 1  # with those that are given out by changes on their way
        self._next_applied = GROUP + 1  # of what is committed
        # By name, topics with a change on its way: the replicas of the partitions that it makes.
        self._reserved: dict[str, tuple[Replicas, ...]] = {}
        self._deleted: list[Range] = []  # the groups of all topics that were deleted, merged
        self._stores: dict[int, Replicas] | None = None  # by group; None: to be found out anew

    @property
    def last_index(self) -> int:
        return self._indexes.last

    def topic(self, name: str) -> Topic:
        """The topic that a client asks for. Raises UnknownTopic, BadName."""
        topic = self.topics.get(name)
        if topic is not None and is_own_topic(name):
            raise _not_for_clients(name)
        if topic is None:
            check_name(name)
            raise UnknownTopic(
                f"there is no topic {name!r}; create it with create_topic({name!r}) "
                f"or: hocket topic create {name}"
            )
        return topic

    def leader_of(self, topic: Topic, number: int) -> str:
        """The id of the store to ask about the partition: whoever there leads, or knows more."""
        replicas = topic.replicas[number]
        if len(replicas) == 1:
            return replicas[0]
        group = topic.groups[number]
        return self.leaders.get(group) or self._another_of(replicas, group)

    def hears(self, topic: Topic, number: int) -> bool:
        """Whether this node keeps a copy of the partition, and so hears who leads it."""
        return self.me in topic.replicas[number] and topic.groups[number] not in self.deaf

    def _another_of(self, replicas: Replicas, group: int) -> str:
        """One that may know who leads, if this node does not. That is itself if it is one of them:
        who is told to ask the same node again does so after a pause.

        Who is dead is not known of every node: so others are named each time somebody asks.
        """
        if self.me in replicas and group not in self.deaf:
            return self.me
        others = [each for each in replicas if each != self.me]
        living = [each for each in others if not self.is_dead(each)] or others
        return living[self._turn % len(living)]

    def leaders_of(self, topic: Topic) -> list[str]:
        """Of all partitions, for somebody who asks for them."""
        self._turn += 1
        return [self.leader_of(topic, number) for number in range(len(topic.groups))]

    def heard_leader(self, topic: Topic, number: int, node: str) -> None:
        """The node has said that it leads the partition; who keeps a copy knows it first-hand."""
        replicas = topic.replicas[number]
        if len(replicas) > 1 and not self.hears(topic, number):
            self.leaders[topic.groups[number]] = node

    def holders_to_ask(self, topic: Topic, number: int) -> list[str]:
        """The other nodes that may lead the partition; of several, those that are not dead."""
        replicas = topic.replicas[number]
        if len(replicas) == 1:
            return [each for each in replicas if each != self.me]
        return [each for each in replicas if each != self.me and not self.is_dead(each)]

    def is_led_here(self, topic: Topic, number: int) -> bool:
        replicas = topic.replicas[number]
        if len(replicas) == 1:
            return replicas[0] == self.me
        return self.leaders.get(topic.groups[number]) == self.me

    def check_here(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Raise NotHere or SeveralNodes unless this node leads all these partitions."""
        numbers = list(numbers)
        self._turn += 1
        nodes = {self.leader_of(topic, number) for number in numbers}
        if nodes == {self.me} and topic.is_replicated:
            if not all(self.is_led_here(topic, number) for number in numbers):
                raise self.no_leader(topic)
            return
        if nodes == {self.me}:
            return
        if len(nodes) == 1:
            raise self.not_here(topic, nodes.pop())
        raise SeveralNodes(
            f"the partitions of topic {topic.name!r} that are meant are on {len(nodes)} nodes; ask "
            "each node for its own"
        )

    def home_of_group(self, group: int) -> str | None:
        """The node that holds this log; None: no topic is known to which it belongs."""
        return next(iter(self.stores_of_group(group)), None)

    def stores_of_group(self, group: int) -> Replicas:
        """All nodes that hold this log, the home first; none if it belongs to no topic."""
        if self._stores is None:
            self._stores = {
                group: stores
                for topic in self.topics.values()
                for group, stores in (
                    *zip(topic.groups, topic.replicas, strict=True),
                    *zip(topic.waiting, topic.replicas, strict=False),
                )
            }
        return self._stores.get(group, ())

    def is_here(self, topic: Topic) -> bool:
        """Whether this node leads all partitions of the topic."""
        return all(self.is_led_here(topic, number) for number in range(len(topic.groups)))

    def no_leader(self, topic: Topic) -> NotHere:
        return NotHere(
            f"no node is known to lead all partitions of topic {topic.name!r} that are meant: a "
            "leader is being elected, or too few of its replicas are there; try again",
            node=self.me,
            address=self.address_of(self.me),
        )

    def not_here(self, topic: Topic, home: str) -> NotHere:
        return NotHere(
            f"the partitions of topic {topic.name!r} are on {self._named(home)}, and not on this "
            "node; connect to that one",
            node=home,
            address=self.address_of(home),
        )

    def unknown_here(self, home: str) -> str:
        """What is to be said of a partition, if the node that holds it does not answer."""
        return (
            f"it is on {self._named(home)}, which does not answer; what it holds is not known here"
        )

    def _named(self, node: str) -> str:
        address = self.address_of(node)
        return f"node {node}, at {address}" if address else f"node {node}"

    def is_deleted(self, group: int) -> bool:
        at = bisect_right(self._deleted, (group, DECISIONS)) - 1
        return at >= 0 and group < self._deleted[at][1]

    def create_deciders(self) -> AppendChange:
        """Make the hidden topic of the deciders. Their groups are always the same ones."""
        if DECIDERS in self.topics or DECIDERS in self._reserved:
            raise TopicExists("the deciders are made already")
        config = TopicConfig(partitions=DECIDERS_COUNT, replication=1)
        groups = tuple(range(DECISIONS + 1, DECISIONS + 1 + DECIDERS_COUNT))
        replicas = tuple(self.place(DECIDERS, range(DECIDERS_COUNT), 1))
        return self._append(None, Change("create", DECIDERS, config, groups, (), replicas))

    def spread_deciders(self) -> AppendChange:
        """Have several nodes keep each decider: the one that has it, and others."""
        topic = self.topics[DECIDERS]
        placed = self.place(DECIDERS, range(DECIDERS_COUNT), DECIDERS_REPLICAS)
        replicas = tuple(
            (home, *(each for each in stores if each != home))[:DECIDERS_REPLICAS]
            for home, stores in zip(topic.homes, placed, strict=True)
        )
        if DECIDERS in self._reserved or min(map(len, replicas)) < DECIDERS_REPLICAS:
            raise NotEnoughNodes(f"{DECIDERS_REPLICAS} nodes that are there keep a decider")
        return self._append(None, Change("place", DECIDERS, topic.config, (), (), replicas))

    def create(self, origin: Origin, name: str, config: TopicConfig) -> AppendChange:
        check_name(name)
        if is_own_topic(name):
            raise _not_for_clients(name)
        if name in self.topics or name in self._reserved:
            raise TopicExists(f"there is a topic {name!r} already")
        if len(self.topics) + len(self._pending) >= TOPICS_MAX:
            raise LimitExceeded(f"there are {TOPICS_MAX} topics already")
        _check_config(config)
        count = self._replication(config)
        groups = self._new_groups(config.partitions)
        waiting = self._new_groups(config.partitions if config.delayed else 0)
        replicas = self._placed(name, range(config.partitions), count)
        return self._append(origin, Change("create", name, config, groups, waiting, replicas))

    def alter(self, origin: Origin, name: str, config: TopicConfig) -> AppendChange:
        topic = self._free_topic(name)
        _check_config(config, topic.config)
        # An older client does not know this setting, and must not take it away.
        config = replace(config, delayed=config.delayed or topic.config.delayed)
        count = self._replication(config, topic)
        if config.replication is None:  # it stays as it was
            config = replace(config, replication=topic.config.replication)
        more = config.partitions - topic.config.partitions
        if more < 0:
            raise OutOfRange(
                f"topic {name!r} has {topic.config.partitions} partitions, and their number "
                f"cannot be made smaller ({config.partitions}): their records would be lost"
            )
        groups = self._new_groups(more)
        waiting = self._new_groups(config.partitions - len(topic.waiting) if config.delayed else 0)
        new = range(topic.config.partitions, config.partitions)
        change = Change("alter", name, config, groups, waiting, self._placed(name, new, count))
        return self._append(origin, change)

    def _placed(self, name: str, numbers: range, count: int) -> tuple[Replicas, ...]:
        placed = tuple(self.place(name, numbers, count))
        if any(len(each) < count for each in placed):
            raise NotEnoughNodes(
                f"{count} replicas need {count} nodes that are there, and there are "
                f"{min(map(len, placed))}: the others are down; try again when they are back"
            )
        return placed

    def delete(self, origin: Origin, name: str) -> AppendChange:
        self._free_topic(name)
        return self._append(origin, Change("delete", name))

    def _take_effect(self, index: int, body: bytes, origin: Origin | None) -> list[Changed]:
        self.applied_index = index
        self._stores = None
        change = Change.decode(body)
        self.loads.subtract(_counted(change.topic, self._reserved.pop(change.topic, ())))
        return [Changed(origin, change, self._apply(change))]

    def adopt(self, groups: Iterable[int]) -> list[Topic]:
        """Make a topic for each of these groups, which have records and belong to no topic.

        To be called after the replay of a log that has lost entries, with all groups that the store
        knows. The entry that made their topics is among the lost ones. Of groups whose deletion is
        known no topic is made.
        """
        found = []
        self._stores = None
        homes = {group for topic in self.topics.values() for group in topic.all_groups}
        for group in sorted(set(groups) - homes):
            if self.is_deleted(group) or group > DECISIONS:
                continue
            self._next_applied = max(self._next_applied, group + 1)
            self._next_group = max(self._next_group, group + 1)
            name = f"{ADOPTED}{group}"
            while name in self.topics:
                name += "_"
            topic = Topic(name, TopicConfig(replication=1), [group], replicas=[(self.me,)])
            self.topics[name] = topic
            self.loads[self.me] += 1
            found.append(topic)
        return found

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        state = {
            "next_group": self._next_applied,
            "topics": [topic.fields() for topic in self.topics.values()],
            "deleted": self._deleted,
        }
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self._stores = None
        self._next_group = self._next_applied = state["next_group"]
        self.topics = {}
        for fields in state["topics"]:
            config = TopicConfig(**fields["config"])
            groups, waiting = list(fields["groups"]), list(fields.get("waiting", ()))
            replicas = self._resolved(unfolded(fields, len(groups)))
            self.topics[fields["name"]] = Topic(fields["name"], config, groups, waiting, replicas)
        self._count_loads()
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
            first = len(old.groups) if old else 0
            groups, replicas = tuple(topic.groups[first:]), tuple(topic.replicas[first:])
            waiting = tuple(topic.waiting[len(old.waiting) if old else 0 :])
            kind = "alter" if old else "create"
            if old is None or old != topic:
                change = Change(kind, name, topic.config, groups, waiting, replicas)
                changed.append(Changed(None, change, groups + waiting))
        return changed

    def _go_back(self) -> None:
        self._reserved.clear()
        self._next_group = self._next_applied
        self._count_loads()

    def _count_loads(self) -> None:
        self.loads = Counter(
            store
            for topic in self.topics.values()
            for store in _counted(topic.name, topic.replicas)
        )

    def _free_topic(self, name: str) -> Topic:
        topic = self.topic(name)
        if name in self._reserved:
            raise TopicExists(f"topic {name!r} is being changed by somebody else; try again")
        return topic

    def _replication(self, config: TopicConfig, topic: Topic | None = None) -> int:
        """How many replicas the new partitions of the topic get; None: it is new itself.

        A topic that does not say so itself has as many as the cluster's default was when it was
        made. New partitions of it get as many, whatever the default is by then.
        """
        has = None if topic is None else topic.replication
        said = config.replication
        count = said if said is not None else has or self.default_replication()
        if count < 1:
            raise OutOfRange(f"replication must be 1 or more, not {count}")
        nodes, partitions = self.nodes(), 0 if topic is None else len(topic.groups)
        if count > nodes and (count != has or config.partitions > partitions):
            why = "; the cluster's default is so many, and a topic may say another (replication=1)"
            why = "" if said is not None else why
            raise NotEnoughNodes(
                f"{count} replicas need {count} nodes, and there {'is' if nodes == 1 else 'are'} "
                f"{nodes}{why}"
            )
        if has is not None and count != has:
            raise OutOfRange(
                f"the topic has {has} replicas, and their number cannot be changed to {count} in "
                "this version: make another topic"
            )
        if count > REPLICAS_MAX:
            raise OutOfRange(f"a partition has at most {REPLICAS_MAX} replicas, not {count}")
        if count > 1:
            _check_replicated(config)
        return count

    def _new_groups(self, count: int) -> tuple[int, ...]:
        first = self._next_group
        self._next_group += count
        assert self._next_group < DECISIONS
        return tuple(range(first, first + count))

    def _append(self, origin: Origin | None, change: Change) -> AppendChange:
        self._reserved[change.topic] = change.replicas
        self.loads.update(_counted(change.topic, change.replicas))
        return self._propose(origin, change.encode())

    def _apply(self, change: Change) -> tuple[int, ...]:
        topic = self.topics.get(change.topic)
        if change.kind == "place":
            if topic is not None:
                topic.replicas = self._resolved(change.replicas)
            return ()
        if change.kind == "delete":
            self.topics.pop(change.topic, None)
            groups = tuple(topic.all_groups) if topic else ()
            self.loads.subtract(_counted(topic.name, topic.replicas) if topic else ())
            for group in groups:
                self.leaders.pop(group, None)
                self.deaf.discard(group)
            self._deleted = merged((*self._deleted, *((group, group + 1) for group in groups)))
            return groups
        assert change.config is not None
        made = change.groups + change.waiting
        numbered = (group + 1 for group in made if group < DECISIONS)
        self._next_applied = max(self._next_applied, *numbered, 1)
        self._next_group = max(self._next_group, self._next_applied)
        if change.kind == "create":
            topic = self.topics[change.topic] = Topic(change.topic, change.config, [])
        if topic is not None:  # else the entry that created it is lost
            replicas = self._resolved(change.replicas)
            topic.config = change.config
            topic.groups.extend(change.groups)
            topic.waiting.extend(change.waiting)
            topic.replicas.extend(replicas)
            self.loads.update(_counted(topic.name, replicas))
        return made

    def _resolved(self, replicas: Iterable[Replicas]) -> list[Replicas]:
        """An entry without a home is of a version without clusters: of the founder."""
        return [each if each[0] else (self._founder,) for each in replicas]


def _check_config(config: TopicConfig, before: TopicConfig | None = None) -> None:
    if not 1 <= config.partitions <= PARTITIONS_MAX:
        raise OutOfRange(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {config.partitions}")
    if config.durability not in ("quorum", "memory"):
        raise OutOfRange(f"durability is 'quorum' or 'memory', not {config.durability!r}")
    if config.segment_bytes_max < SEGMENT_BYTES_LEAST:
        raise OutOfRange(
            f"a segment has {SEGMENT_BYTES_LEAST} bytes or more, not {config.segment_bytes_max}"
        )
    for name in ("memory_retention_us", "memory_bytes_max", "disk_retention_us", "disk_bytes_max"):
        value = getattr(config, name)
        if value is not None and value < 0:
            raise OutOfRange(f"{name} must be 0 or more, not {value}")
    check_retention(config, before)


def _check_replicated(config: TopicConfig) -> None:
    if config.durability == "memory":
        raise OutOfRange(
            "durability 'memory' has one replica: what several nodes keep is on their disks; use "
            "durability 'quorum', or replication 1"
        )
    if config.delayed:
        raise OutOfRange(
            "a topic with delayed messages has one replica in this version; use replication 1"
        )


def _not_for_clients(name: str) -> BadName:
    return BadName(
        f"topics whose names begin with {OWN_TOPICS!r} are the broker's own, and {name[:80]!r} "
        "is one; use another name"
    )


def _counted(topic: str, replicas: Iterable[Replicas]) -> list[str]:
    """The stores of partitions that count as load, each as often as it keeps one."""
    return [] if is_own_topic(topic) else holders(replicas)
