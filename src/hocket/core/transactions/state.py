"""Where a transaction stands with its decider, and how it is said that it cannot go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.core.origin import Origin
from hocket.core.transactions.participants import Member
from hocket.errors import Busy, TransactionAborted, TransactionConflict


@dataclass(slots=True, eq=False)
class Decided:
    """The last commit of an id. It has members until it is, durably, applied everywhere."""

    number: int
    index: int
    records: dict[str, int]  # by topic
    members: tuple[Member, ...]
    touched_us: int = 0
    unapplied: dict[int, None] = field(default_factory=dict)  # groups that have not answered
    told_us: int = 0
    askers: list[Origin] = field(default_factory=list)
    aborted: bool = False  # by an older version, for which that used up the number

    @property
    def fate(self) -> str:
        return "aborted" if self.aborted else "committed"


@dataclass(slots=True, eq=False)
class Attempt:
    """A commit that is not decided yet. From `deciding` on only its own log is waited for."""

    number: int
    members: tuple[Member, ...]
    attempt: int
    askers: list[Origin]
    begun_us: int
    told_us: int
    unverified: dict[int, None]
    deciding: bool = False


@dataclass(slots=True, eq=False)
class Abort:
    """One that is appended, and not yet durable."""

    transaction: str
    producers: frozenset[bytes]
    askers: list[Origin]
    losers: list[Origin]  # had asked for the contrary


def busy(transaction: str, number: int) -> Busy:
    return Busy(f"number {number} of transaction {transaction!r} is not done yet; try again")


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
