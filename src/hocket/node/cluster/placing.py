"""Where the root puts new partitions: over all live nodes, by what each of them has already.

Which nodes there are says the registry, which of them are dead the ring, and what each has the
catalogue. A node that is dead, or has left, gets nothing while others are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hocket.core.placement.placement import Placeable, spread
from hocket.core.ring.contact import Contact


class Placing:
    def __init__(
        self,
        me: str,
        *,
        members: Callable[[], tuple[Contact, ...]],
        convicted: Callable[[], Iterable[Contact]],
        loads: Callable[[], Mapping[str, int]],
    ) -> None:
        """`members` are sorted by position; `loads` are partitions by the ids of nodes."""
        self._me = me
        self._members = members
        self._convicted = convicted
        self._loads = loads

    def __call__(self, topic: str, numbers: range, replicas: int) -> list[tuple[str, ...]]:
        """Where these partitions of a topic are to be kept, each on so many nodes."""
        dead = {contact.node: contact.incarnation for contact in self._convicted()}
        living = [
            each
            for each in self._members()
            if each.node == self._me or dead.get(each.node, -1) < each.incarnation
        ]
        if [each.node for each in living] in ([], [self._me]):  # a node alone
            return [(self._me,)] * len(numbers)
        loads = self._loads()
        nodes = [Placeable(each, loads.get(each.node, 0), each.capacity) for each in living]
        return spread(topic, numbers, nodes, replicas)
