"""The log in which delayed messages wait: what is released, in what order, what a crash does."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings, strategies as st

from hocket.core.origin import Origin
from hocket.core.partition.due_times import DueTimes
from hocket.core.partition.events import (
    BATCH,
    Acked,
    Append,
    Batch,
    BeginLife,
    LogDurable,
    Lost,
    MovedOn,
    MoveLogStart,
    Produce,
    Release,
    Released,
    Replayed,
)
from hocket.core.partition.partition import Partition
from hocket.core.partition.waiting import WaitingPartition
from tests.support.threads import LONG

ADA = Origin(1, 2, 0)


class Log:
    """A waiting partition, and the log that its entries are in."""

    def __init__(self, durability: str = "quorum") -> None:
        self.core = WaitingPartition("t", 0, durability=durability)
        self.entries: list[Append] = []
        self.told: list[object] = []
        self.sequence = 0

    def step(self, event: object) -> None:
        self.carry_out(self.core.step(event))

    def carry_out(self, effects: list) -> None:
        self.entries += [each for each in effects if isinstance(each, Append)]
        self.told += [each for each in effects if not isinstance(each, Append)]

    def publish(self, *dues: int) -> None:
        batch = Batch(b"p" * 16, 0, self.sequence, len(dues), max(dues), None, 7, array("q", dues))
        self.sequence += 1
        self.step(Produce(ADA, batch, 0))

    def durable(self, through: int | None = None) -> list[object]:
        """What is told when the entries are durable."""
        self.told.clear()
        self.step(LogDurable(self.core.last_index if through is None else through))
        return self.told

    def released(self, event: object) -> list[int]:
        self.step(event)
        (released,) = [each for each in self.durable() if isinstance(each, Released)]
        return released.offsets

    def reopened(self, *, snapshot_at: int | None = None) -> Log:
        """The same log, opened again, with a snapshot from after so many entries."""
        again = Log()
        taken = (0, b"")
        if snapshot_at is not None:
            before = Log()
            before.replay(self.entries[:snapshot_at])
            taken = before.core.snapshot()
        again.core.restore(*taken)
        again.replay(self.entries[taken[0] :])
        again.entries = list(self.entries)
        again.sequence = self.sequence
        return again

    def replay(self, entries: list[Append]) -> None:
        for each in entries:
            count = each.batch.count if each.batch else 0
            end = each.base_offset + count
            self.core.step(
                Replayed(each.kind, each.index, end, each.batch, each.body, each.base_offset)
            )


def state(core: WaitingPartition) -> object:
    again = DueTimes()  # what waits, in order, without taking it out
    again.restore(b"".join(core.due.snapshot()))
    return again.pop(10**9, 10**9), core.released, core.life, core.sequence, core.end, core.count


def test_what_is_due_goes_in_order_of_time_when_the_log_says_so():
    log = Log()
    log.publish(30, 10, 20)
    log.publish(10, 40)
    assert log.durable() == [Acked(ADA, 1, [0, 3]), log.told[-1]]
    log.step(Release(30, 3))
    assert log.core.released == [], "the entry is not durable yet"
    assert [each for each in log.durable() if isinstance(each, Released)] == [Released([1, 3, 2])]
    assert (log.core.released, log.core.count) == ([1, 3, 2], 5)
    assert log.released(MovedOn(1, 30, 500)) == [0]
    assert log.released(MovedOn(2, 39, 500)) == []
    assert (log.core.sequence, log.core.count) == (2, 1)
    log.step(MovedOn(2, 0, 0))
    assert log.durable()[0] == Released([])


def test_the_entry_decides_and_not_what_its_proposer_knew():
    """A message that comes before the entry is among those it releases, if it is due by then."""
    log = Log()
    log.publish(20)
    log.durable()
    log.publish(10)
    log.step(Release(15, 9))
    log.publish(5)
    assert [each for each in log.durable() if isinstance(each, Released)] == [Released([1])]
    assert len(log.core.due) == 2


def test_nothing_more_is_released_before_what_is_released_has_moved():
    log = Log()
    log.publish(1, 2, 3)
    log.durable()
    assert log.released(Release(9, 2)) == [0, 1]
    assert log.released(Release(9, 2)) == [0, 1], "the same again"


def test_a_new_life_counts_batches_from_the_beginning_and_happens_once():
    log = Log()
    log.publish(1, 2)
    log.durable()
    log.released(Release(9, 1))
    log.released(MovedOn(7, 9, 1))
    assert log.released(BeginLife(1)) == [1]
    assert (log.core.life, log.core.sequence) == (1, 0)
    log.step(BeginLife(1))
    assert log.durable() == [], "it has begun already"


def test_in_memory_messages_wait_at_once_and_a_release_waits_for_the_disk():
    log = Log("memory")
    log.publish(1)
    assert len(log.core.due) == 1
    log.step(Release(9, 9))
    assert log.core.released == []
    assert log.durable() == [Released([0])]


def test_the_log_is_needed_from_the_first_message_that_waits_or_is_on_its_way():
    log = Log()
    assert log.core.needed_from == 0
    log.publish(9, 1, 2, 3)
    log.durable()
    assert log.released(Release(3, 2)) == [1, 2]
    assert log.core.needed_from == 0
    assert log.released(MovedOn(1, 9, 9)) == [3, 0]
    assert log.core.needed_from == 0
    assert log.released(MovedOn(2, 9, 9)) == []
    assert log.core.needed_from == 4
    log.step(MoveLogStart(4))
    log.durable()
    assert log.core.start == 4


@pytest.mark.parametrize("snapshot", [False, True])
def test_entries_that_are_lost_begin_a_new_life(snapshot):
    log = Log()
    log.publish(1, 2)
    log.durable()
    log.released(Release(1, 1))
    again = log.reopened(snapshot_at=2 if snapshot else None)
    again.core.step(Lost(5, 2))
    assert (again.core.life, again.core.sequence) == (5, 0)
    assert again.core.released == [0]
    again.core.step(Lost(6, 2))
    assert again.core.life == 6


def test_a_partition_that_is_opened_as_any_other_finds_what_every_partition_has():
    """As when the topic's name is lost to damage: its records are read under another one."""
    log = Log()
    log.publish(1, 2)
    log.durable()
    plain = Partition("recovered.1", 0)
    plain.restore(*log.core.snapshot())
    assert (plain.end, plain.dedupe.next_sequence(b"p" * 16, 0)) == (2, 1)


moves = st.lists(
    st.one_of(
        st.lists(st.integers(1, 30), min_size=1, max_size=5),
        st.tuples(st.just("release"), st.integers(0, 32), st.integers(1, 4)),
        st.tuples(st.just("moved"), st.integers(0, 32), st.integers(0, 4)),
        st.sampled_from(["durable", "crash", "life"]),
    ),
    max_size=25,
)


@settings(max_examples=1_000 if LONG else 40)
@given(moves, st.data())
def test_whoever_applies_the_log_has_the_same_state_and_nothing_is_lost_or_doubled(history, data):
    log = Log()
    gone: list[int] = []  # moved, as the log says
    for move in history:
        if isinstance(move, list):
            log.publish(*move)
        elif move == "durable":
            log.durable(data.draw(st.integers(log.core.applied_index, log.core.last_index)))
        elif move == "crash":
            log.durable()
            log = log.reopened(snapshot_at=data.draw(st.integers(0, len(log.entries))))
        elif move == "life":
            log.step(BeginLife(log.core.life + 1))
        elif move[0] == "release":
            log.step(Release(*move[1:]))
        else:
            log.durable()
            gone += log.core.released
            log.step(MovedOn(log.core.sequence + 1, *move[1:]))
            log.durable()
    log.durable()
    assert state(log.reopened().core) == state(log.core)
    if log.entries:
        half = data.draw(st.integers(0, len(log.entries)))
        assert state(log.reopened(snapshot_at=half).core) == state(log.core)
    published = [each.base_offset + n for each in log.entries if each.kind == BATCH
                 for n in range(each.batch.count)]  # fmt: skip
    waiting = log.core.due.pop(99, 10_000)
    assert sorted(gone + log.core.released + waiting) == published
