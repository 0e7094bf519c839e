"""T: all records of a committed transaction are in all its partitions, once; of any other none is.

Records of transactions name their attempt, so that what the copies of the partitions have committed
is enough to tell. Transactions of one id come in the order of their numbers in each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hocket.sim.checkers.copies_checker import CopiesChecker
from hocket.sim.transactors import PARTITIONS, TOPIC, Attempt

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy


class Key(NamedTuple):
    transaction: str
    number: int
    serial: int


class TransactionsAreWholeOrAbsent(CopiesChecker):
    name = "transactions_are_whole_or_absent"
    sentence = "A transaction that is committed is whole, once and in order; any other is absent."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._found: dict[tuple[Key, int], list[bytes]] = {}  # by attempt and partition
        self._last: dict[tuple[str, int], int] = {}  # the last number by id and partition
        self._told: dict[str, int] = {}  # by id: how many of its attempts were looked at

    def look(self, copy: Copy) -> None:
        story = copy.story
        if story.topic != TOPIC:
            return
        for index in story.new:
            for value in story.entries[index].values:
                self._see(story.partition, value)

    def _see(self, partition: int, value: bytes) -> None:
        self.seen += 1
        transaction, number, serial, sent_to, _each = value.decode().split("/")
        key = Key(transaction, int(number), int(serial))
        found = self._found.setdefault((key, partition), [])
        if value in found:
            raise self.broken(f"{value!r} is twice in partition {partition}")
        if int(sent_to) != partition:
            raise self.broken(f"{value!r} is in partition {partition}")
        found.append(value)
        last = self._last.get((transaction, partition), 0)
        if key.number < last:
            raise self.broken(f"{value!r} is behind number {last} in partition {partition}")
        self._last[transaction, partition] = key.number

    def after_event(self) -> None:
        super().after_event()
        self._check_told()

    def _check_told(self) -> None:
        """Who is told that a transaction is committed can read all of it."""
        for transactor in self._cluster.workload.transactors:
            at = self._told.setdefault(transactor.transaction, 0)
            if at < len(transactor.attempts) and transactor.attempts[at].told:
                self._check(transactor.attempts[at])
                self._told[transactor.transaction] += 1

    def _check(self, attempt: Attempt) -> None:
        key = Key(attempt.transaction, attempt.number, attempt.serial)
        found = [self._found.get((key, each), []) for each in range(PARTITIONS)]
        whole = [attempt.values[each] for each in range(PARTITIONS)]
        if attempt.told == "committed" and found != whole:
            raise self.broken(f"{attempt.name} is committed, and there is {found}")
        if attempt.told and attempt.told != "committed" and any(found):
            raise self.broken(f"{attempt.name} is {attempt.told}, and there is {found}")
        if not attempt.told and found != whole and any(found):
            raise self.broken(f"{attempt.name} is torn: there is {found}")

    def at_end(self) -> None:
        for transactor in self._cluster.workload.transactors:
            for attempt in transactor.attempts:
                self._check(attempt)
