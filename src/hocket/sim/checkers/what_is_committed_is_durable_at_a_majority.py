"""F1 and F3: what counts is the disk of each voter, the leader's own included. An entry that fewer
than a majority would still have after a power failure is not committed, whoever says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class WhatIsCommittedIsDurableAtAMajority(CopiesChecker):
    name = "what_is_committed_is_durable_at_a_majority"
    sentence = "An entry is committed when a majority of the voters has it on disk."

    def look(self, copy: Copy) -> None:
        story = copy.story
        for index in story.new:
            self.seen += 1
            mark = story.committed[index]
            holders = [
                each.machine.name
                for each in story.copies.values()
                if each.durable >= index and each.log.get(index, mark) == mark
            ]
            if len(holders) < story.majority:
                raise self.broken(
                    f"{copy.name} has committed entry {index}, which only {holders} of "
                    f"{list(story.voters)} have on disk"
                )
