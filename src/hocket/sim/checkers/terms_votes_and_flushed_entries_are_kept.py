"""L5: what a node has said or acted on outlives its crashes.

A term and a vote are durable before anything follows from them, and count from then on. What is
durable is durable: a life that begins has at least the entries that the life before it knew to be
on its disk. A disk that was made to lie excuses a machine from all of this; others must do without
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class TermsVotesAndFlushedEntriesAreKept(CopiesChecker):
    name = "terms_votes_and_flushed_entries_are_kept"
    sentence = "No crash takes back a term, a vote or an entry that was durable."

    def look(self, copy: Copy) -> None:
        was = copy.was
        assert was is not None
        mark = copy.log.get(copy.durable)
        if copy.durable > copy.last or (mark is not None and mark.crc != copy.durable_crc):
            raise self.broken(
                f"{copy.name} calls entry {copy.durable} durable, and has {mark} there, of "
                f"{copy.last}"
            )
        if copy.machine.is_damaged or not was.life:
            return
        self.seen += 1
        replica = copy.replica
        assert replica is not None
        if replica.is_settled and replica.log.replicated.is_persisting(copy.story.group):
            raise self.broken(
                f"{copy.name} goes on in term {copy.term} before that, and its vote for "
                f"{copy.vote or 'nobody'}, are durable"
            )
        term, vote = was.said
        if copy.term < term:
            raise self.broken(f"{copy.name} is in term {copy.term}, and was in {term}")
        if copy.term == term and vote not in ("", copy.vote):
            raise self.broken(
                f"{copy.name} has voted for {copy.vote or 'nobody'} in term {term}, and before "
                f"for {vote}"
            )
        if copy.began:
            self._look_at_entries(copy, was)

    def _look_at_entries(self, copy: Copy, was: Copy) -> None:
        if copy.last < was.durable:
            raise self.broken(f"{copy.name} ends at {copy.last}, and {was.durable} was durable")
        mark, before = copy.log.get(was.durable), was.log.get(was.durable)
        if mark is not None and before is not None and mark != before:
            raise self.broken(f"{copy.name} has {mark} at {was.durable}, and {before} was durable")
