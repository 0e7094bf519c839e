"""What nodes tell each other of the partitions that they hold, for people who ask another node."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.model import PartitionDescription

GROUPS_MAX = 128  # in one question: the answer then fits one frame, whatever is wrong with them
PROBLEM_MAX = 1_000  # characters of a problem that are told to another node


@dataclass(slots=True)
class GetPartitions:
    """What do you hold of these? Groups say which: a topic made anew has others."""

    request: int
    groups: tuple[int, ...]


@dataclass(slots=True)
class PartitionsAre:
    """The answer to `GetPartitions`: those of them that the sender holds."""

    request: int
    partitions: tuple[PartitionDescription, ...]


DescriptionMessage = GetPartitions | PartitionsAre
