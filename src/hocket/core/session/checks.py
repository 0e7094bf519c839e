"""What a request may ask of a topic, a partition or a lease. Each raises what is to be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hocket.core.metadata.catalogue import Topic
from hocket.errors import OutOfRange, UnknownPartition, WrongKind
from hocket.model import HOUR_US

LEASE_US_MIN, LEASE_US_MAX = 10_000, 12 * HOUR_US


def refuse_replicated(topic: Topic, what: str) -> None:
    if topic.is_replicated:
        raise WrongKind(
            f"{what} needs a topic with one replica in this version, and {topic.name!r} has "
            f"{topic.replication}; use a topic of replication 1"
        )


def check_delayed(topic: Topic | None) -> None:
    assert topic is not None
    refuse_replicated(topic, "a delayed message")
    if not topic.config.delayed:
        raise WrongKind(
            f"topic {topic.name!r} takes no delayed messages; an admin of it can change that with "
            f"alter_topic({topic.name!r}, delayed=True) or: hocket topic alter {topic.name} "
            "--delayed"
        )


def check_lease(lease_us: int) -> None:
    if not LEASE_US_MIN <= lease_us <= LEASE_US_MAX:
        raise OutOfRange(
            f"a lease lasts {LEASE_US_MIN} us to {LEASE_US_MAX // HOUR_US} h, not {lease_us} us"
        )


def check_partition(topic: Topic, partition: int) -> None:
    if not 0 <= partition < len(topic.groups):
        raise UnknownPartition(
            f"topic {topic.name!r} has partitions 0 to {len(topic.groups) - 1}, and no {partition}"
        )


def check_each_once(partitions: Sequence[int]) -> None:
    if len(set(partitions)) != len(partitions):
        twice = next(number for number, count in Counter(partitions).items() if count > 1)
        raise OutOfRange(f"partition {twice} is named twice")


def check_feed(topic: Topic, places: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """The partitions of these triples (partition, its group, offset)."""
    partitions = tuple(partition for partition, _, _ in places)
    if not partitions:
        raise OutOfRange("a feed names its partitions, and this one names none")
    check_each_once(partitions)
    for partition, group, _offset in places:
        check_partition(topic, partition)
        if topic.groups[partition] != group:
            raise UnknownPartition(
                f"partition {partition} of topic {topic.name!r} is group {topic.groups[partition]} "
                f"here, not {group}: the topic was made anew"
            )
    return partitions
