"""Answers in parts: how much of a listing goes into one answer.

The header of a frame has at most 1 MiB. What is asked for `paged` is answered by as much as fits
into half of that; a single item always goes, and none is larger than the other half. Sizes are
estimated, and never too low: what an item takes as a Cap'n Proto struct is known from the schema.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from hocket.cluster_model import NameDescription
from hocket.model import (
    IndexDescription,
    PartitionDescription,
    RoleDescription,
    TopicDescription,
    UserDescription,
)

PAGE_BYTES = 512 << 10

T = TypeVar("T")


class Page(Generic[T]):
    """Takes items until it is full; one that is not `paged` takes all that comes."""

    def __init__(self, *, paged: bool) -> None:
        self.items: list[T] = []
        self._room = PAGE_BYTES if paged else None

    def takes(self, item: T, size: int) -> bool:
        """Takes the item, which has this many bytes at most, or says that it is for the next."""
        if self._room is not None:
            if size > self._room and self.items:
                return False
            self._room -= size
        self.items.append(item)
        return True


# --- sizes ---------------------------------------------------------------------------------------

_LIST = 8  # what precedes the elements of a list of structs
_POINTER = 8


def _text(text: str) -> int:
    return len(text.encode()) + 8  # a zero byte, padded to a multiple of 8


def topic_bytes(topic: TopicDescription) -> int:
    return 152 + _text(topic.name)


def partition_bytes(partition: PartitionDescription) -> int:
    replicas = sum(_POINTER + _text(replica) for replica in partition.replicas)
    states = sum(40 + _text(each.node) + _text(each.role) for each in partition.replica_states)
    return 112 + _text(partition.leader) + replicas + _text(partition.problem) + _LIST + states


def index_bytes(index: IndexDescription) -> int:
    return 24 + _text(index.name) + _LIST + 48 * len(index.partitions)


def user_bytes(user: UserDescription) -> int:
    return 16 + _text(user.name) + sum(_POINTER + _text(role) for role in user.roles)


def role_bytes(role: RoleDescription) -> int:
    grants = sum(24 + _text(grant.topic) + _text(grant.index) for grant in role.grants)
    return 16 + _text(role.name) + _LIST + grants


def name_bytes(name: NameDescription) -> int:
    texts = (name.name, name.kind, name.node, name.user, name.address)
    return sum(_POINTER + _text(text) for text in texts)
