"""A partition against the list of its entries, with crashes at every place there is.

The model knows no rules of dedupe or cursors by heart: it looks them up in the log, or in what was
answered. Requests are numbered, so that every answer can be told from every other.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hocket.core.origin import Origin
from hocket.core.partition.dedupe import REMEMBERED
from hocket.core.partition.events import (
    CURSOR,
    Acked,
    AttachIndex,
    CommitIndex,
    DeleteIndex,
    Effect,
    EndMoved,
    Event,
    ExpireProducers,
    IndexFenced,
    IndexMoved,
    LogStartMoved,
    MoveLogStart,
    Refused,
    SeekIndex,
    TurnEnded,
)
from tests.support.core.logged import Logged, Snapshot, batch, origin, recovered, state_of
from tests.support.threads import LONG

PRODUCERS = [bytes([number]) * 16 for number in (1, 2)]
IDLE_US = 50
fractions = st.sampled_from([0.0, 0.3, 0.7, 1.0])
names = st.sampled_from(["billing", "audit"])
producers = st.sampled_from(PRODUCERS)


@dataclass
class Asked:
    """A request that waits: what it was, and how long the log was when it came."""

    event: Event
    entries: int
    sequence: int = -1
    offset: int = -1  # where its batch stands, if it was stored or is a retry


class PartitionAgainstLog(RuleBasedStateMachine):
    @initialize(durability=st.sampled_from(["quorum", "quorum", "memory"]))
    def begin(self, durability: str) -> None:
        self.logged = Logged(durability=durability)
        self.waiting: dict[Origin, Asked] = {}
        self.requests = 0
        self.consumers: list[tuple[str, int]] = []  # index and epoch, as they were answered
        self.last_used: dict[bytes, int] = {}  # by the broker's clock
        self.unsure: set[bytes] = set()  # after a crash: how long they are idle is not in the log
        self.in_doubt: set[bytes] = set()  # producers that may have been forgotten
        self.pushes: Counter[tuple[Origin, int, int]] = Counter()  # that wait: sequence, offset
        self.snapshots: list[Snapshot] = [Snapshot()]
        self.seen: Counter[str] = Counter()
        self.high_watermark = 0

    # --- producing -------------------------------------------------------------------------------

    @rule(
        producer_id=producers,
        newer=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        off=st.sampled_from([0, 0, 0, 0, -1, -2, 1]),
        count=st.integers(1, 3),
        clock=st.sampled_from([0, 0, -1_000, 1_000]),
        is_push=st.booleans(),
    )
    def produce(
        self, producer_id: bytes, newer: int, off: int, count: int, clock: int, is_push: bool
    ) -> None:
        stored = self.stored(producer_id)
        newest = stored[-1].epoch if stored else 1
        epoch = max(1, newest + newer)
        same = [each for each in stored if each.epoch == epoch]
        sequence = max(0, len(same) + off)
        if sequence >= REMEMBERED:
            return  # so that nothing is forgotten for want of room, and states can be compared
        sent = batch(producer_id, sequence, epoch=epoch, count=count)
        sent.max_timestamp = self.logged.now_us + clock
        before = len(self.logged.log)
        asker, asked = self.ask(None, sequence)
        if is_push:
            del self.waiting[asker]
            asker = origin(handle=PRODUCERS.index(producer_id) + 1)
        answers = self.logged.produce(sent, asker)
        was_stored = len(self.logged.log) > before
        if was_stored:
            asked.offset = self.logged.log[-1].base_offset
            self.last_used[producer_id] = self.logged.now_us
            self.unsure.discard(producer_id)
        elif not any(isinstance(answer, Refused) for answer in answers):
            offsets = [each.base_offset for each in self.entries(producer_id, epoch, sequence)]
            asked.offset = offsets[-1]
        if producer_id not in self.in_doubt:
            if epoch < newest:
                assert self.code(answers) == "fenced"
            elif sequence > len(same):
                assert self.code(answers) == ("sequenceGap" if stored else "unknownProducer")
            else:
                assert was_stored == (sequence == len(same))
        if is_push:
            self.pushes[asker, sequence, asked.offset] += 1
        self.hear(answers)

    def stored(self, producer_id: bytes) -> list[Any]:
        return [
            entry.batch
            for entry in self.logged.log
            if entry.batch and entry.batch.producer_id == producer_id
        ]

    def entries(self, producer_id: bytes, epoch: int, sequence: int) -> list[Any]:
        wanted = (producer_id, epoch, sequence)
        return [
            entry
            for entry in self.logged.log
            if entry.batch
            and (entry.batch.producer_id, entry.batch.epoch, entry.batch.sequence) == wanted
        ]

    def code(self, answers: list[Effect]) -> str:
        (answer,) = answers
        assert isinstance(answer, Refused)
        return answer.code

    # --- indexes ---------------------------------------------------------------------------------

    @rule(name=names, fraction=fractions, hold=st.booleans())
    def attach(self, name: str, fraction: float, hold: bool) -> None:
        asker, asked = self.ask()
        asked.event = AttachIndex(asker, name, self.place(fraction), hold)
        self.hear(self.logged.step(asked.event))

    @rule(which=st.integers(0, 5), fraction=fractions)
    def commit(self, which: int, fraction: float) -> None:
        if not self.consumers:
            return
        name, epoch = self.consumers[-1 - which % len(self.consumers)]
        leading = self.logged.partition.cursors.leading.get(name)
        is_owner = leading is not None and leading.epoch == epoch
        asker, asked = self.ask()
        asked.event = CommitIndex(asker, name, epoch, self.place(fraction))
        answers = self.logged.step(asked.event)
        if is_owner:
            assert answers == []
        else:
            assert answers == [IndexFenced(asker, name)]
        self.hear(answers)

    @rule(which=st.integers(0, 5))
    def commit_too_far(self, which: int) -> None:
        if self.consumers:
            name, epoch = self.consumers[-1 - which % len(self.consumers)]
            asker, asked = self.ask()
            asked.event = CommitIndex(asker, name, epoch, self.logged.partition.high_watermark + 1)
            answers = self.logged.step(asked.event)
            assert self.code(answers) == "outOfRange"
            self.hear(answers)

    @rule(name=names, fraction=fractions)
    def seek(self, name: str, fraction: float) -> None:
        asker, asked = self.ask()
        asked.event = SeekIndex(asker, name, self.place(fraction))
        self.hear(self.logged.step(asked.event))

    @rule(name=names)
    def delete(self, name: str) -> None:
        asker, asked = self.ask()
        asked.event = DeleteIndex(asker, name)
        self.hear(self.logged.step(asked.event))

    def place(self, fraction: float) -> int:
        partition = self.logged.partition
        return partition.start + int(fraction * (partition.high_watermark - partition.start))

    # --- the log and the clock -------------------------------------------------------------------

    @rule(fraction=fractions)
    def durable(self, fraction: float) -> None:
        behind = len(self.logged.log) - self.logged.durable_index
        self.hear(self.logged.durable(self.logged.durable_index + int(fraction * behind)))

    @rule()
    def turn_ended(self) -> None:
        self.hear(self.logged.step(TurnEnded()))

    @rule(fraction=fractions)
    def move_log_start(self, fraction: float) -> None:
        self.hear(self.logged.step(MoveLogStart(self.place(fraction))))

    @rule(passed=st.sampled_from([1, 10, IDLE_US, 3 * IDLE_US]))
    def time_passes(self, passed: int) -> None:
        self.logged.now_us += passed

    @rule()
    def expire_producers(self) -> None:
        before_us = self.logged.now_us - IDLE_US
        self.hear(self.logged.step(ExpireProducers(before_us)))
        self.in_doubt |= self.unsure
        self.in_doubt |= {each for each, used_us in self.last_used.items() if used_us < before_us}

    # --- crashes ---------------------------------------------------------------------------------

    @rule()
    def take_snapshot(self) -> None:
        if self.logged.partition.applied_index <= self.logged.durable_index:
            self.snapshots.append(self.logged.snapshot())  # a log takes none that is ahead of it

    @rule(which=st.integers(0, 5), fraction=fractions)
    def crash(self, which: int, fraction: float) -> None:
        """Connections are gone, and with them whoever waited for an answer."""
        behind = len(self.logged.log) - self.logged.durable_index
        through = self.logged.durable_index + int(fraction * behind)
        self.logged.crash(through, self.snapshots[-1 - which % len(self.snapshots)])
        self.waiting.clear()
        self.consumers.clear()
        self.high_watermark = self.logged.partition.high_watermark
        self.pushes.clear()
        self.unsure.update(self.last_used)

    def teardown(self) -> None:
        if not hasattr(self, "logged"):
            return
        self.hear(self.logged.settle())
        assert not self.waiting, "somebody waits for ever"
        assert not +self.pushes, "somebody waits for ever"
        assert state_of(recovered(self.logged.log)) == state_of(self.logged.partition)
        for through in range(len(self.logged.log) + 1):
            log = self.logged.log[:through]
            plain = state_of(recovered(log))
            for snapshot in self.snapshots:
                if snapshot.index <= through:
                    assert state_of(recovered(log, snapshot)) == plain, (snapshot, through)

    # --- answers ---------------------------------------------------------------------------------

    def ask(self, event: Any = None, sequence: int = -1) -> tuple[Origin, Asked]:
        self.requests += 1
        asker = origin(self.requests)
        asked = self.waiting[asker] = Asked(event, len(self.logged.log), sequence)
        return asker, asked

    def hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.seen[type(effect).__name__] += 1
            if isinstance(effect, EndMoved):
                assert effect.end > self.high_watermark
                self.high_watermark = effect.end
            elif isinstance(effect, LogStartMoved):
                assert effect.offset == self.logged.partition.start or len(effects) > 1
            elif effect.origin.handle:
                self.push_answered(effect)
            else:
                asked = self.waiting.pop(effect.origin)  # KeyError: answered twice
                if isinstance(effect, Acked):
                    assert (effect.sequence, effect.offsets) == (asked.sequence, [asked.offset])
                    assert asked.offset < self.logged.partition.high_watermark
                elif isinstance(effect, IndexMoved):
                    self.index_moved(effect, asked)

    def push_answered(self, effect: Effect) -> None:
        if isinstance(effect, Refused):
            answered = [(effect.sequence, -1)]
        else:
            assert isinstance(effect, Acked)
            first = effect.sequence - len(effect.offsets) + 1
            answered = list(enumerate(effect.offsets, first))
            assert effect.offsets[-1] < self.logged.partition.high_watermark
        for sequence, offset in answered:
            self.pushes[effect.origin, sequence, offset] -= 1
            assert self.pushes[effect.origin, sequence, offset] >= 0, "answered twice, or wrongly"

    def index_moved(self, effect: IndexMoved, asked: Asked) -> None:
        entry = next(
            (each for each in self.logged.log[asked.entries :] if each.kind == CURSOR), None
        )
        changed = {
            name
            for each in self.logged.log
            if each.kind == CURSOR
            for name in json.loads(each.body)
        }
        if entry is None:
            assert effect.by == "delete", "answered with nothing in the log to hold it"
            assert effect.name not in changed or self.is_gone_for_good(effect.name)
        else:
            assert entry.index <= self.logged.partition.applied_index
        if effect.by in ("attach", "seek"):
            assert effect.cursor is not None
            assert all(
                effect.cursor.epoch > epoch for name, epoch in self.consumers if name == effect.name
            )
            self.consumers.append((effect.name, effect.cursor.epoch))

    def is_gone_for_good(self, name: str) -> bool:
        """Whatever part of the log survives a crash now."""
        return all(
            name not in recovered(self.logged.log[:through]).cursors.applied
            for through in range(self.logged.durable_index, len(self.logged.log) + 1)
        )

    # --- what is always so -----------------------------------------------------------------------

    @invariant()
    def only_what_is_durable_is_shown(self) -> None:
        if not hasattr(self, "logged"):
            return
        partition, logged = self.logged.partition, self.logged
        assert partition.start <= partition.high_watermark <= partition.end
        assert partition.end == logged.end_of_log()
        assert partition.high_watermark == self.high_watermark
        assert partition.high_watermark == logged.end_of_log(partition.applied_index)
        if partition.durability == "quorum":
            assert partition.applied_index == logged.durable_index
        else:
            assert partition.applied_index == len(logged.log)

    @invariant()
    def no_batch_stands_twice(self) -> None:
        if not hasattr(self, "logged"):
            return
        found = Counter(
            (entry.batch.producer_id, entry.batch.epoch, entry.batch.sequence)
            for entry in self.logged.log
            if entry.batch
        )
        assert all(
            count == 1 or producer_id in self.in_doubt
            for (producer_id, _, _), count in found.items()
        )


TestPartitionAgainstLog = PartitionAgainstLog.TestCase
TestPartitionAgainstLog.settings = settings(
    max_examples=2_000 if LONG else 50, stateful_step_count=40, report_multiple_bugs=False
)
