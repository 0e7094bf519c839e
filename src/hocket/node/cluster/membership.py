"""What a node remembers for ever of the cluster that it belongs to, beside its data.

    node.json    the cluster's id (its founder's store id), the node's position on the ring, the
                 length of successor lists, addresses by which the cluster was found, and at its
                 founder the replication that it was founded with

The file is written once, when the node founds its cluster or joins one for the first time. A data
directory stays in its cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from hocket.core.ring.circle import candidates, choose, is_candidate
from hocket.core.ring.settings import RingSettings
from hocket.errors import CorruptData, OutOfRange
from hocket.log.directory import read_checked, write_checked
from hocket.node_frames import HelloAccepted
from hocket.ports import Disk

PATH = "node.json"
SUCCESSORS_MAX = 64


@dataclass(frozen=True, slots=True)
class Membership:
    node: str  # the store id
    cluster: str
    position: int
    successors: int
    seeds: tuple[str, ...] = ()
    # Of topics that do not say so themselves, as the founder was told; 0: nothing was said. What
    # holds is in the metadata: this is for a founder that dies before it has written it there.
    replication: int = 0

    @property
    def is_founder(self) -> bool:
        return self.cluster == self.node


def remembered(disk: Disk, where: str, node: str) -> Membership | None:
    """What the directory says; None: it belongs to no cluster yet."""
    if not disk.exists(PATH):
        return None
    fields = read_checked(disk, PATH)
    try:
        membership = Membership(
            str(fields["node"]), str(fields["cluster"]), int(fields["position"]),
            int(fields["successors"]), tuple(map(str, fields["seeds"])),
            int(fields.get("replication", 0)),
        )  # fmt: skip
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptData(
            f"{PATH} in {where} is damaged; put it back from a copy of the directory, or from "
            "another copy of this node's file"
        ) from error
    if membership.node != node or not is_candidate(node.encode(), membership.position):
        raise CorruptData(
            f"{PATH} in {where} is that of store {membership.node}, and the directory is store "
            f"{node}: put the right one back"
        )
    return membership


def founded(node: str, successors: int | None, replication: int | None = None) -> Membership:
    """A cluster of this node alone."""
    if successors is None:
        successors = RingSettings().successors
    position = candidates(node.encode())[0]
    return Membership(node, node, position, checked(successors), (), replication or 0)


def joined(node: str, answer: HelloAccepted, seeds: Sequence[str]) -> Membership:
    """The cluster of the node that has answered; its position evens the ring out."""
    position = choose(candidates(node.encode()), answer.positions)
    return Membership(node, answer.cluster, position, answer.successors, tuple(seeds))


def remember(disk: Disk, membership: Membership) -> None:
    fields = asdict(membership)
    if not membership.replication:
        del fields["replication"]
    write_checked(disk, PATH, fields)


def checked(successors: int) -> int:
    if not 1 <= successors <= SUCCESSORS_MAX:
        raise OutOfRange(f"successor lists have 1 to {SUCCESSORS_MAX} entries, not {successors}")
    return successors


def refuse_other_replication(wanted: int | None, now: int, founded: int) -> None:
    """Whoever starts a node may repeat what the cluster was founded with, or what is set now."""
    if wanted is not None and wanted not in (now, founded):
        raise OutOfRange(
            f"the cluster has replication {now} by default, and --replication {wanted} is for the "
            "founding of a cluster: leave it out. To change it for new topics: hocket cluster set "
            f"replication {wanted}"
        )


def refuse_contradiction(membership: Membership, successors: int | None) -> None:
    if successors is not None and successors != membership.successors:
        raise OutOfRange(
            f"the cluster was founded with --successors {membership.successors}, which is fixed: "
            f"leave --successors {successors} out"
        )
