"""A whole cluster from one seed: a site, the faults that strike it, and the workload on it.

This is the world only. The rules that a run follows are in `run`, and what must be true is in
`checkers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import PartitionId
from hocket.sim.faults import Faults
from hocket.sim.links import Weather
from hocket.sim.machine import Machine
from hocket.sim.site import Site
from hocket.sim.workload import Consumer, Lookup, Workload

if TYPE_CHECKING:
    from hocket.sim.swarm import Options


class Cluster(Site):
    def __init__(self, seed: int, options: Options) -> None:
        super().__init__(seed, options)
        self._ends: dict[PartitionId, int] = {}  # committed, as it was when the owner went down
        self.faults = Faults(self)
        self.workload = Workload(self)

    def begin(self) -> None:
        """Everybody that is there starts as a member of one ring."""
        self.found()
        for machine in self.machines[1:]:
            machine.boot()
        members = sorted(ring.me for ring in self.rings())
        for machine in self.machines:
            machine.begin(tuple(members), self.root.address)
        self.workload.begin()
        self.faults.begin()

    def capacity_of(self, machine: Machine) -> int:
        """Partitions are on machines that come back, for what is on others would be lost."""
        return int(machine.keeps or machine.holds)

    def may_lose(self, machine: Machine) -> bool:
        if machine.keeps or self.has_no_other_copy(machine):
            return False
        return not self._has_copies(machine) or self.workload.may_lose(machine)

    def _has_copies(self, machine: Machine) -> bool:
        """Also of what was made while those with capacity were away."""
        stories = self.copies.stories.values()
        return machine.holds or any(machine.name in each.voters for each in stories)

    def has_no_other_copy(self, machine: Machine) -> bool:
        return self.workload.has_no_other_copy(machine)

    def knows_places(self) -> bool:
        return self.workload.knows_places()

    def lost_for_good(self) -> None:
        self.workload.give_up_what_is_lost()

    @property
    def consumers(self) -> list[Consumer]:
        return self.workload.consumers

    @property
    def lookups(self) -> list[Lookup]:
        return self.workload.lookups

    def committed(self, partition_id: PartitionId) -> dict[int, bytes]:
        """What producers were told is stored, by offset."""
        return self.workload.logs[partition_id]

    def committed_end(self, partition_id: PartitionId) -> int:
        """The end of what any owner of the partition has committed, now or when it went down."""
        end = self._ends.get(partition_id, 0)
        log_id = self.workload.log_id(partition_id)
        if log_id is not None:
            story = self.copies.stories.get(log_id.group)
            if story is not None:
                return story.end
            (owner,) = self.workload.owners[partition_id]
            if owner.node is not None:
                end = max(end, owner.node.committed_end(log_id))  # the log's word, not the relay's
            self._ends[partition_id] = end
        return end

    def ending(self, machine: Machine) -> None:
        for partition_id, owners in self.workload.owners.items():
            if machine in owners:
                self.committed_end(partition_id)
        super().ending(machine)
        self.workload.machine_died(machine)

    def end_of_faults(self) -> None:
        """From now on nothing goes wrong any more; everything must become right again."""
        self.tell(None, "faults are over")
        self.is_safety_phase = False
        self.links.weather = Weather()
        self.faults.stop()
        self.workload.stop()

    def fault_counts(self) -> dict[str, int]:
        counts = {**self.links.faults, **self.faults.counts}
        if self.deceptions:
            counts["deceptions"] = self.deceptions
        return dict(sorted(counts.items()))

    def counts(self) -> dict[str, int]:
        """What the workload came to."""
        mended = self.workload.mended()
        return {
            "messages": self.links.arrived,
            "published": sum(map(len, self.workload.logs.values())),
            "mended": mended.total(),
            **{f"mended: {kind}": count for kind, count in sorted(mended.items())},
            "delivered": sum(len(consumer.diary) for consumer in self.consumers),
            "subscribed": sum(len(each.diary) for each in self.workload.subscribers),
            "feeds": sum(each.feeds for each in self.workload.subscribers),
            "shared": sum(len(each.diary) for each in self.workload.offices),
            "lookups": len(self.lookups),
            "changes": sum(each.done for each in self.workload.administrators),
            "lives": sum(machine.lives for machine in self.machines),
        }
