"""Dedupe against the log itself: the model looks every answer up in the list of all batches."""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hocket.core.partition import dedupe as module
from hocket.core.partition.dedupe import (
    NEW,
    Dedupe,
    Differs,
    Duplicate,
    Forgotten,
    Gap,
    Remembered,
    Stale,
    TooOld,
    Verdict,
)
from tests.support.threads import LONG

WINDOW = 3  # batches a producer has in flight, and Dedupe remembers; few, so that it often forgets
PRODUCERS = [bytes([number]) * 16 for number in (1, 2, 3)]
producers = st.sampled_from(PRODUCERS)


class Entry(NamedTuple):
    producer_id: bytes
    epoch: int
    sequence: int
    base_offset: int
    crc: int


class DedupeAgainstLog(RuleBasedStateMachine):
    """`log[i]` is entry i + 1; the first `committed` of them survive whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self._usual, module.REMEMBERED = module.REMEMBERED, WINDOW
        self.dedupe = Dedupe()
        self.log: list[Entry] = []
        self.committed = 0
        self.newest_sent: dict[tuple[bytes, int], int] = {}
        self.snapshots: list[tuple[int, str]] = [(0, "{}")]

    def teardown(self) -> None:
        module.REMEMBERED = self._usual

    # --- the model -------------------------------------------------------------------------------

    def of(self, producer_id: bytes) -> list[tuple[int, Entry]]:
        return [
            (number, entry)
            for number, entry in enumerate(self.log, 1)
            if entry.producer_id == producer_id
        ]

    def expected(self, producer_id: bytes, epoch: int, sequence: int, crc: int) -> Verdict:
        own = self.of(producer_id)
        if not own:
            return Forgotten() if sequence else NEW
        newest = own[-1][1].epoch
        if epoch < newest:
            return Stale(newest)
        same = {entry.sequence: (number, entry) for number, entry in own if entry.epoch == epoch}
        if sequence in same:
            number, entry = same[sequence]
            return Duplicate(entry.base_offset, number) if crc == entry.crc else Differs()
        return NEW if sequence == len(same) else Gap(len(same))

    def check(self, producer_id: bytes, epoch: int, sequence: int, crc: int) -> Verdict:
        verdict = self.dedupe.judge(producer_id, epoch, sequence, crc)
        expected = self.expected(producer_id, epoch, sequence, crc)
        newest_sent = self.newest_sent.get((producer_id, epoch), 0)
        if isinstance(expected, Duplicate | Differs) and sequence <= newest_sent - WINDOW:
            # It cannot be in flight any more, so it may be forgotten.
            assert verdict in (expected, TooOld())
        else:
            assert verdict == expected, (producer_id, epoch, sequence)
        return verdict

    def in_flight(self, producer_id: bytes, epoch: int) -> int:
        return sum(
            number > self.committed and entry.epoch == epoch
            for number, entry in self.of(producer_id)
        )

    # --- what happens ----------------------------------------------------------------------------

    @rule(
        producer_id=producers,
        newer=st.sampled_from([0, 0, 0, 0, 1, -1]),
        off=st.integers(-4, 2),
        crc=st.integers(0, 1),
    )
    def send(self, producer_id: bytes, newer: int, off: int, crc: int) -> None:
        epoch = max(1, self.dedupe.epoch_of(producer_id) + newer)
        sequence = max(0, self.dedupe.next_sequence(producer_id, epoch) + off)
        if self.check(producer_id, epoch, sequence, crc) == NEW:
            self.append(producer_id, epoch, sequence, crc)

    @rule(producer_id=producers, count=st.integers(1, 2 * WINDOW))
    def stream(self, producer_id: bytes, count: int) -> None:
        epoch = max(1, self.dedupe.epoch_of(producer_id))
        for _ in range(count):
            sequence = self.dedupe.next_sequence(producer_id, epoch)
            assert self.check(producer_id, epoch, sequence, 0) == NEW
            self.append(producer_id, epoch, sequence, 0)

    def append(self, producer_id: bytes, epoch: int, sequence: int, crc: int) -> None:
        if self.in_flight(producer_id, epoch) == WINDOW:
            return
        entry = Entry(producer_id, epoch, sequence, 10 * len(self.log), crc)
        self.log.append(entry)
        self.feed(self.dedupe, len(self.log))
        newest = self.newest_sent.get((producer_id, epoch), 0)
        self.newest_sent[producer_id, epoch] = max(newest, sequence)

    def feed(self, dedupe: Dedupe, number: int) -> None:
        entry = self.log[number - 1]
        batch = Remembered(entry.sequence, entry.base_offset, number, entry.crc)
        dedupe.appended(entry.producer_id, entry.epoch, batch, number)

    @rule(count=st.integers(1, 6))
    def commit(self, count: int) -> None:
        self.committed = min(len(self.log), self.committed + count)

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append((self.committed, json.dumps(self.dedupe.snapshot(self.committed))))

    @rule()
    def step_down(self) -> None:
        """A leader forgets what it had not committed; its successor may send anything instead."""
        self.dedupe.rewind(self.committed)
        del self.log[self.committed :]

    @rule(which=st.integers(0, 5), survivors=st.integers(0, 4))
    def crash(self, which: int, survivors: int) -> None:
        """Come up from any snapshot ever taken, with more of the log than was known to be safe."""
        self.committed = min(len(self.log), self.committed + survivors)
        del self.log[self.committed :]
        index, taken = self.snapshots[-1 - which % len(self.snapshots)]
        self.dedupe = Dedupe()
        self.dedupe.restore(json.loads(taken))
        for number in range(index + 1, len(self.log) + 1):
            self.feed(self.dedupe, number)

    # --- what is always so -----------------------------------------------------------------------

    @invariant()
    def nothing_stands_twice_and_no_sequence_is_missing(self) -> None:
        count: dict[tuple[bytes, int], int] = {}
        for entry in self.log:
            expected = count.get((entry.producer_id, entry.epoch), 0)
            assert entry.sequence == expected
            count[entry.producer_id, entry.epoch] = expected + 1

    @invariant()
    def every_retry_is_known(self) -> None:
        for entry in self.log:
            self.check(entry.producer_id, entry.epoch, entry.sequence, entry.crc)


TestDedupeAgainstLog = DedupeAgainstLog.TestCase
TestDedupeAgainstLog.settings = settings(
    max_examples=2_000 if LONG else 50, stateful_step_count=40, report_multiple_bugs=False
)
