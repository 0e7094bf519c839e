"""T3: five seconds after a relay has died, those it fed get what they want again.

That is promised for one crash at a time. So a crash is judged if nothing else went wrong for a
while before it and until then, if the owner lives, and for consumers that take what they are given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.workload import Consumer

RESUMED_US_MAX = 5_000_000
NEW_US = 1_000_000  # what is committed so short before the end need not be there yet
HARMLESS = ("join", "join_storm", "duplication", "reordering", "slow", "slow_disk")


@dataclass(slots=True)
class _Case:
    time_us: int
    who: str
    harm: int
    waiting: dict[int, tuple[int, int]]  # by consumer: when it began there, what it wanted next
    ends: dict[int, int] = field(default_factory=dict)  # by consumer: committed, a while later


class DeliveryResumesAfterACrash(Checker):
    name = "delivery_resumes_after_a_crash"
    sentence = "Delivery goes on within five seconds of a relay's crash."
    looks_at = "tree"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._crashes = 0
        self._harm = 0
        self._harmed_at_us = cluster.now_us  # nothing is settled at the start either
        self._case: _Case | None = None

    def after_event(self) -> None:
        now_us, harm = self._cluster.now_us, self._count_harm()
        crashes = self._cluster.relay_crashes
        if len(crashes) > self._crashes:
            self._crashes = len(crashes)
            settled = now_us - self._harmed_at_us > RESUMED_US_MAX
            self._case = self._open(*crashes[-1], harm) if settled else None
        if harm != self._harm:
            self._harm, self._harmed_at_us = harm, now_us
        case = self._case
        if case is None:
            return
        if harm != case.harm or self._cluster.deceived:
            self._case = None
        elif now_us >= case.time_us + RESUMED_US_MAX:
            self._judge(case)
            self._case = None
        elif not case.ends and now_us >= case.time_us + RESUMED_US_MAX - NEW_US:
            case.ends = {
                consumer.number: self._cluster.committed_end(consumer.place)
                for consumer in self._cluster.consumers
            }

    def _open(self, time_us: int, who: tuple[object, ...], harm: int) -> _Case:
        waiting = {
            consumer.number: (consumer.started_at_us, consumer.next_offset)
            for consumer in self._cluster.consumers
            if self._is_judged(consumer)
        }
        return _Case(time_us, str(who[1]), harm, waiting)

    def _judge(self, case: _Case) -> None:
        for consumer in self._cluster.consumers:
            started_at_us, next_offset = case.waiting.get(consumer.number, (-1, 0))
            if consumer.started_at_us != started_at_us or not self._is_judged(consumer):
                continue
            self.seen += 1
            if next_offset == consumer.next_offset < case.ends.get(consumer.number, 0):
                raise self.broken(
                    f"{case.who} died at {case.time_us}; consumer {consumer.number} still waits"
                    f" for offset {next_offset} of {consumer.place}"
                )

    def _is_judged(self, consumer: Consumer) -> bool:
        owner = self._cluster.workload.owners[consumer.place]
        return not consumer.slow and consumer.machine is not None and owner.up

    def _count_harm(self) -> int:
        cluster = self._cluster
        return sum(
            count
            for counts in (cluster.faults.counts, cluster.links.faults)
            for kind, count in counts.items()
            if kind not in HARMLESS
        )
