"""L3: an entry that was committed once, anywhere, is what every copy has at its index from the
moment at which that copy knows it as committed; and no copy cuts it off again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class WhatIsCommittedNeverChanges(CopiesChecker):
    name = "what_is_committed_never_changes"
    sentence = "A committed entry never changes, and is the same at every copy."

    def look(self, copy: Copy) -> None:
        was, story = copy.was, copy.story
        assert was is not None
        first = 1 if copy.began else was.commit + 1
        if copy.fresh and copy.fresh[0] < first:
            first = copy.fresh[0]
        for index in range(max(first, 1), min(copy.commit, story.last) + 1):
            mark = copy.log.get(index)
            if mark is None:
                continue  # it is known by a state
            self.seen += 1
            if mark != story.committed[index]:
                raise self.broken(
                    f"entry {index} of {copy.name} is {mark}, and {story.committed[index]} was "
                    "committed"
                )
        if copy.last < copy.commit:
            raise self.broken(f"{copy.name} ends at {copy.last}, and {copy.commit} is committed")
