"""What nodes tell each other of the trees in which partitions fan out, for people."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.cluster_model import TreeNode


@dataclass(slots=True)
class GetTrees:
    """Which place do you have in the trees of these partitions?"""

    request: int
    topic: str
    groups: bytes  # packed: the groups, in the order of the partitions


@dataclass(slots=True)
class TreesAre:
    """The answer to `GetTrees`."""

    request: int
    nodes: tuple[TreeNode, ...]  # one for each partition in whose tree the sender takes part


TreeMessage = GetTrees | TreesAre
