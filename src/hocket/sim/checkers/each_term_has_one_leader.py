"""L1: election safety. Two leaders of one term would both commit, each something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class EachTermHasOneLeader(CopiesChecker):
    name = "each_term_has_one_leader"
    sentence = "In one term of a group at most one node leads."

    def look(self, copy: Copy) -> None:
        if not copy.leads:
            return
        leader = copy.story.leaders.setdefault(copy.term, copy.machine.name)
        self.seen += 1
        if leader != copy.machine.name:
            raise self.broken(
                f"{copy.machine.name} and {leader} both lead {copy.story.where} in term {copy.term}"
            )
