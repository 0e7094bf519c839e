"""Requests about topics and indexes: what to send, and what the answer means.

The blocking and the asyncio client make the same calls; they differ in how they wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from hocket import frames
from hocket.client_core.calls.call import Call, PagedCall
from hocket.errors import (
    OutOfRange,
    TopicExists,
    UnknownIndex,
    UnknownTopic,
    WrongType,
)
from hocket.frames import packed, unpacked
from hocket.model import (
    PARTITIONS_MAX,
    IndexDescription,
    Start,
    TopicConfig,
    TopicDescription,
    check_name,
    check_retention,
    duration_us,
    size_bytes,
)

T = TypeVar("T")

_NUMBER_MAX = 2**63 - 1
Duration = str | int | float
Size = str | int
StartLike = Start | str | int | datetime


def _nothing(_answer: object) -> None:
    return None


# --- topics --------------------------------------------------------------------------------------


def create_topic(name: str, config: TopicConfig, *, exist_ok: bool) -> Call[None]:
    check_retention(config)
    return Call(
        frames.CreateTopic(0, check_name(name), config),
        _nothing,
        frames.Done,
        changes=True,
        forgives=TopicExists if exist_ok else None,
    )


def alter_topic(name: str, config: TopicConfig, before: TopicConfig) -> Call[None]:
    check_retention(config, before)
    return Call(frames.AlterTopic(0, check_name(name), config), _nothing, frames.Done, changes=True)


def delete_topic(name: str, *, missing_ok: bool) -> Call[None]:
    return Call(
        frames.DeleteTopic(0, check_name(name)),
        _nothing,
        frames.Done,
        changes=True,
        forgives=UnknownTopic if missing_ok else None,
    )


def topics() -> PagedCall[list[str]]:
    return PagedCall(
        lambda after: frames.ListTopics(0, paged=True, after=after),
        frames.Topics,
        lambda answers: sorted(topic.name for answer in answers for topic in answer.topics),
    )


def describe(name: str) -> PagedCall[TopicDescription]:
    check_name(name)

    def joined(answers: list[frames.Topics]) -> TopicDescription:
        last = answers[-1].topics[0]
        parts = (answer.topics[0].partitions for answer in answers)
        return replace(last, partitions=tuple(each for part in parts for each in part))

    return PagedCall(
        lambda after: frames.DescribeTopic(0, name, paged=True, after=after),
        frames.Topics,
        joined,
    )


def checked_start(start: StartLike) -> Start:
    found = Start.of(start)
    if not 0 <= found.value <= _NUMBER_MAX:
        raise OutOfRange(
            f"an offset or a time lies between 0 and 2**63 - 1 (microseconds), not {start!r}"
        )
    return found


def find_offsets(topic: str, start: StartLike) -> Call[list[int]]:
    return Call(
        frames.FindOffsets(0, check_name(topic), checked_start(start)),
        lambda answer: unpacked(answer.offsets),
        frames.Offsets,
    )


def ping() -> Call[None]:
    return Call(frames.Ping(0), _nothing, frames.Done)


# --- indexes -------------------------------------------------------------------------------------


def indexes(topic: str) -> PagedCall[list[IndexDescription]]:
    return _indexes(topic, "", lambda found: found)


def lag(topic: str, index: str) -> PagedCall[int]:
    check_name(index, "an index's name")

    def lag_of(found: list[IndexDescription]) -> int:
        for each in found:  # a broker that is older lists all of them
            if each.name == index:
                return each.lag
        raise UnknownIndex(f"topic {topic!r} has no index {index!r}")

    return _indexes(topic, index, lag_of)


def _indexes(topic: str, index: str, result: Callable[[list[IndexDescription]], T]) -> PagedCall[T]:
    check_name(topic)
    return PagedCall(
        lambda after: frames.ListIndexes(0, topic, paged=True, after=after, index=index),
        frames.Indexes,
        lambda answers: result([each for answer in answers for each in answer.indexes]),
    )


def seek(topic: str, index: str, to: StartLike, partition: int | None) -> Call[list[int]]:
    check_name(index, "an index's name")
    if partition is not None:
        check_int(partition, "a partition", 0, PARTITIONS_MAX - 1)
    # Not `changes`: if its answer is lost it is sent again, and seeking twice does no harm.
    return Call(
        frames.SeekIndex(
            0, check_name(topic), index, checked_start(to), -1 if partition is None else partition
        ),
        lambda answer: unpacked(answer.offsets),
        frames.Offsets,
    )


def seek_each(
    topic: str, index: str, starts: Mapping[int, StartLike], partition: int | None
) -> dict[int, Call[int]]:
    """One call for each partition."""
    if partition is not None:
        raise WrongType("the partitions are named with their offsets; leave partition= out")
    calls = {}
    for number, start in starts.items():
        call = seek(topic, index, start, check_int(number, "a partition", 0, PARTITIONS_MAX - 1))
        calls[number] = Call(call.frame, lambda answer: unpacked(answer.offsets)[0], call.expects)
    return calls


def skip(topic: str, index: str, partition: int, offset: int) -> Call[int]:
    check_name(index, "an index's name")
    check_int(partition, "a partition", 0, PARTITIONS_MAX - 1)
    check_int(offset, "an offset", 0, _NUMBER_MAX)
    # Not `changes`: it names what is skipped, so doing it twice does no harm.
    return Call(
        frames.SkipUnreadable(0, check_name(topic), index, partition, offset),
        lambda answer: unpacked(answer.offsets)[0],
        frames.Offsets,
    )


def delete_index(topic: str, index: str) -> Call[None]:
    check_name(index, "an index's name")
    return Call(
        frames.DeleteIndex(0, check_name(topic), index), _nothing, frames.Done, changes=True
    )


def delete_messages(topic: str, offsets: Sequence[int]) -> Call[None]:
    for offset in offsets:
        check_int(offset, "an offset", 0, _NUMBER_MAX)
    # Not `changes`: what is deleted stays so, and offsets are not given twice.
    return Call(frames.DeleteMessages(0, check_name(topic), packed(offsets)), _nothing, frames.Done)


# --- what is set per topic -----------------------------------------------------------------------


def new_config(*, memory_retention: Duration | None = None, **settings: Any) -> TopicConfig:
    """What a new topic is told to have; None stands for the default.

    The default for memory is not longer than what was told for the disk.
    """
    config = configured(TopicConfig(), memory_retention=memory_retention, **settings)
    kept_us = config.disk_retention_us
    if memory_retention is None and kept_us is not None:
        shorter_us = min(config.memory_retention_us, kept_us)
        return replace(config, memory_retention_us=shorter_us)
    return config


def configured(
    config: TopicConfig,
    *,
    partitions: int | None = None,
    replication: int | None = None,
    memory_retention: Duration | None = None,
    memory_bytes: Size | None = None,
    disk_retention: Duration | None = None,
    disk_bytes: Size | None = None,
    durability: str | None = None,
    segment_bytes: Size | None = None,
    delayed: bool | None = None,
) -> TopicConfig:
    """`config` with the given settings changed; None leaves a setting as it is.

    `disk_retention="forever"` and `disk_bytes="unlimited"` remove the limit.
    """
    changes: dict[str, Any] = {}
    if partitions is not None:
        changes["partitions"] = check_int(partitions, "partitions", 1, PARTITIONS_MAX)
    if replication is not None:
        changes["replication"] = check_int(replication, "replication", 1, 255)
    if memory_retention is not None:
        changes["memory_retention_us"] = duration_us(memory_retention, "memory_retention")
    if memory_bytes is not None:
        changes["memory_bytes_max"] = _size(memory_bytes, "memory_bytes")
    if disk_retention is not None:
        forever = disk_retention in ("forever", math.inf)
        changes["disk_retention_us"] = (
            None if forever else duration_us(disk_retention, "disk_retention")
        )
    if disk_bytes is not None:
        unlimited = disk_bytes in ("unlimited", math.inf)
        changes["disk_bytes_max"] = None if unlimited else _size(disk_bytes, "disk_bytes")
    if durability is not None:
        if durability not in ("quorum", "memory"):
            raise OutOfRange(f"durability must be 'quorum' or 'memory', not {durability!r}")
        changes["durability"] = durability
    if segment_bytes is not None:
        changes["segment_bytes_max"] = _size(segment_bytes, "segment_bytes")
    if delayed is not None:
        if not isinstance(delayed, bool):
            raise WrongType(f"delayed must be True or False, not {delayed!r}")
        if config.delayed and not delayed:
            raise OutOfRange(
                "a topic that takes delayed messages goes on taking them: some may be waiting"
            )
        changes["delayed"] = delayed
    return replace(config, **changes)


def _size(size: Size, what: str) -> int:
    found = size_bytes(size, what)
    if found > _NUMBER_MAX:
        raise OutOfRange(f"{what} must be less than 2**63 bytes, not {size!r}")
    return found


def check_int(number: object, what: str, least: int, most: int) -> int:
    """The number. Raises unless it is an int from `least` to `most`."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise WrongType(f"{what} must be an int, not {number!r}")
    if not least <= number <= most:
        raise OutOfRange(f"{what} must lie between {least} and {most}, not {number}")
    return number
