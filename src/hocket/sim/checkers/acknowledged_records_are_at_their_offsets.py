"""O2: whoever was told that a record is stored at an offset finds it there, with its bytes.

When the acknowledgement comes, the record has been committed. At the end the leader is asked for
everything that retention has left, by way of its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.checker import Checker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class AcknowledgedRecordsAreAtTheirOffsets(Checker):
    name = "acknowledged_records_are_at_their_offsets"
    sentence = "Every acknowledged record is committed, at its offset and with its bytes."
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._read = 0

    def after_event(self) -> None:
        ledger = self._cluster.workload.ledger
        acks, self._read = ledger.acks[self._read :], len(ledger.acks)
        for ack in acks:
            story = self._cluster.copies.story_of(ack.place)
            if story is None:
                continue  # it has one replica
            self.seen += 1
            log = ledger.logs[ack.place]
            for offset in range(ack.start, ack.end):
                if story.values.get(offset) != log[offset]:
                    raise self.broken(
                        f"{ack.by} was told that {log[offset]!r} is at {offset} of {story.where}, "
                        f"and {story.values.get(offset)!r} is committed there"
                    )

    def at_end(self) -> None:
        self.after_event()
