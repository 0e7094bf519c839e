"""T3: five seconds after a relay has died, deliveries to the consumers below it go on.

A consumer is judged if its machine has delivered to it, it gives credit, and its owner has
committed more. The crash of a relay excuses it for five seconds. Other things excuse it until the
next delivery: an owner that is down, or not on the ring yet, where no node could find it; messages
that are lost or held up; machines that stand still; living nodes taken for dead. Only consumers
count as seen that were below the crashed relay and are fed by another one: no others have anything
to resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.core.ring.contact import Contact
    from hocket.sim.cluster import Cluster
    from hocket.sim.workload import Consumer

RESUMED_US_MAX = 5_000_000
HARM = ("stall", "long_stall", "cut", "cut_one_way", "cut_partly", "clog", "loss")


class DeliveryResumesAfterACrash(Checker):
    name = "delivery_resumes_after_a_crash"
    sentence = "Delivery goes on within five seconds of a relay's crash."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._harm = 0
        self._offsets: dict[int, tuple[int, int]] = {}  # by consumer: since when there, what next
        self._fed: dict[int, int] = {}  # when it was given something last, or had all
        self._orphans: dict[int, None] = {}  # consumers below the relay that crashed last

    def after_event(self) -> None:
        if self._is_harmed():
            self._fed.clear()
            self._offsets.clear()
            self._orphans.clear()
            return
        for consumer in self._cluster.consumers:
            owners = self._cluster.workload.owners.get(consumer.partition_id, ())
            # The owner of a partition with several replicas may be another one every second.
            node = owners[0].node if len(owners) == 1 else None
            is_there = node is not None and node.ring.core.is_on_the_ring
            if consumer.slow or consumer.machine is None or not is_there:
                self._fed.pop(consumer.number, None)
                self._offsets.pop(consumer.number, None)
                self._orphans.pop(consumer.number, None)
            else:
                self._look(consumer)

    def _look(self, consumer: Consumer) -> None:
        number, now_us = consumer.number, self._cluster.now_us
        start_us, offset = self._offsets.get(number, (-1, 0))
        self._offsets[number] = (consumer.started_at_us, consumer.next_offset)
        if start_us != consumer.started_at_us:  # new here: it has to find the tree first
            self._fed.pop(number, None)
            self._orphans.pop(number, None)
            return
        crashes = self._cluster.relay_crashes
        crashed_us = crashes[-1][0] if crashes else 0
        has_all = consumer.next_offset >= self._cluster.committed_end(consumer.partition_id)
        is_orphan = bool(crashes) and self._hangs_on(consumer, crashes[-1][1])
        if is_orphan:
            self._orphans[number] = None
        if has_all or consumer.next_offset > offset:
            self._fed[number] = now_us
            if consumer.next_offset > offset and number in self._orphans and not is_orphan:
                del self._orphans[number]
                self.seen += 1
        elif number in self._fed:
            waits_since_us = max(self._fed[number], crashed_us)
            if now_us - waits_since_us > RESUMED_US_MAX:
                raise self.broken(
                    f"consumer {number} has waited for offset {consumer.next_offset} of"
                    f" {consumer.partition_id} for {now_us - waits_since_us} us"
                )

    def _hangs_on(self, consumer: Consumer, crashed: Contact) -> bool:
        """Its way to the owner leads by the one that crashed, and it has not noticed."""
        node = consumer.machine.node if consumer.machine is not None else None
        relay = None if node is None else node.relays.cores.get(consumer.log_id)
        return relay is not None and crashed in relay.ancestors[:-1]

    def _is_harmed(self) -> bool:
        cluster = self._cluster
        harm = sum(
            counts.get(kind, 0)
            for counts in (cluster.faults.counts, cluster.links.faults)
            for kind in HARM
        )
        is_new, self._harm = harm != self._harm, harm
        return (
            is_new
            or cluster.deceived
            or bool(cluster.links.clogged)
            or any(
                machine.stalled or cluster.links.is_cut_off(machine.address)
                for machine in cluster.machines
            )
        )
