"""A consumer of a shared index as the dispatcher knows it: its credit, and what is read for it.

What a consumer was sent that `tells` how far it has handed messages out stands in `waiting` until
it has told: see `core.sharing.handing`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hocket.core.sharing.ranges import Range, clipped


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
    # Of partitions where it was before: what it had when a link of it broke, and had lost when it
    # came back.
    lost: dict[int, list[Range]] = field(default_factory=dict)
    tells: bool = False  # how far it has handed messages out
    deliveries: int = 0  # how many Sends there were for it
    # By partition: what it was sent and has not told to be handed out, with the Send's number. Some
    # of it may be settled.
    waiting: dict[int, deque[tuple[int, list[Range]]]] = field(default_factory=dict)
    waiting_max: int = 0  # more Sends that wait are looked through
    turn: int = -1  # the partition of which it hands out next; -1: nobody knows
    is_next: tuple[int, int] | None = None  # partition and offset of what it hands out next

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

    def forget(self, partition: int) -> None:
        """Another node leads this partition from now on."""
        if partition in self.wanted:
            self.wanted.remove(partition)
            self.turns.remove(partition)
        self.waiting.pop(partition, None)
        self.lost.pop(partition, None)
        if self.is_next is not None and self.is_next[0] == partition:
            self.is_next = None

    def begin(self, fetch: int, fetching: Fetching) -> None:
        self.fetching[fetching.partition] = fetch
        self.bytes_under_way += fetching.bytes_max
        self.messages_under_way += fetching.messages
        self.served = fetch

    def end(self, fetching: Fetching) -> None:
        del self.fetching[fetching.partition]
        self.bytes_under_way -= fetching.bytes_max
        self.messages_under_way -= fetching.messages

    def passed(self, partition: int, send: int, offset: int) -> list[Range]:
        """It has handed out what comes before this offset of this Send: these, as far as known."""
        waiting = self.waiting.get(partition, deque())
        found: list[Range] = []
        while waiting and waiting[0][0] <= send:
            number, runs = waiting.popleft()
            if number == send:
                found += clipped(runs, 0, offset)
                left = clipped(runs, offset, runs[-1][1])
                if left:
                    waiting.appendleft((number, left))
                break
            found += runs
        return found

    def in_order(self) -> list[int]:
        """The partitions of which messages may wait, in the order in which it turns to them."""
        partitions = [partition for partition, waiting in self.waiting.items() if waiting]
        partitions.sort(key=lambda each: (each != self.turn, self.waiting[each][0][0]))
        return partitions
