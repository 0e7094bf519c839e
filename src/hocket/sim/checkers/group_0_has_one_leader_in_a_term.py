"""G4: in a term at most one node leads group 0; and once faults are over somebody does, soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.sim.checkers.metadata_checker import MetadataChecker, MetadataWatch

if TYPE_CHECKING:
    from hocket.sim.machine import Machine

LED_US_MAX = 20_000_000  # some elections: each takes up to four seconds, and may be split


class Group0HasOneLeaderInATerm(MetadataChecker):
    name = "group_0_has_one_leader_in_a_term"
    sentence = "In a term one node leads group 0, and a majority that is there elects one soon."

    def __init__(self, watch: MetadataWatch) -> None:
        super().__init__(watch)
        self._leaders: dict[int, str] = {}  # by term
        self._healed_at_us = 0

    def look(self, _machine: Machine, _index: int, _state: dict[str, Any]) -> None:
        cluster = self._watch.cluster
        for machine in cluster.machines:
            if not machine.leads:
                continue
            assert machine.node is not None
            term = machine.node.node.group0.term
            if self._leaders.setdefault(term, machine.name) != machine.name:
                raise self.broken(
                    f"{self._leaders[term]} and {machine.name} have led in term {term}"
                )
        if not cluster.is_safety_phase and not cluster.root.leads:
            self._healed_at_us = self._healed_at_us or cluster.now_us
            if cluster.now_us - self._healed_at_us > LED_US_MAX:
                raise self.broken(f"nobody leads {LED_US_MAX // 1_000_000} s after all was healed")

    def at_end(self) -> None:
        if not self._watch.cluster.root.leads:
            raise self.broken("nobody leads at the end")
