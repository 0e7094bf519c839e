"""The relay tree of one partition at one moment, as an observer sees it.

Each node knows its parent and its children, and they may disagree for a while: a tree is what the
parents make it. All here is plain reading of the production cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hocket.core.ring.contact import Contact


class RelayLike(Protocol):
    """What is read of the production core."""

    @property
    def me(self) -> Contact: ...
    @property
    def parent(self) -> Contact | None: ...
    @property
    def is_owner(self) -> bool: ...


class TreeView:
    def __init__(self, relays: Iterable[RelayLike]) -> None:
        self.parents: dict[
            str, str
        ] = {}  # by node; the owner has none, nor has a node that looks for one
        self.owners: list[str] = []
        for relay in relays:
            if relay.is_owner:
                self.owners.append(relay.me.node)
            elif relay.parent is not None:
                self.parents[relay.me.node] = relay.parent.node

    def cycles(self) -> list[tuple[str, ...]]:
        """Every cycle along parents; each begins at its first name."""
        parents, walked, cycles = self.parents, dict[str, int](), []
        for number, node in enumerate(parents):
            at: str | None = node
            while at is not None and at not in walked:
                walked[at] = number
                at = parents.get(at)
            if at is not None and walked[at] == number:
                cycle, here = [at], parents[at]
                while here != at:
                    cycle.append(here)
                    here = parents[here]
                first = cycle.index(min(cycle))
                cycles.append((*cycle[first:], *cycle[:first]))
        return cycles

    def depth(self, node: str) -> int | None:
        """How many steps the node is below an owner; None: it is below no owner just now."""
        steps = 0
        while node not in self.owners:
            if node not in self.parents or steps > len(self.parents):
                return None
            node = self.parents[node]
            steps += 1
        return steps
