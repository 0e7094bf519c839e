"""Reads a partition as a consumer does, past damage, and what damage is named in which words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from hocket import frames
from hocket.errors import CorruptData
from hocket.frames import packed
from hocket.wire import batch as batches
from tests.support.damage.life import Talk

CREDIT = 1 << 30
ENDLESS = 1 << 62
_RANGE = re.compile(r"offsets (\d+) to (\d+)")
_TAIL = re.compile(r"what followed offset (\d+)")
_POINT = re.compile(r"entries without records at offset (\d+)")


class Record(NamedTuple):
    value: bytes
    key: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Named:
    """Damage, as somebody was told of it."""

    ranges: set[tuple[int, int]] = field(default_factory=set)  # of offsets, half-open
    points: set[int] = field(default_factory=set)  # offsets at which entries without records were

    @staticmethod
    def of(texts: Iterable[str]) -> Named:
        named = Named()
        for text in texts:
            named.ranges |= {(int(a), int(b) + 1) for a, b in _RANGE.findall(text)}
            named.ranges |= {(int(a), ENDLESS) for a in _TAIL.findall(text)}
            named.points |= set(map(int, _POINT.findall(text)))
        return named

    def __bool__(self) -> bool:
        return bool(self.ranges or self.points)

    def covers(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.ranges)

    def behind(self, offset: int) -> int | None:
        """Where whole records may begin again, behind the damage met from this offset on.

        The damage may begin behind the offset: losses that were accepted are skipped before it.
        """
        return min((end for _, end in self.ranges if end > offset), default=None)


@dataclass
class Reading:
    records: dict[int, Record] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # what the reader was told
    stopped_at: int | None = None  # it stopped short of the end, and was not told why


def read(talk: Talk, topic: str, partition: int, start: int, end: int) -> Reading:
    """Everything in [start, end) that can be read."""
    reading = Reading()
    offset = start
    while offset < end:
        behind = _read_on(talk, topic, partition, offset, end, reading)
        if behind is None or behind <= offset:
            break
        offset = behind
    return reading


def _read_on(
    talk: Talk, topic: str, partition: int, offset: int, end: int, reading: Reading
) -> int | None:
    """Read up to the end, or to damage. Returns where to go on; None: nowhere."""
    opened = talk.ask(
        frames.OpenSubscription,
        topic,
        positions=packed((partition, offset)),
        partitions=packed((partition,)),
        credit_bytes=CREDIT,
    )
    if isinstance(opened, frames.Failure):
        reading.errors.append(f"{opened.code}: {opened.message}")
        return Named.of([opened.message]).behind(offset)
    handle = opened.handle
    seen = 0
    over: list[frames.HandleEnded] = []

    def is_over() -> bool:
        nonlocal seen, offset
        while seen < len(talk.heard):
            frame, payload = talk.heard[seen]
            seen += 1
            if isinstance(frame, frames.Deliver) and frame.handle == handle:
                offset = _take(reading, frame.offset, payload)
            elif isinstance(frame, frames.Moved) and frame.handle == handle:
                offset = frame.offset
            elif isinstance(frame, frames.HandleEnded) and frame.handle == handle:
                over.append(frame)
        return offset >= end or bool(over)

    whole = talk.wait(is_over)
    talk.heard.clear()
    if not over:
        talk.ask(frames.CloseHandle, handle)
        if not whole:
            reading.stopped_at = offset
        return None
    reading.errors.append(f"{over[0].code}: {over[0].message}")
    if over[0].code != CorruptData.code:
        return None
    return Named.of([over[0].message]).behind(offset)


def _take(reading: Reading, offset: int, payload: bytes) -> int:
    """The records from `offset` on of some batches. Returns the offset behind them."""
    for position, header in batches.iterate_entries(payload):
        records = _opened(payload[position : position + header.size])
        for at, record in enumerate(records, header.base_offset):
            if at >= offset:
                reading.records[at] = record
        offset = header.end_offset
    return offset


@lru_cache(maxsize=10_000)  # stores that are damaged in one place are the same in all others
def _opened(entry: bytes) -> tuple[Record, ...]:
    batch = batches.parse(entry)
    rows = zip(batch.values(), batch.keys(), batch.timestamps(), batch.headers(), strict=True)
    return tuple(
        Record(value, key, timestamp, tuple(headers.items()))
        for value, key, timestamp, headers in rows
    )
