"""A partition with a log that only remembers: what a driver and a disk would do, in a few lines.

The log is the list of Appends. A crash keeps a prefix of it; recovery is a snapshot, if there was
one, and a replay of what stands behind it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

from hocket.core.origin import Origin
from hocket.core.partition.events import (
    Append,
    Batch,
    Effect,
    Event,
    LogDurable,
    Lost,
    Produce,
    Replayed,
    Staged,
    StagesMoved,
    TurnEnded,
)
from hocket.core.partition.partition import Partition

ALICE = b"alice".ljust(16, b".")
BOB = b"bob".ljust(16, b".")


def batch(
    producer_id: bytes = ALICE,
    sequence: int = 0,
    *,
    epoch: int = 1,
    count: int = 1,
    timestamp: int = 0,
    body: Any = None,
    crc: int | None = None,
) -> Batch:
    return Batch(producer_id, epoch, sequence, count, timestamp, body, crc)


def origin(request: int = 0, *, connection: int = 1, handle: int = 0) -> Origin:
    return Origin(connection, handle, request)


def replayed(append: Append) -> Replayed:
    """The entry as it is read back: a batch has lost its body, which nobody needs then."""
    count = append.batch.count if append.batch and not append.stage else 0
    staged = None
    if append.stage:
        assert append.batch is not None
        size, crc = append.batch.body  # of a staged batch, which the entry holds
        place = (append.index, append.base_offset, size, append.batch.count, crc)
        staged = (append.stage, Staged(*place))
    return Replayed(
        kind=append.kind,
        index=append.index,
        end_offset=append.base_offset + count,
        batch=append.batch and replace(append.batch, body=None),
        body=append.body,
        base_offset=append.base_offset,
        staged=staged,
    )


@dataclass(frozen=True)
class Snapshot:
    index: int = 0
    state: bytes = b""


def recovered(
    log: list[Append],
    snapshot: Snapshot | None = None,
    *,
    lost: Container[int] = (),
    log_start: int = 0,
    **options: Any,
) -> Partition:
    """A new partition as it comes up over this log, without the entries that are lost."""
    partition = Partition("orders", 0, **options)
    snapshot = snapshot or Snapshot()
    partition.restore(snapshot.index, snapshot.state)
    for append in log[snapshot.index :]:
        event: Event = replayed(append)
        if append.index in lost:
            assert isinstance(event, Replayed)
            event = Lost(append.index + 1, event.end_offset, log_start)
        assert all(isinstance(effect, StagesMoved) for effect in partition.step(event))
    return partition


def state_of(partition: Partition) -> dict[str, Any]:
    """All that requests are judged by. When a producer was last used is only for whom to forget."""
    return {
        "start": partition.start,
        "high_watermark": partition.high_watermark,
        "end": partition.end,
        "last_index": partition.last_index,
        "applied_index": partition.applied_index,
        "producers": {
            producer_id: (state.epoch, state.next_sequence, list(state.recent))
            for producer_id, state in partition.dedupe.producers.items()
        },
        "owners": partition.dedupe.snapshot_owners(),
        "transactions": partition.stages.snapshot(),
        "leading": dict(partition.cursors.leading),
        "applied": dict(partition.cursors.applied),
    }


class Logged:
    """A partition and its log, with the rule that every driver relies on checked at each step."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.partition = Partition("orders", 0, **options)
        self.log: list[Append] = []
        self.durable_index = 0
        self.now_us = 0

    def step(self, event: Event) -> list[Effect]:
        """The effects without the Appends, which go to the log."""
        effects = self.partition.step(event)
        rest = []
        for effect in effects:
            if isinstance(effect, Append):
                self._append(effect)
            else:
                rest.append(effect)
        return rest

    def produce(
        self, batch: Batch, asker: Origin, user: str = "", refused: int | None = None
    ) -> list[Effect]:
        return self.step(Produce(asker, batch, self.now_us, user, refused))

    def durable(self, index: int | None = None) -> list[Effect]:
        self.durable_index = len(self.log) if index is None else index
        return self.step(LogDurable(self.durable_index))

    def settle(self) -> list[Effect]:
        """End the turn and make everything durable."""
        return [*self.step(TurnEnded()), *self.durable()]

    def snapshot(self) -> Snapshot:
        return Snapshot(*self.partition.snapshot())

    def crash(self, through: int, snapshot: Snapshot | None = None) -> None:
        """Of the log only the entries up to `through` have survived."""
        assert self.durable_index <= through <= len(self.log)
        del self.log[through:]
        self.partition = recovered(self.log, snapshot, **self.options)
        self.durable_index = through

    def _append(self, append: Append) -> None:
        assert append.index == len(self.log) + 1
        assert append.base_offset == self.end_of_log()
        self.log.append(append)

    def end_of_log(self, index: int | None = None) -> int:
        """Where the next record comes behind this entry, counted without trust in the partition."""
        entries = self.log[: len(self.log) if index is None else index]
        return sum(entry.batch.count for entry in entries if entry.batch and not entry.stage)
