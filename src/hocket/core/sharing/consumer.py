"""A consumer of a shared index as the dispatcher knows it: its credit, and what is read for it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hocket.core.sharing.ranges import Range


@dataclass(slots=True)
class Fetching:
    """A read under way. Invariant: its runs are RESERVED, except below the log start."""

    consumer: int
    partition: int
    runs: list[Range]
    bytes_max: int
    messages: int


@dataclass(slots=True)
class Consumer:
    number: int
    identity: bytes
    turns: deque[int]  # its partitions; the first one has its turn next
    wanted: set[int]  # the same partitions
    credit_bytes: int
    credit_messages: int
    life_us: int  # the time of its last sign of life
    served: int = 0  # the number of the last fetch for it
    stalled: bool = False
    sated_until_us: int = 0  # it has released messages: no more before then, or before new credit
    bytes_under_way: int = 0  # that reads under way may return: part of the credit is theirs
    messages_under_way: int = 0
    fetching: dict[int, int] = field(default_factory=dict)  # partition -> fetch
    # By partition: what it had when a link of it broke, and had lost when it came back. None: it
    # was not here before.
    lost: dict[int, list[Range]] | None = None

    @property
    def bytes_left(self) -> int:
        return self.credit_bytes - self.bytes_under_way

    @property
    def messages_left(self) -> int:
        return self.credit_messages - self.messages_under_way

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The consumer with the lowest rank goes first."""
        return self.stalled, self.served, self.number

    def begin(self, fetch: int, fetching: Fetching) -> None:
        self.fetching[fetching.partition] = fetch
        self.bytes_under_way += fetching.bytes_max
        self.messages_under_way += fetching.messages
        self.served = fetch

    def end(self, fetching: Fetching) -> None:
        del self.fetching[fetching.partition]
        self.bytes_under_way -= fetching.bytes_max
        self.messages_under_way -= fetching.messages
