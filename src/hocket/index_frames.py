"""The frames about indexes. Others find them in `hocket.frames`, with the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.model import IndexDescription, Start


@dataclass(slots=True)
class ListIndexes:
    request: int
    topic: str
    paged: bool = False
    after: str = ""
    index: str = ""  # list this index only
    partitions: bytes = b""  # packed: of these partitions only; empty for all


@dataclass(slots=True)
class Indexes:
    request: int
    indexes: tuple[IndexDescription, ...]
    next: str = ""


@dataclass(slots=True)
class SeekIndex:
    """Put an index elsewhere, whether a consumer is attached or not. Answered by Offsets."""

    request: int
    topic: str
    index: str
    start: Start
    partition: int = -1  # -1: all of them, or `partitions`
    partitions: bytes = b""  # packed
    elsewhere: bool = False  # other nodes have the index: it is made here, if it is not there yet


@dataclass(slots=True)
class SkipUnreadable:
    """Move an own index past what it stands at, if that cannot be read. Answered by Offsets."""

    request: int
    topic: str
    index: str
    partition: int
    offset: int  # one of the messages that cannot be read


@dataclass(slots=True)
class DeleteIndex:
    request: int
    topic: str
    index: str
    partitions: bytes = b""  # packed: in these only; empty for all


@dataclass(slots=True)
class Revive:
    """Have a shared index deliver messages again that are dead letters. Answered by Offsets.

    The answer has the offsets of those that are delivered again: not those whose dead letters were
    used up before.
    """

    request: int
    topic: str
    index: str
    partition: int
    offsets: bytes  # packed: of the messages
    letters: bytes  # packed: of their dead letters, which ascend, in one partition of <topic>.dlq
    dead_partition: int
