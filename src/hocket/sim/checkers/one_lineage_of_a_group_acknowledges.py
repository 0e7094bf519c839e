"""G1: a partition is one group, from its founding on; no other group, and no copy that is no member
of it, ever serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import PartitionId
from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class OneLineageOfAGroupAcknowledges(CopiesChecker):
    name = "one_lineage_of_a_group_acknowledges"
    sentence = "A partition is served by the members of one group, and by nobody else."

    def look(self, copy: Copy) -> None:
        story = copy.story
        place = PartitionId(story.topic, story.partition)
        if not copy.serves or place not in self._cluster.workload.logs:
            return  # topics that are made anew under the same name are other topics
        self.seen += 1
        first = self._view.story_of(place)
        if first is not story:
            raise self.broken(f"{copy.machine.name} serves {place} as group {story.group}")
        if copy.machine.name not in story.voters:
            raise self.broken(f"{copy.machine.name} serves {place}, and is none of {story.voters}")
