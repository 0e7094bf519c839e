"""O7: retention is decided by the leader, and carried out by every copy when its entry says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class LogStartsMoveByCommittedEntries(CopiesChecker):
    name = "log_starts_move_by_committed_entries"
    sentence = "The start of a log moves by a committed entry, and by nothing else."

    def look(self, copy: Copy) -> None:
        story, allowed = copy.story, copy.story.log_start
        if copy.start or copy.log_start:
            self.seen += 1
        for start in (copy.start, copy.log_start):
            if start > allowed:
                raise self.broken(
                    f"{copy.name} begins at {start}; the entries that are committed say {allowed}"
                )
        if story.new and copy.serves and copy.start < allowed:
            raise self.broken(f"{copy.name} serves from {copy.start}, and {allowed} is committed")
