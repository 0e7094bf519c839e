"""O3: a producer that did not hear of an acknowledgement sends its batch again, to another leader
perhaps; it is stored once all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy


class NoBatchIsStoredTwice(CopiesChecker):
    name = "no_batch_is_stored_twice"
    sentence = "No batch of a producer is stored twice."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._stored: dict[tuple[int, tuple[bytes, int, int]], int] = {}  # at which index

    def look(self, copy: Copy) -> None:
        story = copy.story
        for index in story.new:
            producer = story.entries[index].producer
            if producer is None or not any(producer[0]):
                continue
            self.seen += 1
            first = self._stored.setdefault((story.group, producer), index)
            if first != index:
                raise self.broken(
                    f"batch {producer[2]} of producer {producer[0].hex()[:8]} is entry {first} of "
                    f"{story.where}, and entry {index}"
                )
