"""O5: neither at one copy while it lives, nor from one who serves a partition to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy


class TheHighWatermarkNeverGoesBack(CopiesChecker):
    name = "the_high_watermark_never_goes_back"
    sentence = "What could be read of a partition once can be read by whoever serves it next."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._served: dict[int, tuple[int, int]] = {}  # by group: the term, and up to where

    def look(self, copy: Copy) -> None:
        was, story = copy.was, copy.story
        assert was is not None
        if not copy.began and copy.high_watermark < was.high_watermark:
            raise self.broken(
                f"{copy.name} could be read up to {was.high_watermark}, and now up to "
                f"{copy.high_watermark}"
            )
        if not copy.serves:
            return
        self.seen += 1
        term, end = self._served.get(story.group, (0, 0))
        if copy.term >= term:
            if copy.high_watermark < end:
                raise self.broken(
                    f"{copy.name} serves up to {copy.high_watermark}, and in term {term} that was "
                    f"{end}"
                )
            self._served[story.group] = copy.term, copy.high_watermark
