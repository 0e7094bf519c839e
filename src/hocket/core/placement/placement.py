"""Which nodes are best to keep the replicas of a partition.

Rule: this is pure arithmetic on its arguments. The result is a wish; the partition's own log says
which nodes really hold the partition.

The partition's key is a position on the ring. The next few nodes, the key's *neighbourhood*, are
those to choose from, so that a node shares partitions with its neighbours only. Within the
neighbourhood failure domains come first, then nodes that have the partition already, then nodes
with little load. This choice evens out what the arcs of the ring leave uneven.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId

NEIGHBOURHOOD = 8  # nodes


@dataclass(slots=True, eq=False)
class Placeable:
    """A live node, as placement sees it."""

    contact: Contact
    load: float = 0.0
    capacity: float = 1.0  # in the unit of the load; 0: takes nothing unless no other node can
    has_replica: bool = False  # it holds a replica of this partition already

    @property
    def fullness(self) -> float:
        return self.load / self.capacity if self.capacity > 0 else inf

    @property
    def domain(self) -> str:
        """The failure domain. A node without a label is a domain of its own."""
        return self.contact.domain or f"node {self.contact.node}"


def key_of(partition_id: PartitionId) -> int:
    """The partition's position on the ring. Part of the protocol.

    No topic's name holds a NUL, so no two partitions share a text.
    """
    return position_of(f"{partition_id.topic}\0{partition_id.partition}")


def neighbourhood_of(
    key: int, nodes: Sequence[Placeable], count: int = NEIGHBOURHOOD
) -> list[Placeable]:
    """The next `count` nodes clockwise, a node at the key included.

    `nodes` are sorted by position.
    """
    start = bisect_left(nodes, key, key=_position)
    nearest = list(nodes[start : start + count])
    return nearest + list(nodes[: min(start, count - len(nearest))])


def place(
    key: int, nodes: Sequence[Placeable], replicas: int, neighbourhood: int = NEIGHBOURHOOD
) -> list[Contact]:
    """The nodes for a partition's replicas, fewer if there are fewer nodes.

    `nodes` are all live nodes, sorted by position; `neighbourhood` is how many of them to choose
    from. Each further replica goes to a domain that has none yet, as long as the neighbourhood has
    such a domain. Among those nodes the ones with a replica come first, then the least full, then
    the next on the ring.
    """
    free = neighbourhood_of(key, nodes, neighbourhood)
    chosen: list[Contact] = []
    domains: list[str] = []

    def rank(node: Placeable) -> tuple[bool, bool, float]:
        return node.domain in domains, not node.has_replica, node.fullness

    while free and len(chosen) < replicas:
        best = min(free, key=rank)  # the first of equals: ring order
        free.remove(best)
        chosen.append(best.contact)
        domains.append(best.domain)
    return chosen


def spread(
    topic: str, numbers: Iterable[int], nodes: Sequence[Placeable], replicas: int = 1
) -> list[tuple[str, ...]]:
    """Nodes for each of these partitions of a topic, by their names; fewer if there are fewer.

    `nodes` are all live nodes, at least one, sorted by position. What each gets is added to its
    load. A node without capacity gets something only if too few nodes have any: the
    neighbourhood of a key may happen to consist of such nodes.

    The first of several is the partition's home, which leads it as long as it is there. Homes are
    dealt evenly among the replicas, and by chance of the name where that leaves a choice: the order
    of the ring would make homes of a few nodes only, where all nodes have replicas of everything.
    """
    able = [node for node in nodes if node.capacity > 0]
    if len(able) < replicas:
        able = [Placeable(node.contact, node.load) for node in nodes]
    by_name = {node.contact.node: node for node in able}
    homes: Counter[str] = Counter()
    placed = []
    for number in numbers:
        chosen = [each.node for each in place(key_of(PartitionId(topic, number)), able, replicas)]
        for node in chosen:
            by_name[node].load += 1
        home = min(
            chosen,
            key=lambda node: (homes[node] / by_name[node].capacity, _lot(topic, number, node)),
        )
        homes[home] += 1
        placed.append((home, *(node for node in chosen if node != home)))
    return placed


def _lot(topic: str, number: int, node: str) -> int:
    return position_of(f"{topic}\0{number}\0{node}")


def _position(node: Placeable) -> int:
    return node.contact.position
