"""What a node remembers for ever of the cluster that it belongs to, beside its data.

    node.json    the cluster's id (its founder's store id), the node's position on the ring, the
                 length of successor lists, and addresses by which the cluster was found

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


def founded(node: str, successors: int | None) -> Membership:
    """A cluster of this node alone."""
    if successors is None:
        successors = RingSettings().successors
    return Membership(node, node, candidates(node.encode())[0], checked(successors))


def joined(node: str, answer: HelloAccepted, seeds: Sequence[str]) -> Membership:
    """The cluster of the node that has answered; its position evens the ring out."""
    position = choose(candidates(node.encode()), answer.positions)
    return Membership(node, answer.cluster, position, answer.successors, tuple(seeds))


def remember(disk: Disk, membership: Membership) -> None:
    write_checked(disk, PATH, asdict(membership))


def checked(successors: int) -> int:
    if not 1 <= successors <= SUCCESSORS_MAX:
        raise OutOfRange(f"successor lists have 1 to {SUCCESSORS_MAX} entries, not {successors}")
    return successors


def refuse_contradiction(membership: Membership, successors: int | None) -> None:
    if successors is not None and successors != membership.successors:
        raise OutOfRange(
            f"the cluster was founded with --successors {membership.successors}, which is fixed: "
            f"leave --successors {successors} out"
        )
