"""What the decider keeps of a transaction, and the errors that say why it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hocket.core.origin import Origin
from hocket.core.transactions.events import Apply
from hocket.core.transactions.participants import LocatedParticipant, producers_of
from hocket.errors import Busy, TransactionAborted, TransactionConflict
from hocket.model import Participant


@dataclass(slots=True, eq=False)
class Decided:
    """The last decision on an id: a commit, or an abort that an older version has written.

    It has participants until all of them have, durably, applied it.
    """

    number: int
    index: int  # of its entry in the metadata's log: the number of the decision
    records: dict[str, int]  # topic -> how many records were committed
    participants: tuple[LocatedParticipant, ...]
    touched_us: int = 0
    unapplied: dict[int, None] = field(default_factory=dict)  # groups that have not answered
    told_us: int = 0  # when the unapplied groups were last told to apply it
    askers: list[Origin] = field(default_factory=list)
    aborted: bool = False  # by an older version, in which an abort used up the number

    @property
    def fate(self) -> str:
        return "aborted" if self.aborted else "committed"

    @property
    def waiting(self) -> list[Origin]:
        return self.askers

    def encoded(self) -> list[Any]:
        participants = [participant.encoded() for participant in self.participants]
        return [self.number, not self.aborted, self.index, self.records, participants]

    @staticmethod
    def decode(fields: list[Any]) -> Decided:
        # A version that did not write whether a decision was a commit had only commits.
        number, *committed, index, records, encoded = fields
        participants = tuple(LocatedParticipant.decode(each) for each in encoded)
        return Decided(number, index, records, participants, aborted=committed == [False])


@dataclass(slots=True, eq=False)
class PendingCommit:
    """A commit that is asked for, and not decided yet."""

    number: int
    participants: tuple[LocatedParticipant, ...]
    round: int  # of verifying: an answer from an earlier round counts for nothing
    askers: list[Origin]
    begun_us: int
    told_us: int  # when the unverified groups were last asked
    unverified: dict[int, None]  # groups that have not said that their stage is durable
    deciding: bool = False  # the decision is appended, and not yet durable

    @property
    def waiting(self) -> list[Origin]:
        return self.askers

    def names_one_of(self, producers: tuple[bytes, ...]) -> bool:
        return not set(producers).isdisjoint(producers_of(self.participants))


@dataclass(slots=True, eq=False)
class PendingAbort:
    """An abort that is appended to the log, and not yet durable."""

    transaction: str
    producers: frozenset[bytes]
    askers: list[Origin]
    losers: list[Origin]  # those who asked for the commit that this abort prevents

    @property
    def waiting(self) -> list[Origin]:
        return [*self.askers, *self.losers]


Waits = Decided | PendingCommit | PendingAbort  # what askers wait for


def apply_of(
    group: int, transaction: str, known: Decided, participants: list[Participant]
) -> Apply:
    producers = tuple((each.producer_id, each.batches) for each in participants)
    return Apply(group, transaction, known.number, known.index, producers)


def busy(transaction: str, number: int) -> Busy:
    return Busy(f"number {number} of transaction {transaction!r} is not done yet; try again")


def not_heard_of(transaction: str) -> Busy:
    return Busy(
        f"what the cluster's founder has decided of transaction {transaction!r} is not known here "
        "yet; try again"
    )


def behind(transaction: str, number: int, known: Decided) -> TransactionConflict:
    return TransactionConflict(
        f"transaction {transaction!r} number {number} comes behind number {known.number}, which is "
        f"{known.fate} already; numbers only grow"
    )


def burned(transaction: str, number: int) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {transaction!r} number {number} was aborted by an older version, which used "
        "up the number, and nothing of it is published; use a higher one"
    )


def given_up(transaction: str, number: int) -> TransactionAborted:
    return TransactionAborted(
        f"what was staged for transaction {transaction!r} number {number} was dropped, and nothing "
        "of it is published; stage it again, under the same number if you like"
    )
