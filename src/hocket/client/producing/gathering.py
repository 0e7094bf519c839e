"""What a producer has for one partition: the records that gather, and the batches cut from them.

Any thread adds records, without a lock. That is safe by three rules, and by the GIL, which makes
one call into a list one step:

Rule 1: the list of records is never replaced. Senders append; whoever cuts a batch copies the first
n records and then deletes the first n. So a record that comes in between stays for the next batch.
Rule 2: a sender appends FIRST and looks at `awake` AFTERWARDS; if it is false, the sender has
somebody look at the gathering. Whoever stops looking clears `awake` FIRST and looks at the records
AFTERWARDS. One of the two therefore sees the other, and no record is left lying.
Rule 3: `room` is a hint. Two senders at once may both subtract from the same number, and a batch
becomes a little larger; everything exact is decided when the batch is cut.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from crc32c import crc32c

from hocket.client.producing.records import Record
from hocket.errors import HocketError
from hocket.model import Position
from hocket.wire.batch import NO_PRODUCER, PRELUDE
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header


class Positions(NamedTuple):
    """The offsets of the records of one batch: from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def position(self, number: int) -> Position:
        """The position of record `number` of the batch, counted from 0."""
        return Position(self.topic, self.partition, self.start + number)


Outcome = Positions | HocketError


class Stamp(NamedTuple):
    """What the broker knows a batch by, to store it once; it stands in the batch's prelude."""

    producer_id: bytes
    epoch: int
    sequence: int


class Outgoing:
    """A batch that was cut and is not acknowledged yet."""

    __slots__ = (
        "count", "doubtful", "entry", "expires_us", "exposed", "gathering", "refusal", "sequence",
        "serial", "stamp", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        gathering: Gathering,
        serial: int,
        entry: bytes,
        count: int,
        stamp: Stamp,
        waiters: list[tuple[int, Any]],
        expires_us: int,
    ) -> None:
        self.gathering = gathering
        self.serial = serial  # its number among all batches of the producer, as they were cut
        self.entry = entry
        self.count = count
        self.stamp = stamp  # what stands in the entry; `restamp` replaces it when it is outdated
        self.sequence = stamp.sequence
        self.waiters = waiters  # (number of a record in the batch, what its sender waits with)
        self.expires_us = expires_us
        self.exposed = False  # it was pushed, so the broker may have stored it
        self.doubtful = False  # it was pushed on a link that broke
        # Why the broker refused it for good; counts once we learn that it was not stored before.
        self.refusal: HocketError | None = None

    @property
    def may_be_stored(self) -> bool:
        return self.exposed and (self.doubtful or self.refusal is None)

    def restamp(self, stamp: Stamp) -> None:
        if self.stamp != stamp:
            self.entry = restamped(self.entry, stamp)
            self.stamp = stamp


class Gathering:
    __slots__ = (
        "awake", "begun_us", "items", "mixed", "partition", "paused", "queue", "room",
        "sent", "start",
    )  # fmt: skip

    def __init__(self, partition: int, room: int, start: int = 0) -> None:
        self.partition = partition
        self.items: list[bytes | Record] = []
        self.room = room
        self.awake = False
        self.mixed = False  # the last batch had more than values; the next one probably has too
        self.begun_us = 0
        self.queue: deque[Outgoing] = deque()  # sequences rise along it
        self.sent = 0  # how many batches, from the head of `queue`, the current handle was pushed
        self.start = start  # every batch with a smaller sequence is acknowledged, or in `queue`
        self.paused = False  # the broker has refused a batch for the moment

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
        for sequence, batch in enumerate(self.queue, start):
            batch.sequence = sequence

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


def restamped(entry: bytes | memoryview, stamp: Stamp) -> bytes:
    """The same batch with another stamp: another producer's, or with another sequence."""
    header = unpack_header(entry)
    producer_id, epoch, sequence = stamp
    _, _, raw_length, _, reserved = PRELUDE.unpack_from(entry, HEADER_BYTES)
    prelude = PRELUDE.pack(producer_id or NO_PRODUCER, epoch, raw_length, sequence, reserved)
    rest = memoryview(entry)[HEADER_BYTES + PRELUDE.size :]
    body_crc = crc32c(rest[: header.length - PRELUDE.size], crc32c(prelude))
    new_header = pack_header(
        length=header.length,
        kind=header.kind,
        codec=header.codec,
        flags=header.flags,
        count=header.count,
        body_crc=body_crc,
        max_timestamp=header.max_timestamp,
    )
    return b"".join((new_header, prelude, rest))
