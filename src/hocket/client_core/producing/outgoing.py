"""A batch on its way to the broker: how the broker knows it, and what became of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from crc32c import crc32c

from hocket.errors import HocketError
from hocket.model import Position
from hocket.wire.batch import NO_PRODUCER, PRELUDE
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header

NO_OFFSET = -1  # of a delayed message, which gets its offset when it is due


class Positions(NamedTuple):
    """The offsets of the records of one batch: from `start` up to, and without, `end`.

    Delayed messages have no offsets yet. There `start` and `end` count the delayed messages of the
    partition.
    """

    topic: str
    partition: int
    start: int
    end: int
    delayed: bool = False

    def position(self, number: int) -> Position:
        """The position of record `number` of the batch, counted from 0."""
        if self.delayed:
            return Position(self.topic, self.partition, NO_OFFSET)
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
        "count", "doubtful", "entry", "expires_us", "exposed", "pushes", "refusal", "sequence",
        "serial", "stamp", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        serial: int,
        entry: bytes,
        count: int,
        stamp: Stamp,
        waiters: list[tuple[int, Any]],
        expires_us: int,
    ) -> None:
        self.serial = serial  # its number among all batches of the producer, as they were cut
        self.entry = entry
        self.count = count
        self.stamp = stamp  # what stands in the entry; `restamp` replaces it when it is outdated
        self.sequence = stamp.sequence
        self.waiters = waiters  # (number of a record in the batch, what its sender waits with)
        self.expires_us = expires_us
        self.exposed = False  # it was pushed, so the broker may have stored it
        self.pushes = 0  # how often it was, under its stamp
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
            self.pushes = 0

    def take_back(self) -> None:
        """It is known not to be stored, so it may be pushed under another id."""
        self.exposed = self.doubtful = False
        self.refusal = None


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
