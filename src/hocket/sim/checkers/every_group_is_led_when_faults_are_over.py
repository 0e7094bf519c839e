"""A group with a majority of its voters has a leader that serves, a bounded time after faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster

WITHOUT_LEADER_US_MAX = 10_000_000  # some twenty election timeouts, once a majority is up


class EveryGroupIsLedWhenFaultsAreOver(CopiesChecker):
    name = "every_group_is_led_when_faults_are_over"
    sentence = "When faults are over, every group with a majority is led within ten seconds."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._since_us: dict[int, int] = {}  # by group: without leader, and with a majority

    def after_event(self) -> None:
        cluster = self._cluster
        if cluster.is_safety_phase:
            return
        workload, now_us = cluster.workload, cluster.now_us
        for place in workload.logs:
            story = self._view.story_of(place)
            if story is None or place in workload.given_up:
                continue
            sound = [
                each
                for each in story.copies.values()
                if each.replica is not None and not each.machine.is_damaged
            ]
            if len(sound) < story.majority or any(each.serves for each in story.copies.values()):
                self._since_us.pop(story.group, None)
                self.seen += 1
            elif now_us - self._since_us.setdefault(story.group, now_us) > WITHOUT_LEADER_US_MAX:
                raise self.broken(f"{story.where} is led by nobody, {len(sound)} copies are up")

    def at_end(self) -> None:
        self.after_event()
