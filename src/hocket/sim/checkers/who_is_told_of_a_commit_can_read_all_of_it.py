"""T, for readers: transactions are atomic and not isolated.

Their partitions show them one by one, as each of them applies the decision, so a reader may see one
part before the others. But a client is told of the commit after the last of them: from that very
event on whoever leads a partition hands out the whole part. Who led before it was committed there,
and does not know yet that another one leads, is not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hocket.model import PartitionId
from hocket.sim.checkers.checker import Checker
from hocket.sim.transactors import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Story
    from hocket.sim.transactors import Attempt


class Place(NamedTuple):
    offset: int
    term: int  # in which it was committed


class WhoIsToldOfACommitCanReadAllOfIt(Checker):
    name = "who_is_told_of_a_commit_can_read_all_of_it"
    sentence = (
        "Who is told that a transaction is committed can read all of it, everywhere, at once."
    )
    looks_at = "clients"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._told: dict[str, int] = {}  # by id: how many of its attempts were looked at
        self._read: dict[int, int] = {}  # by group: the last entry that was looked at
        self._places: dict[tuple[int, bytes], Place] = {}  # by partition and value

    def after_event(self) -> None:
        for transactor in self._cluster.workload.transactors:
            at = self._told.get(transactor.transaction, 0)
            if at < len(transactor.attempts) and transactor.attempts[at].told:
                self._told[transactor.transaction] = at + 1
                if transactor.attempts[at].told == "committed":
                    self._look(transactor.attempts[at])

    def _look(self, attempt: Attempt) -> None:
        for partition in range(PARTITIONS):
            story = self._cluster.copies.story_of(PartitionId(TOPIC, partition))
            if story is not None:
                self._read_on(story)
            for value in attempt.values[partition]:
                place = self._places.get((partition, value))
                if story is None or place is None:
                    raise self.broken(f"{attempt.name} is committed, and {value!r} is not there")
                self._look_at_leaders(story, attempt, value, place)

    def _read_on(self, story: Story) -> None:
        for index in range(self._read.get(story.group, 0) + 1, story.last + 1):
            stored, term = story.entries[index], story.committed_in[index]
            for offset, value in enumerate(stored.values, stored.header.base_offset):
                self._places[story.partition, value] = Place(offset, term)
        self._read[story.group] = story.last

    def _look_at_leaders(self, story: Story, attempt: Attempt, value: bytes, place: Place) -> None:
        for copy in story.copies.values():
            if copy.serves and copy.replica is not None and copy.term >= place.term:
                self.seen += 1
                end = copy.replica.machine.core.high_watermark  # type: ignore[attr-defined]
                if place.offset >= end:
                    raise self.broken(
                        f"{attempt.name} is committed, and {copy.name}, which leads, shows what is"
                        f" before {end}, and not {value!r} at {place.offset}"
                    )
