"""L2: log matching. An entry's checksum covers the one before it, so that one comparison stands for
all that is before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class LogsAgreeWhereTheirTermsDo(CopiesChecker):
    name = "logs_agree_where_their_terms_do"
    sentence = "Two logs that have an entry of the same term at an index are the same up to it."

    def look(self, copy: Copy) -> None:
        marks = copy.story.marks
        for index in copy.fresh:
            mark = copy.log[index]
            self.seen += 1
            if marks.setdefault((index, mark.term), mark.crc) != mark.crc:
                raise self.broken(
                    f"entry {index} of term {mark.term} in {copy.name} is not what others have"
                )
