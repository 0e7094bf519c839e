"""The frames about the cluster itself. Others find them in `hocket.frames`, with the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.cluster_model import NodeDescription, RingNode


@dataclass(slots=True)
class DescribeRing:
    """Gather the views of all nodes on the ring. Answered by RingIs."""

    request: int


@dataclass(slots=True)
class RingIs:
    request: int
    cluster: str
    ideal: bool
    successors: int  # the length of successor lists
    nodes: tuple[RingNode, ...]  # by position
    silent: tuple[str, ...]  # nodes that others count on, and that did not answer


@dataclass(slots=True)
class LookUpKey:
    """Find the owner of a key by way of the ring. Answered by KeyIsOwned."""

    request: int
    key: str
    cached: bool = True  # nodes may take short cuts that they have learnt


@dataclass(slots=True)
class KeyIsOwned:
    request: int
    position: int  # of the key
    owner: str  # a node id
    hops: tuple[str, ...]  # the nodes that were asked, in order


@dataclass(slots=True)
class ListNodes:
    """Answered by NodesAre."""

    request: int
    known: bool = False  # as the asked node has them by heart: no other node is asked for its view


@dataclass(slots=True)
class NodesAre:
    request: int
    nodes: tuple[NodeDescription, ...]
