"""L4: leader completeness. Whoever is elected has everything that was committed in earlier terms.

A node that stood still may count its votes when others have long elected the next leader. It leads
an old term then, and lacks what the next leader has committed; it can commit nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class ALeaderHasAllThatIsCommitted(CopiesChecker):
    name = "a_leader_has_all_that_is_committed"
    sentence = "A new leader's log has every entry that was committed before."

    def look(self, copy: Copy) -> None:
        was, story = copy.was, copy.story
        assert was is not None
        if not copy.leads or (was.leads and was.term == copy.term and was.life == copy.life):
            return
        last = story.last
        while last and story.committed_in[last] > copy.term:
            last -= 1
        if not last:
            return
        self.seen += 1
        if copy.last < last:
            raise self.broken(f"{copy.name} leads with {copy.last} of {last} entries")
        mark = copy.log.get(last)
        if mark is not None and mark != story.committed[last]:
            raise self.broken(f"{copy.name} leads with another entry {last}: {mark}")
