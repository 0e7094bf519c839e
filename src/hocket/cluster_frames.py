"""The frames about the cluster itself. Others find them in `hocket.frames`, with the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.cluster_model import (
    AuditRecord,
    NodeAddress,
    NodeDescription,
    PluginState,
    RingNode,
    TreeNode,
)


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


@dataclass(slots=True)
class FindLeaders:
    """Ask which node leads each partition of a topic. Answered by LeadersAre."""

    request: int
    topic: str


@dataclass(slots=True)
class LeadersAre:
    request: int
    nodes: tuple[NodeAddress, ...]  # each that leads a partition, once
    # Packed: for each partition in order the place of its leader in `nodes`; one that is not below
    # the number of nodes: nobody is known to lead the partition.
    leaders: bytes


@dataclass(slots=True)
class DescribeTree:
    """Gather how the partitions of a topic fan out over the nodes. Answered by TreeIs."""

    request: int
    topic: str


@dataclass(slots=True)
class TreeIs:
    request: int
    nodes: tuple[TreeNode, ...]  # by partition, and then by node
    silent: tuple[str, ...]  # nodes that did not answer


@dataclass(slots=True)
class ReadAudit:
    """Read the audit logs of all nodes, from a time on. Answered by AuditIs."""

    request: int
    since_us: int = 0


@dataclass(slots=True)
class AuditIs:
    request: int
    records: tuple[AuditRecord, ...]  # in the order of time
    next_us: int  # there are more from this time on; 0: these are all
    silent: tuple[str, ...]  # nodes that did not answer


@dataclass(slots=True)
class DescribeCluster:
    """Ask what is set for the whole cluster. Answered by ClusterIs."""

    request: int


@dataclass(slots=True)
class ClusterIs:
    request: int
    cluster: str  # its id
    nodes: int  # how many it has, whether they are there at the moment or not
    replication: int  # of topics that do not say so themselves
    successors: int  # the length of successor lists; 0: a broker that is in no cluster has none


@dataclass(slots=True)
class SetCluster:
    """Change what is set for the whole cluster."""

    request: int
    replication: int = 0  # of topics that are made from now on; 0: as it is


@dataclass(slots=True)
class DescribePlugins:
    """Ask which plug-ins this node runs. Answered by PluginsAre."""

    request: int


@dataclass(slots=True)
class PluginsAre:
    request: int
    node: str
    name: str
    hooks: tuple[PluginState, ...]
