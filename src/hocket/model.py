"""The nouns that every part of the topic broker shares: topics, partitions, positions, indexes.

Plain values only; no I/O, no clock. Time is whole microseconds since the epoch, UTC, everywhere;
durations are whole microseconds. Ranges are half-open, `start` and `end`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Literal, NamedTuple

import xxhash

from hocket.deadline import in_digits
from hocket.errors import BadName, OutOfRange, WrongType

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

PARTITIONS_MAX = 4096
REPLICAS_MAX = 7  # of a partition
NAME_BYTES_MAX = 255
MESSAGE_BYTES_MAX = 64 << 20  # of one message, key and headers included
BATCH_BYTES_MAX = 128 << 20  # of one batch as it is stored
# Producer ids that begin like this are the broker's own, those of dead letters and of delayed
# messages that are due. They can be foreseen, so nobody else may use them.
OWN_PRODUCERS = b"hocket:\0"
DUE_PRODUCERS = OWN_PRODUCERS + b"due"  # of delayed messages: at most a few in each partition
PUBLISH_DELAY_US_MAX = 366 * DAY_US  # of a delayed message
CREDIT_BYTES_DEFAULT = 8 << 20  # that a broker sends ahead of what was handed out
PREFETCH_DEFAULT = 5_000  # messages of a shared index that a consumer may hold unsettled

Durability = Literal["quorum", "memory"]
Mode = Literal["own", "shared", "key_shared"]
Failover = Literal["safe", "fast"]
Settlement = Literal["ack", "nack", "extend", "reject", "release"]
Action = Literal["publish", "subscribe", "create", "alter", "delete", "admin", "bind", "connect"]


class PartitionId(NamedTuple):
    """Which partition of which topic.

    A topic that is deleted and made anew has other groups, so nodes that talk about the log of a
    partition name its group, too: the records of one log never pass for those of the other.
    """

    topic: str
    partition: int
    group: int = 0  # the group of its log, never used twice; 0: whichever log it has now


# The log of a node's own decisions on transactions. Topics' logs are counted from 1 and never get
# there; a round number, because people may have to type it.
DECISIONS = 10**18


# Topics whose names begin like this are the broker's own: nobody else lists, reads or changes them.
OWN_TOPICS = "_hocket."
# The partitions of this topic are the deciders of transactions of a cluster, with logs behind
# DECISIONS. Their number is never changed: an id would find a decider that does not know it.
DECIDERS = OWN_TOPICS + "deciders"
DECIDERS_COUNT = 8
DECIDERS_REPLICAS = 3  # from three nodes on

DEAD_LETTERS = ".dlq"  # behind a topic's name: the topic that gets what none of its consumers took


class EntryKind(IntEnum):
    """What the body of a log's entry is. The numbers stand in stored entries for ever."""

    NOOP = 0
    BATCH = 1  # records; see wire.batch
    CURSOR = 2  # how far indexes have come
    CONFIG = 3  # in the metadata: a topic and its configuration
    CONTROL = 4  # log start, and what else the leader decides
    STAGE = 5  # a batch of a transaction that is not decided yet; see wire.stage
    DECISION = 6  # in the decisions' log: what has become of a transaction
    ACCESS = 7  # in the metadata: users, roles and grants
    NODES = 8  # in the metadata: the nodes of the cluster
    MEMBERSHIP = 9  # of a group that several nodes keep: which of them; see core.raft.membership
    PREFERENCES = 10  # in the metadata: what is set for the whole cluster
    NAMES = 11  # in the metadata: names of brokers in other processes


class Position(NamedTuple):
    """Where a record is. `publish` returns one."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What is set per topic. None means the broker's default, or no limit."""

    partitions: int = 1
    replication: int | None = None
    memory_retention_us: int = 10 * MINUTE_US
    memory_bytes_max: int = 256 << 20  # per partition; wins over the time
    disk_retention_us: int | None = 7 * DAY_US
    disk_bytes_max: int | None = None  # per partition
    durability: Durability = "quorum"
    segment_bytes_max: int = 64 << 20
    delayed: bool = False  # messages may be published that are not due yet


def check_retention(config: TopicConfig, before: TopicConfig | None = None) -> None:
    """Raise if messages would have to leave the disk, and so the topic, before they leave memory.

    A topic that was made like that, by an earlier version, may stay so: `before` is what it had.
    """
    kept_us, memory_us = config.disk_retention_us, config.memory_retention_us
    known = before and (before.disk_retention_us, before.memory_retention_us)
    if known == (kept_us, memory_us):
        return
    if kept_us is not None and kept_us < memory_us:
        raise OutOfRange(
            f"messages cannot be kept on disk for {format_duration(kept_us)} and in memory for "
            f"{format_duration(memory_us)}: what is removed from disk is gone; make the "
            "memory retention as short, or the disk retention longer"
        )


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One copy of a partition, as its leader or the copy's own node tells it."""

    node: str  # the id of the node that holds it
    role: str  # "leader" or "follower"; or "unknown": nobody who knows has answered
    term: int = 0  # in which it leads, or follows; 0: not known
    end: int = 0  # the offset behind the last record that is durable there; 0 if it is not known
    lag: int = 0  # how many entries of the log it lacks, that the leader has
    # It is not known to have what the leader had a moment ago: it is down, cut off, or slow. What
    # is merely on its way to it does not count.
    behind: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    start: int  # the oldest offset that can be read
    end: int  # the offset that the next record will get
    memory_start: int  # reads from here on are answered by the memory tier; `end` if it is empty
    memory_bytes: int
    disk_bytes: int
    memory_reads: int  # reads answered from memory since the broker started
    disk_reads: int  # reads that went to the disk
    leader: str  # the id of the node that leads it; empty: nobody is known to
    replicas: tuple[str, ...]  # the ids of the nodes that have a copy
    problem: str = ""  # what is damaged, in words; empty when all is well
    waiting: int = 0  # delayed messages that are not in the partition yet
    # False: the node that holds the partition did not answer. Then `problem` says so, and the
    # numbers are 0 because nobody knows them.
    known: bool = True
    replica_states: tuple[ReplicaState, ...] = ()  # what is known of each copy
    tier_bytes: int = 0  # in a storage tier, and not on the disk

    @property
    def under_replicated(self) -> bool:
        """Whether a copy is behind. Then fewer nodes than it should be may die before messages are
        lost."""
        return any(each.behind for each in self.replica_states)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    config: TopicConfig
    partitions: tuple[PartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexPartition:
    """How far an index has come in one partition."""

    partition: int
    position: int  # the next offset to be consumed
    end: int
    attached: bool  # a consumer is connected
    ahead: int = 0  # of a shared index: how many messages behind `position` are done already
    leased: int = 0  # of a shared index: how many messages are with consumers now
    lost: int = 0  # removed before the index had consumed them, since it was made or put elsewhere

    @property
    def lag(self) -> int:
        return self.end - self.position - self.ahead


@dataclass(frozen=True, slots=True)
class IndexDescription:
    name: str
    mode: Mode
    hold_retention: bool
    partitions: tuple[IndexPartition, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.partitions)


@dataclass(frozen=True, slots=True)
class Participant:
    """What one producer has staged in one partition for a transaction."""

    topic: str
    partition: int
    producer_id: bytes
    batches: int
    records: int
    crc: int  # CRC-32C over the little-endian u32 body CRCs of the batches, in order


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission to do something with the topics, and their indexes, whose names match.

    In a pattern `*` stands for any run of characters; everything else for itself.
    """

    action: Action
    topic: str = "*"
    index: str = "*"  # only matters for actions that concern an index


@dataclass(frozen=True, slots=True)
class RoleDescription:
    name: str
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """Who a client is connected to. `cluster` is empty if the broker is older than that."""

    node: str
    software: str  # its name and version
    cluster: str


@dataclass(frozen=True, slots=True)
class UserDescription:
    name: str
    roles: tuple[str, ...] = ()


class Decision(NamedTuple):
    """Whether a user may do something, and why."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Where a new index begins, or where `seek` puts an index."""

    kind: Literal["earliest", "latest", "offset", "time"] = "earliest"
    value: int = 0  # the offset, or the time in microseconds

    @staticmethod
    def of(start: Start | str | int | datetime) -> Start:
        """From what users write: "earliest", "latest", an offset, a datetime, or either as text."""
        if isinstance(start, Start):
            return start
        if isinstance(start, bool) or not isinstance(start, int | str | datetime):
            raise WrongType(f"start must be a str, an offset or a datetime, not {start!r}")
        if isinstance(start, datetime):
            return Start("time", timestamp_us(start))
        if isinstance(start, int):
            if start < 0:
                raise OutOfRange(f"start must be an offset of 0 or more, not {start}")
            return Start("offset", start)
        if start in ("earliest", "latest"):
            return Start(start)  # type: ignore[arg-type]
        try:
            if start.isdecimal():
                return Start("offset", int(start))  # Python reads no more than 4,300 digits
            return Start("time", timestamp_us(datetime.fromisoformat(start)))
        except (ValueError, OverflowError):
            raise OutOfRange(
                f"start must be 'earliest', 'latest', an offset or an ISO time, not {start[:80]!r}"
            ) from None


def timestamp_us(moment: datetime) -> int:
    """A datetime without a zone is taken as local time, as Python does."""
    if moment.tzinfo is None:
        moment = moment.astimezone()
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)  # in UTC itself, year 1 can overflow
    return (since.days * 86_400 + since.seconds) * SECOND_US + since.microseconds


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key. Part of the protocol: every client in every language agrees."""
    return xxhash.xxh3_64_intdigest(key) % partitions


def is_own_topic(name: str) -> bool:
    """Whether a topic is one of the broker's own, which clients have nothing to do with."""
    return name.startswith(OWN_TOPICS)


NAME_RULE = (
    f"1 to {NAME_BYTES_MAX} characters (ASCII letters, digits, . _ -), and not begin with . or -"
)
_TOPIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


def check_name(name: object, what: str = "a topic's name") -> str:
    if not isinstance(name, str):
        raise WrongType(f"{what} must be a str, not {type(name).__name__}")
    if not _TOPIC_NAME.match(name) or len(name) > NAME_BYTES_MAX:
        raise BadName(f"{what} must be {NAME_RULE}; got {name[:80]!r}")
    return name


def check_broker_name(name: object) -> str:
    """A broker's name in a cluster. Within a process a broker may be called anything."""
    if not isinstance(name, str):
        raise WrongType(f"a broker's name must be a str, not {type(name).__name__}")
    if not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX or not name.isprintable():
        raise BadName(
            f"a broker's name in a cluster has 1 to {NAME_BYTES_MAX} bytes, all printable; "
            f"got {name[:80]!r}"
        )
    return name


_PATTERN = re.compile(r"[A-Za-z0-9._*-]+\Z")


def check_pattern(pattern: str, what: str = "a pattern") -> str:
    """A pattern has the characters of names, and `*` for any run of them."""
    if not isinstance(pattern, str):
        raise WrongType(f"{what} must be a str, not {pattern!r}")
    if not _PATTERN.match(pattern) or len(pattern) > NAME_BYTES_MAX:
        raise BadName(
            f"{what} must be 1 to {NAME_BYTES_MAX} characters (ASCII letters, digits, . _ -, and * "
            f"for any run of them); got {pattern[:80]!r}"
        )
    return pattern


def matches(pattern: str, name: str) -> bool:
    """`*` matches any run of characters. It takes linear time, since users write the patterns."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    *middle, last = rest
    start, end = len(first), len(name) - len(last)
    if start > end or not name.startswith(first) or not name.endswith(last):
        return False
    for piece in middle:  # the earliest match leaves the most room for the pieces behind it
        found = name.find(piece, start, end)
        if found < 0:
            return False
        start = found + len(piece)
    return True


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)\Z")
_UNITS_US = {"us": 1, "ms": 1000, "s": SECOND_US, "m": MINUTE_US, "h": HOUR_US, "d": DAY_US}
_DURATION_US_MAX = 100 * 366 * DAY_US


def duration_us(duration: str | int | float, what: str = "a duration") -> int:
    """The microseconds of "500ms", "10m", "7d", or of a number of seconds."""
    if isinstance(duration, str):
        match = _DURATION.match(duration.strip())
        if not match:
            raise OutOfRange(f"{what} must look like 500ms, 30s, 10m, 12h or 7d, not {duration!r}")
        microseconds = float(match[1]) * _UNITS_US[match[2]]
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise WrongType(f"{what} must be a str like '10m' or seconds, not {duration!r}")
    else:
        microseconds = duration * SECOND_US
    if not 0 <= microseconds <= _DURATION_US_MAX:
        raise OutOfRange(f"{what} must lie between 0 and 100 years, not {in_digits(duration)}")
    return round(microseconds)


def format_duration(microseconds: int) -> str:
    for unit in ("d", "h", "m", "s", "ms"):
        if microseconds and microseconds % _UNITS_US[unit] == 0:
            return f"{microseconds // _UNITS_US[unit]}{unit}"
    return f"{microseconds}us" if microseconds else "0s"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?\Z")
_SIZE_UNITS = {
    None: 1, "B": 1,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


_SIZE_BYTES_MAX = 2**63 - 1


def size_bytes(size: str | int, what: str = "a size") -> int:
    """The bytes of "64MiB", "1GB", or of a number of bytes."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise WrongType(f"{what} must be a str like '64MiB' or a number of bytes, not {size!r}")
    if isinstance(size, str):
        match = _SIZE.match(size.strip())
        if not match:
            raise OutOfRange(f"{what} must look like 512KiB, 64MiB or 1GB, not {size!r}")
        exact = round(Decimal(match[1]) * _SIZE_UNITS[match[2]])  # a float has 53 bits only
    else:
        exact = size
    if not 0 <= exact <= _SIZE_BYTES_MAX:
        raise OutOfRange(f"{what} must be 0 to {_SIZE_BYTES_MAX} bytes, not {size}")
    return exact


@dataclass(slots=True)
class Limits:
    """What a broker allows its connections. `Welcome` carries it, so no client has to guess."""

    frame_bytes_max: int = 160 << 20
    batch_bytes_max: int = BATCH_BYTES_MAX
    in_flight_max: int = 32  # batches of one producer and partition not yet acknowledged
    handles_max: int = 10_000  # producers and subscriptions of one connection
    connections_max: int = 10_000
    credit_bytes_max: int = 1 << 30
