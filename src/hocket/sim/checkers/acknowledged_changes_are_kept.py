"""G2: what an administrator was told is done is so at the end, at every node; what it was told is
not done is not."""

from __future__ import annotations

from hocket.sim.administrator import states_in
from hocket.sim.checkers.metadata_checker import MetadataChecker


class AcknowledgedChangesAreKept(MetadataChecker):
    name = "acknowledged_changes_are_kept"
    sentence = "A change of the metadata that was acknowledged is there, at every node."

    def after_event(self) -> None:
        """It is looked at when all is at rest."""

    def at_end(self) -> None:
        cluster = self._watch.cluster
        for machine in cluster.machines:
            if machine.node is None:
                continue
            found = states_in(machine.node.node.metadata_snapshot()[1])
            for administrator in cluster.workload.administrators:
                for thing, states in administrator.things.items():
                    self.seen += 1
                    if found.get(thing) not in states:
                        raise self.broken(
                            f"{thing} is {found.get(thing)} at {machine.name}, and may be "
                            f"{sorted(map(str, states))}"
                        )
