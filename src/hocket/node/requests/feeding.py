"""What the relays of a node are asked for, and tell, about consumers of popular partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hocket.core.ring.contact import Contact
from hocket.node.running.feeds import Relaying
from hocket.node.wiring import Wiring


class Feeding:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._telling: set[int] = set()  # groups that were popular at the last look

    def by(self, relays: Relaying, nodes: Callable[[], Sequence[Contact]]) -> None:
        """Have these relays serve the consumers of popular partitions, at all of these nodes."""
        self._wiring.feeds.relays = relays
        self._wiring.crowds.nodes = nodes

    def tick(self, now_us: int) -> None:
        self._wiring.deliveries.end_misplaced(now_us)
        self._tell_commits()
        self._wiring.feeds.tick(now_us)

    def _tell_commits(self) -> None:
        """Other replicas hand on what is committed, too: those of a popular partition are told at
        once, and not with the next beat."""
        popular = self._wiring.crowds.popular()
        for group in popular ^ self._telling:
            hosted = self._wiring.partitions.get(group)
            if hosted is not None and hosted.copy is not None:
                hosted.copy.tells_commits = group in popular
        self._telling = popular

    def stop(self, group: int) -> None:
        """This partition, which cannot be read, is not handed on to others any more."""
        self._wiring.deliveries.unfeed(group)

    def served(self, group: int) -> tuple[int, int] | None:
        """Of a partition that this node leads: how many consumers with an own index, or none, it
        serves itself, and how many bytes they were given."""
        hosted = self._wiring.partitions.get(group)
        return None if hosted is None else (len(hosted.subscribers), hosted.given_bytes)
