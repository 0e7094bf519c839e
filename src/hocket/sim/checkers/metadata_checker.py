"""What the checkers of the metadata share: one look at a machine's state for all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.machine import Machine

# A node keeps the parts of its state as it has written them. At every so many looks they are
# written anew: a part that has changed, and was kept all the same, is then seen.
ANEW_EVERY = 8


class MetadataWatch:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._looked: tuple[Machine, int, int] | None = None
        self._state: dict[str, Any] = {}
        self._looks = 0
        # Parts of the states that machines had, by how they are written. Most machines write the
        # same, and to take it apart costs more than all else in a run that changes much.
        self._parts: dict[str, Any] = {}

    def look_at(self, machine: Machine) -> tuple[int, dict[str, Any]]:
        """How far the machine, which is up, has applied the metadata, and its state there."""
        assert machine.node is not None
        looked = (machine, machine.lives, machine.node.node.metadata_index)
        if looked != self._looked:
            self._looked = looked
            self._looks += 1
            parts = machine.node.node.metadata_parts(anew=self._looks % ANEW_EVERY == 0)
            self._state = {name: self._part(text) for name, text in parts.items()}
        return looked[2], self._state

    def _part(self, text: str) -> Any:
        known = self._parts.get(text)
        if known is None:
            known = self._parts[text] = in_order(json.loads(text))
        return known


class MetadataChecker(Checker):
    looks_at = "metadata"

    def __init__(self, watch: MetadataWatch) -> None:
        super().__init__()
        self._watch = watch

    def after_event(self) -> None:
        machine = self._watch.cluster.metadata_moved
        assert machine is not None
        self.seen += 1
        self.look(machine, *self._watch.look_at(machine))

    def look(self, machine: Machine, index: int, state: dict[str, Any]) -> None:
        """The machine has applied more than before."""


def in_order(value: Any) -> Any:
    """The same, whatever the order in which it was put together."""
    if isinstance(value, dict):
        return {name: in_order(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        parts = [in_order(each) for each in value]
        if all(type(part) is int for part in parts):
            return sorted(parts)
        return sorted(parts, key=json.dumps)
    return value
