"""O1: the next batch begins where the one before it ended, and nothing else moves the offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.model import EntryKind
from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.copies_view import Copy


class OffsetsAreDense(CopiesChecker):
    name = "offsets_are_dense"
    sentence = "Every batch begins where the one before it ended."

    def look(self, copy: Copy) -> None:
        story = copy.story
        for index in story.new:
            header = story.entries[index].header
            before = story.entries.get(index - 1)
            expected = 0 if before is None else before.header.end_offset
            self.seen += 1
            if header.base_offset != expected:
                raise self.broken(
                    f"entry {index} of {story.where} begins at {header.base_offset}, and "
                    f"{expected} is next"
                )
            records = len(story.entries[index].values)
            if header.end_offset - header.base_offset != records:
                raise self.broken(
                    f"entry {index} of {story.where}, of kind {EntryKind(header.kind).name}, has "
                    f"{records} records and ends at {header.end_offset}"
                )
