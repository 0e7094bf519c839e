"""What clients are told of a cluster: its nodes, its ring, and who owns a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NodeState = Literal["alive", "suspect", "dead"]


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node is reached."""

    node: str  # the id of its store
    address: str  # HOST:PORT


@dataclass(frozen=True, slots=True)
class RingNode:
    """One node on the ring, as it sees the ring itself."""

    node: str  # the id of its store
    name: str
    address: str
    position: int
    successors: tuple[str, ...]  # node ids, the nearest first
    predecessor: str  # a node id; empty: none
    fingers: tuple[str, ...]  # node ids, from the longest step to the shortest


@dataclass(frozen=True, slots=True)
class RingDescription:
    """The ring, as its nodes see it. Each has answered at its own moment."""

    cluster: str  # the id of the cluster
    ideal: bool  # every successor list and every predecessor is exactly right
    successors: int  # the length of successor lists
    nodes: tuple[RingNode, ...]  # by position
    silent: tuple[str, ...]  # ids of nodes that others count on, and that did not answer


@dataclass(frozen=True, slots=True)
class KeyOwner:
    key: str
    position: int  # of the key
    owner: str  # a node id
    hops: tuple[str, ...]  # the nodes that were asked, in order


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of the cluster, as the node that was asked sees it."""

    node: str  # the id of its store
    name: str
    address: str
    state: NodeState
    position: int = 0
    domain: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """What is set for the whole cluster."""

    cluster: str  # its id
    nodes: int  # how many it has, whether they are there at the moment or not
    replication: int  # of topics that are made without saying so
    successors: int  # the length of successor lists; 0: a broker that is in no cluster has none


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node in the tree in which a partition fans out, as it sees the tree itself."""

    partition: int
    node: str  # the id of its store
    parent: str  # a node id; empty: it is a root, or looks for a parent
    children: tuple[str, ...]  # node ids
    child_bytes: tuple[int, ...]  # of batches, sent to each child since it is one
    consumers: int  # that it serves itself
    bytes_out: int  # of batches, sent to children and consumers since it takes part
    is_root: bool  # it leads the partition
    # It takes the batches from its own log, and so is a root: it leads, or keeps a copy.
    reads_log: bool = False


@dataclass(frozen=True, slots=True)
class TreeDescription:
    """The trees of a topic. Each node has answered at its own moment."""

    topic: str
    nodes: tuple[TreeNode, ...]  # by partition, and then by node
    silent: tuple[str, ...]  # ids of nodes that did not answer


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One record of the audit log of a node: what was denied, or changed."""

    node: str  # the id of its store
    time_us: int  # by the clock of that node
    text: str


@dataclass(frozen=True, slots=True)
class AuditLog:
    records: tuple[AuditRecord, ...]  # in the order of time
    silent: tuple[str, ...]  # ids of nodes that did not answer


@dataclass(frozen=True, slots=True)
class PluginState:
    """One hook of a plug-in that a node runs, since the node was started."""

    plugin: str
    version: str
    policy: str  # "open" or "closed"
    on: bool  # False: it has failed too often, and is not called any more
    problem: str  # what it failed with last; empty: nothing
    hook: str
    calls: int
    rejections: int  # batches that it refused
    failures: int
    slow: int  # calls that took longer than it may
    total_us: int
    max_us: int
    # Of one in a process of its own: "running", "starting", "restarting" or "stopped"; else empty.
    process: str = ""
    kills: int = 0  # of its process
    ends: int = 0  # of its process, kills included
    waiting: int = 0  # questions that its process has not answered yet
    dropped: int = 0  # what it was not told, since too much waited or there was no process


@dataclass(frozen=True, slots=True)
class NodePlugins:
    """What a node says of the plug-ins that it runs."""

    node: str  # the id of its store
    name: str
    hooks: tuple[PluginState, ...]  # in the order in which plug-ins are called


@dataclass(frozen=True, slots=True)
class NameDescription:
    """A broker's name in the cluster. Without an `address` it is reached through its node."""

    name: str
    kind: str  # "full-event", "mixed" or "thread"
    node: str  # the id of the node that its process is connected to
    user: str  # who has registered it; empty while there are no users
    address: str

    @property
    def way(self) -> str:
        """How bytes go there: "direct", or "node" if a node passes them on."""
        return "direct" if self.address else "node"
