"""What a producer has for one partition: the records that gather, and the batches cut from them.

Any thread adds records, without a lock. That is safe by three rules, and by the GIL, which makes
one call into a list one step:

Rule 1: the list of records is never replaced. Senders append; whoever cuts a batch copies the first
n records and then deletes the first n. So a record that comes in between stays for the next batch.
Rule 2: a sender appends FIRST and looks at `awake` AFTERWARDS; if it is false, the sender has
somebody look at the gathering. Whoever stops looking clears `awake` FIRST and looks at the records
AFTERWARDS. One of the two therefore sees the other, and no record is left lying.
Rule 3: `room` and `turn` are hints. Two senders at once may both subtract from the same number, and
a batch becomes a little larger; everything exact is decided when the batch is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from hocket.client_core.producing.outgoing import Outgoing, Stamp
from hocket.client_core.producing.records import Record
from hocket.errors import HocketError


class Pushes(Protocol):
    """Who pushes the batches of a partition to its node: see `delivery`."""

    producer_id: bytes

    def stamp_of_next(self, gathering: Gathering) -> Stamp: ...

    def pump(self, gathering: Gathering) -> None:
        """Push what may be pushed now."""

    def gave_up(self, gathering: Gathering, batch: Outgoing, *, waits: bool) -> HocketError:
        """The batch could not be delivered in time: why. `waits`: nothing of it is on its way."""

    def ask(self) -> None:
        """Learn what is stored, or get a new id."""


class Gathering:
    """The records for one partition that gather, and the queue of its batches on their way."""

    __slots__ = (
        "awake", "begun_us", "items", "mixed", "partition", "paused", "pusher", "queue", "room",
        "sent", "start", "turn", "unnumbered",
    )  # fmt: skip

    pusher: Pushes  # who pushes its batches; from the moment that the partition is known

    def __init__(self, partition: int, room: int, start: int = 0) -> None:
        self.partition = partition
        self.items: list[bytes | Record] = []
        self.room = room  # bytes that still fit into the batch, beside those of `turn`
        self.turn = min(0, room)  # bytes of records without a key that may follow in this turn
        self.awake = False
        self.mixed = False  # the last batch had more than values; the next one probably has too
        self.begun_us = 0
        self.queue: deque[Outgoing] = deque()  # sequences rise along it
        self.sent = 0  # how many batches at the head of `queue` were pushed on the current handle
        self.start = start  # every batch with a smaller sequence is acknowledged, or in `queue`
        self.paused = False  # the broker has refused a batch for the moment
        self.unnumbered = False  # its pusher has another id than its sequences are of

    def close(self) -> None:
        """Take nothing more: whoever adds a record from now on has to ask, and is told."""
        self.room = self.turn = -1
        self.awake = False

    def count(self) -> int:
        """How many records it has that are not acknowledged."""
        return len(self.items) + sum(batch.count for batch in self.queue)

    @property
    def next_sequence(self) -> int:
        """The next batch's sequence; derived from the queue, so that the two always agree."""
        return max(self.start, self.queue[-1].sequence + 1) if self.queue else self.start

    def agrees(self, expected: int) -> bool:
        """Can the broker, which expects this sequence next, have seen what we think it has?"""
        first = self.queue[0].sequence if self.queue else self.start
        return first <= expected <= self.next_sequence

    def renumber(self, start: int) -> None:
        self.start = start
        self.unnumbered = False
        for sequence, batch in enumerate(self.queue, start):
            batch.sequence = sequence

    # These take batches out of the queue one by one, as each is reported, so that an interrupt can
    # part no more than one batch from its report.

    def take_acked(self, first: int, last: int) -> Iterator[Outgoing]:
        """Take the batches with the sequences from `first` to `last` out of the queue."""
        for batch in [each for each in self.queue if first <= each.sequence <= last]:
            self.sent -= self.queue.index(batch) < self.sent
            self.queue.remove(batch)
            self.start = max(self.start, batch.sequence + 1)
            yield batch

    def take_refused(self, expected: int) -> Iterator[Outgoing]:
        """Take what was refused for good, and is not stored, out of the queue.

        The broker expects the sequence `expected` next: what lies before it is stored, all else is
        not.
        """
        for batch in list(self.queue):
            if batch.sequence < expected:
                batch.refusal = None
            elif batch.refusal is None:
                batch.exposed = False
            else:
                self.queue.remove(batch)
                yield batch

    def take_exposed(self) -> Iterator[Outgoing]:
        """Take what the broker may have stored out of the queue."""
        for batch in [each for each in self.queue if each.exposed]:
            self.queue.remove(batch)
            yield batch

    def take_expired(self, now_us: int) -> Iterator[Outgoing]:
        """Take what could not be delivered in time off the head of the queue."""
        while self.queue and self.queue[0].expires_us <= now_us:
            batch = self.queue.popleft()
            self.sent = max(0, self.sent - 1)
            yield batch

    def take(self) -> list[bytes | Record]:
        """The records that have gathered; `drop` then removes them."""
        return self.items[:]

    def drop(self, count: int) -> None:
        del self.items[:count]

    def take_back(self, record: bytes | Record) -> bool:
        """Remove this very record, if it is not part of a batch yet."""
        for at in reversed(range(len(self.items))):  # others only append, behind what we look at
            if self.items[at] is record:
                del self.items[at]
                return True
        return False
