"""F6: a copy that has lost something which was durable does not count until it has as much again.

It may have acknowledged what it has lost, and a majority that counts it is none. If what is damaged
lies before its snapshot, it is known to be committed, and the copy may vote; but it cannot hand out
what is damaged, so it is not to lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class WhoIsDamagedNeitherVotesNorLeads(CopiesChecker):
    name = "who_is_damaged_neither_votes_nor_leads"
    sentence = "A copy whose log is damaged gives no vote and does not lead."

    def look(self, copy: Copy) -> None:
        was = copy.was
        assert was is not None
        begins_to_lead = copy.leads and not was.leads
        votes = not copy.began and copy.vote and (copy.term, copy.vote) != (was.term, was.vote)
        if not begins_to_lead and not votes:
            return
        self.seen += 1
        if begins_to_lead and was.is_faulty and copy.is_faulty:
            raise self.broken(f"{copy.name} is damaged, and leads in term {copy.term}")
        if votes and not was.may_vote and not copy.may_vote:
            raise self.broken(
                f"{copy.name} is damaged, and votes for {copy.vote} in term {copy.term}"
            )
