"""What the codec makes of a message is the message again: no field is lost, none is changed.

The links send a share of all messages through the real encoding and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class EncodedMessagesComeBackAsTheyWere(Checker):
    name = "encoded_messages_come_back_as_they_were"
    sentence = "A message that is encoded and decoded is the message that was sent."
    looks_at = "ring"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._links = cluster.links

    def after_event(self) -> None:
        self.seen = self._links.encoded
        if self._links.miscoded:
            raise self.broken(self._links.miscoded)

    def at_end(self) -> None:
        self.after_event()
