"""G1: nodes that have applied the same entry of the metadata have the same metadata, at any time.
No node ever goes back; and when all is at rest, all have everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.sim.checkers.metadata_checker import MetadataChecker, MetadataWatch

if TYPE_CHECKING:
    from hocket.sim.machine import Machine


class MetadataIsTheSameEverywhere(MetadataChecker):
    name = "metadata_is_the_same_everywhere"
    sentence = "Nodes that have applied the same entry of the metadata have the same metadata."

    def __init__(self, watch: MetadataWatch) -> None:
        super().__init__(watch)
        self._states: dict[int, tuple[str, dict[str, Any]]] = {}  # by index: whose was first

    def look(self, machine: Machine, index: int, state: dict[str, Any]) -> None:
        if index < machine.seen_metadata:
            raise self.broken(f"{machine.name} went back from {machine.seen_metadata} to {index}")
        whose, known = self._states.setdefault(index, (machine.name, state))
        if known != state:
            different = [part for part in {**known, **state} if known.get(part) != state.get(part)]
            part = different[0]
            raise self.broken(
                f"behind entry {index}, {part} is for {machine.name}\n{state.get(part)}\n"
                f"and for {whose}\n{known.get(part)}"
            )

    def at_end(self) -> None:
        cluster = self._watch.cluster
        if cluster.root.node is None:
            return
        end = cluster.root.node.node.metadata_index
        for machine in cluster.machines:
            if machine.node is not None and machine.node.node.metadata_index != end:
                raise self.broken(
                    f"{machine.name} has entry {machine.node.node.metadata_index}, the root {end}"
                )
