"""The consumers of each partition that this node leads, and which node serves them.

What is decided, and when, says `core.placement.crowd`; here are the crowds of all partitions. A
consumer of several partitions is served where the most popular one of them says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from hocket.core.placement.crowd import Crowd
from hocket.core.ring.contact import Contact
from hocket.model import SECOND_US
from hocket.node.running.sessions import Address

LOOK_US = SECOND_US  # how often it is looked at who had better be served elsewhere
AVOID_US = 10 * SECOND_US  # a node that a consumer did not reach gets no new ones for so long


class Crowds:
    def __init__(self, me: str, popular: int) -> None:
        # All live nodes of the cluster, by their positions; none: this one is alone.
        self.nodes: Callable[[], Sequence[Contact]] = tuple
        self._me = me
        self._popular = popular
        self._by_group: dict[int, Crowd] = {}
        self._avoided: dict[str, int] = {}  # nodes, and until when
        self._next_look_us = 0
        # Partitions that cannot be read: whoever reads them here is told so.
        self.damaged: set[int] = set()

    def join(self, consumer: Address, groups: Iterable[int], *, is_movable: bool) -> None:
        """A newcomer opens these partitions, and is served here unless `place` says otherwise."""
        for group in groups:
            crowd = self._by_group.get(group)
            if crowd is None:
                crowd = self._by_group[group] = Crowd(self._me, self._popular)
            crowd.join(consumer, is_movable=is_movable)

    def place(
        self, consumer: Address, groups: Sequence[int], name: str, now_us: int
    ) -> Contact | None:
        """The node that is to serve a newcomer who has joined; None: this one."""
        crowds = [self._by_group[group] for group in groups]
        most = max(filter(_is_popular, crowds), key=len, default=None)
        if most is None or not self.damaged.isdisjoint(groups):
            return None
        nodes = self.nodes()
        avoided = [node for node, until_us in self._avoided.items() if now_us < until_us]
        home = most.home(name, nodes, avoided)
        if home == self._me:
            return None
        for crowd in crowds:
            crowd.move(consumer, home)
        return next(each for each in nodes if each.node == home)

    def avoid(self, node: str, now_us: int) -> None:
        """A consumer says that it was not served by this node."""
        if any(each.node == node for each in self.nodes()):
            self._avoided[node] = now_us + AVOID_US

    def leave(self, consumer: Address, groups: Iterable[int]) -> None:
        for group in groups:
            crowd = self._by_group.get(group)
            if crowd is not None:
                crowd.leave(consumer)
                if not crowd and not crowd.is_popular:
                    del self._by_group[group]

    def popular(self) -> set[int]:
        """The groups of the partitions that are popular now."""
        return {group for group, crowd in self._by_group.items() if crowd.is_popular}

    def misplaced(self, now_us: int) -> list[Address]:
        """Those that are to ask anew which node serves them."""
        if now_us < self._next_look_us:
            return []
        self._next_look_us = now_us + LOOK_US
        self._avoided = {node: until for node, until in self._avoided.items() if now_us < until}
        found: dict[Address, None] = {}
        nodes: Sequence[Contact] | None = None
        for group, crowd in list(self._by_group.items()):
            if not crowd.is_popular:
                continue  # all are here
            if nodes is None:
                nodes = self.nodes()
            found |= dict.fromkeys(cast("list[Address]", crowd.misplaced(nodes)))
            if not crowd and not crowd.is_popular:
                del self._by_group[group]
        return list(found)


def _is_popular(crowd: Crowd) -> bool:
    return crowd.is_popular
