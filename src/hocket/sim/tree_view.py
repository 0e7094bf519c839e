"""The relay tree of one partition at one moment, as an observer sees it.

Each node knows its parent and its children, and parents and children may disagree for a while: here
the parents count. This module only reads the production cores, by protocols: it knows no core.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact


class RelayLike(Protocol):
    """What is read of a production core to see the tree."""

    @property
    def me(self) -> Contact: ...
    @property
    def parent(self) -> Contact | None: ...
    @property
    def is_owner(self) -> bool: ...


class ChildrenLike(Protocol):
    def __len__(self) -> int: ...
    @property
    def contacts(self) -> tuple[Contact, ...]: ...


class RelayWithChildren(RelayLike, Protocol):
    """What is read of a production core to count its children as well."""

    @property
    def children(self) -> ChildrenLike: ...
    @property
    def settings(self) -> RelaySettings: ...


class TreeView:
    def __init__(self, relays: Iterable[RelayLike]) -> None:
        self.parents: dict[str, str] = {}  # by node, without those that have none just now
        self.owners: list[str] = []
        for relay in relays:
            if relay.is_owner:
                self.owners.append(relay.me.node)
            elif relay.parent is not None:
                self.parents[relay.me.node] = relay.parent.node

    def cycles(self) -> list[tuple[str, ...]]:
        return cycles_in(self.parents)

    def depth(self, node: str) -> int | None:
        """Steps up to an owner; None: the node does not hang on an owner just now."""
        steps = 0
        while node not in self.owners:
            if node not in self.parents or steps > len(self.parents):
                return None
            node = self.parents[node]
            steps += 1
        return steps


def cycles_in(parents: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Every closed way along parents; each begins with the first of its names in order."""
    walked, cycles = dict[str, int](), []
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
