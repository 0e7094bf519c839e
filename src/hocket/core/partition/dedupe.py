"""Which batches of which producers are in a partition's log already, so that a retry is harmless.

Rule 1: no (producer, epoch, sequence) stands twice in one log.
Rule 2: sequences of one producer and epoch have no gaps: 0, 1, 2, … in log order.

A batch is judged against everything appended, committed or not. Each remembered batch carries the
index of its entry, so that a snapshot can leave out what is not committed yet, and a leader that
steps down can forget what it had not committed (`rewind`).

Only the newest batches of a producer are remembered one by one. That is enough: a producer has no
more in flight than are remembered, and only a batch in flight is sent again. An older sequence is
known to be a duplicate all the same; only its offset is forgotten.

Damage to the log breaks rule 2: batches of a producer are lost, and later ones are there. Such a
producer is *holed*. Nobody can tell it which of its batches are stored, so it has to go: whoever
uses it opens another one, and hears of what was in flight that its outcome is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

REMEMBERED = 32  # batches per producer; not less than Limits.in_flight_max
NO_PRODUCER = bytes(16)  # the id of a batch without a producer: it is never a duplicate
UNKNOWN_OFFSET = 2**64 - 1  # of a duplicate so old that its offset is forgotten


class Remembered(NamedTuple):
    sequence: int
    base_offset: int
    entry: int  # the index of its entry in the log


@dataclass(slots=True)
class ProducerState:
    epoch: int
    next_sequence: int
    last_used_us: int
    recent: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    # The first one that is known: not 0 if the producer came back while it was being forgotten.
    first_sequence: int = 0
    former: ProducerState | None = None  # of the epoch before, until a snapshot has this one

    def up_to(self, entry: int) -> ProducerState | None:
        """The state as it was when this entry was the newest; None: the producer was unknown."""
        recent = deque((batch for batch in self.recent if batch.entry <= entry), REMEMBERED)
        next_sequence = self.next_sequence - (len(self.recent) - len(recent))
        if next_sequence == self.first_sequence:
            return self.former and self.former.up_to(entry)
        return ProducerState(self.epoch, next_sequence, self.last_used_us, recent)


@dataclass(slots=True)
class New:
    """The batch is the next one of its producer."""


@dataclass(slots=True)
class Duplicate:
    """The batch is in the log already."""

    base_offset: int
    entry: int  # the batch may be acknowledged once this entry is committed; 0: it long was


@dataclass(slots=True)
class Gap:
    """Batches before this one are missing."""

    expected: int


@dataclass(slots=True)
class Stale:
    """The batch is of an epoch that is fenced."""

    epoch: int  # the one that has taken over


@dataclass(slots=True)
class Forgotten:
    """The producer goes on where it left off, but nothing is known of it here."""


Verdict = New | Duplicate | Gap | Stale | Forgotten
NEW = New()


class Dedupe:
    """The producers of one partition."""

    __slots__ = ("holed", "producers")

    def __init__(self) -> None:
        self.producers: dict[bytes, ProducerState] = {}
        self.holed: dict[bytes, int] = {}  # producer -> the epoch in which batches are lost

    def judge(self, producer_id: bytes, epoch: int, sequence: int) -> Verdict:
        if producer_id == NO_PRODUCER:
            return NEW
        state = self.producers.get(producer_id)
        if state is None:
            return NEW if sequence == 0 else Forgotten()
        if epoch < state.epoch:
            return Stale(state.epoch)
        expected = state.next_sequence if epoch == state.epoch else 0
        if sequence == expected:
            return NEW
        if sequence > expected:
            return Gap(expected)
        for batch in state.recent:
            if batch.sequence == sequence:
                return Duplicate(batch.base_offset, batch.entry)
        if self.is_holed(producer_id, epoch):
            return Forgotten()
        return Duplicate(UNKNOWN_OFFSET, 0)

    def is_holed(self, producer_id: bytes, epoch: int) -> bool:
        """Batches of this producer were lost to damage, and later ones were not."""
        return self.holed.get(producer_id) == epoch

    def replayed(
        self, producer_id: bytes, epoch: int, batch: Remembered, now_us: int, *, lossy: bool
    ) -> None:
        """A batch read back from the log; `lossy`: entries before it are lost."""
        is_holed = batch.sequence > self.next_sequence(producer_id, epoch)
        if lossy and is_holed and producer_id != NO_PRODUCER:
            self.holed[producer_id] = epoch
        self.appended(producer_id, epoch, batch, now_us)

    def appended(self, producer_id: bytes, epoch: int, batch: Remembered, now_us: int) -> None:
        if producer_id == NO_PRODUCER:
            return
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self.producers[producer_id] = ProducerState(
                epoch, 0, now_us, first_sequence=batch.sequence, former=state
            )
        state.next_sequence = batch.sequence + 1
        state.last_used_us = max(state.last_used_us, now_us)
        state.recent.append(batch)

    def is_full(self, producer_id: bytes, epoch: int, committed: int) -> bool:
        """All remembered batches are uncommitted. Neither `rewind` nor `snapshot` could leave one
        out that is forgotten, so there must not be one more."""
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch or len(state.recent) < REMEMBERED:
            return False
        return state.recent[0].entry > committed

    def next_sequence(self, producer_id: bytes, epoch: int) -> int:
        state = self.producers.get(producer_id)
        return 0 if state is None or state.epoch != epoch else state.next_sequence

    def epoch_of(self, producer_id: bytes) -> int:
        state = self.producers.get(producer_id)
        return 0 if state is None else state.epoch

    def has_idle(self, before_us: int) -> bool:
        return bool(self.idle(before_us))

    def idle(self, before_us: int) -> list[bytes]:
        """The producers that were not heard of since `before_us`."""
        return [each for each, state in self.producers.items() if state.last_used_us < before_us]

    def forget(self, producer_ids: Iterable[bytes], entry: int) -> None:
        """Forget these producers, except for batches behind this entry.

        A producer with such a batch came back while the entry that forgets it was on its way.
        """
        for producer_id in producer_ids:
            state = self.producers.get(producer_id)
            if state is None:
                continue
            state.former = None
            while state.recent and state.recent[0].entry <= entry:
                state.recent.popleft()
            if state.recent:
                state.first_sequence = state.recent[0].sequence
            else:
                del self.producers[producer_id]
                self.holed.pop(producer_id, None)

    def rewind(self, entry: int) -> None:
        """Forget every batch that stands behind this entry: it was never committed."""
        for producer_id, state in list(self.producers.items()):
            known = state.up_to(entry)
            if known is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = known

    def snapshot(self, entry: int) -> dict[str, list[object]]:
        """What is known from the entries up to this one, which is committed."""
        taken: dict[str, list[object]] = {}
        for producer_id, state in self.producers.items():
            known = state.up_to(entry)
            if known is not None:
                recent = [list(batch) for batch in known.recent]
                used = known.last_used_us
                taken[producer_id.hex()] = [known.epoch, known.next_sequence, used, recent]
                if known.epoch == state.epoch:
                    state.former = None  # nobody will go back before this epoch
        return taken

    def restore(self, taken: dict[str, list[object]]) -> None:
        for producer_id, (epoch, next_sequence, last_used_us, recent) in taken.items():
            state = ProducerState(int(epoch), int(next_sequence), int(last_used_us))  # type: ignore[call-overload]
            state.recent.extend(Remembered(*batch) for batch in recent)  # type: ignore[attr-defined]
            self.producers[bytes.fromhex(producer_id)] = state
