"""Requests about the cluster: what to send, and what the answer means."""

from __future__ import annotations

from hocket import frames
from hocket.client_core.calls.call import Call
from hocket.client_core.calls.topics import check_int
from hocket.cluster_model import (
    ClusterDescription,
    KeyOwner,
    NodeDescription,
    NodePlugins,
    RingDescription,
    TreeDescription,
)
from hocket.errors import OutOfRange, WrongType
from hocket.model import check_name

KEY_BYTES_MAX = 4096


def ring() -> Call[RingDescription]:
    return Call(
        frames.DescribeRing(0),
        lambda answer: RingDescription(
            answer.cluster, answer.ideal, answer.successors, answer.nodes, answer.silent
        ),
        frames.RingIs,
    )


def look_up(key: str, *, cached: bool) -> Call[KeyOwner]:
    if not isinstance(key, str):
        raise WrongType(f"a key to look up is a str, not {type(key).__name__}")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise OutOfRange(f"a key to look up has at most {KEY_BYTES_MAX} bytes")
    return Call(
        frames.LookUpKey(0, key, cached),
        lambda answer: KeyOwner(key, answer.position, answer.owner, answer.hops),
        frames.KeyIsOwned,
    )


def nodes() -> Call[list[NodeDescription]]:
    return Call(frames.ListNodes(0), lambda answer: list(answer.nodes), frames.NodesAre)


def tree(topic: str) -> Call[TreeDescription]:
    return Call(
        frames.DescribeTree(0, check_name(topic)),
        lambda answer: TreeDescription(topic, answer.nodes, answer.silent),
        frames.TreeIs,
    )


def cluster() -> Call[ClusterDescription]:
    return Call(
        frames.DescribeCluster(0),
        lambda answer: ClusterDescription(
            answer.cluster, answer.nodes, answer.replication, answer.successors
        ),
        frames.ClusterIs,
    )


def set_cluster(*, replication: int) -> Call[None]:
    frame = frames.SetCluster(0, check_int(replication, "replication", 1, 255))
    return Call(frame, lambda _answer: None, frames.Done, changes=True)


def plugins() -> Call[NodePlugins]:
    return Call(
        frames.DescribePlugins(0),
        lambda answer: NodePlugins(answer.node, answer.name, answer.hooks),
        frames.PluginsAre,
    )


def audit(since_us: int) -> Call[frames.AuditIs]:
    """One page of it: `next_us` says where the next begins."""
    return Call(frames.ReadAudit(0, since_us), lambda answer: answer, frames.AuditIs)


def names(after: str) -> Call[frames.NamesAre]:
    """One page of them: `next` says behind which name the next begins."""
    return Call(frames.ListNames(0, after), lambda answer: answer, frames.NamesAre)
