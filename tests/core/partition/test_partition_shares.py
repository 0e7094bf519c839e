"""Shared indexes in a partition's log: gathered, committed, replayed, never ahead of the disk."""

from __future__ import annotations

import pytest

from hocket.core.partition.cursors import Cursor
from hocket.core.partition.events import (
    AttachIndex,
    ChangeShare,
    DeleteIndex,
    IndexMoved,
    LogStartMoved,
    MoveLogStart,
    SeekIndex,
    ShareChanged,
    TurnEnded,
)
from hocket.core.sharing.state import ShareChange, ShareSettings
from tests.support.core.logged import Logged, batch, origin, recovered

SETTINGS = ShareSettings(lease_us=1_000_000, max_deliveries=3)
CONSUMER, OTHER = origin(7), origin(8)


def shared(*, start: int = 0, hold: bool = False) -> Logged:
    """Ten records, and the index `workers`, which is shared."""
    logged = Logged()
    logged.produce(batch(count=10), origin(handle=1))
    logged.step(AttachIndex(origin(1), "workers", start, hold, "shared", SETTINGS))
    logged.settle()
    return logged


def settle(logged: Logged, *ranges: tuple[int, int], asker=CONSUMER) -> None:
    assert logged.step(ChangeShare(asker, "workers", ShareChange(settled=list(ranges)))) == []


def position(logged: Logged) -> int:
    return logged.partition.cursors.applied["workers"].position


def test_a_shared_index_begins_where_it_is_told_with_its_settings():
    logged = shared(start=4)
    state = logged.partition.shares["workers"]
    assert (state.start, state.settings, state.clean) == (4, SETTINGS, False)
    assert logged.partition.cursors.applied["workers"] == Cursor(4, 1, False, "shared")


def test_consumers_come_without_fencing_each_other_and_change_only_what_they_set():
    logged = shared()
    logged.step(AttachIndex(origin(2), "workers", 9, True, "key_shared", None))
    (moved, changed) = logged.settle()
    assert moved == IndexMoved(origin(2), "workers", Cursor(0, 1, True, "key_shared"), "attach")
    assert changed == ShareChanged("workers", ShareChange(), [])
    assert logged.partition.shares["workers"].settings == SETTINGS


def test_what_is_settled_counts_when_it_is_durable_and_those_who_asked_hear_of_it_then():
    logged = shared()
    settle(logged, (0, 2), (5, 6))
    settle(logged, (2, 3), asker=OTHER)
    settle(logged, (9, 10), asker=None)
    assert logged.step(TurnEnded()) == []
    assert position(logged) == 0
    (changed,) = logged.durable()
    assert changed.origins == [CONSUMER, OTHER]
    assert (position(logged), logged.partition.shares["workers"].ahead()) == (3, 2)


def test_a_turn_makes_one_entry_and_an_idle_one_none():
    logged = shared()
    entries = len(logged.log)
    for offset in range(3):
        settle(logged, (offset, offset + 1))
    logged.settle()
    assert len(logged.log) == entries + 1
    logged.settle()
    assert len(logged.log) == entries + 1


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_replay_gives_the_same_state(with_snapshot):
    logged = shared()
    settle(logged, (0, 2), (5, 6))
    logged.step(ChangeShare(None, "workers", ShareChange(
        counts=[(2, 5, 2)], dying=[(6, 7, 3, "why")])))  # fmt: skip
    logged.settle()
    snapshot = logged.snapshot() if with_snapshot else None
    settle(logged, (3, 4))
    logged.settle()
    again = recovered(logged.log, snapshot)
    live = logged.partition
    assert again.shares["workers"].snapshot() == live.shares["workers"].snapshot()
    assert again.cursors.applied == live.cursors.applied == again.cursors.leading


def revive(logged: Logged, *ranges: tuple[int, int]) -> None:
    change = ShareChange(revived=list(ranges), revived_to={9: 4}, revivals=1)
    logged.step(ChangeShare(CONSUMER, "workers", change))


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_what_is_revived_takes_the_index_back_to_it_also_after_a_crash(with_snapshot):
    logged = shared()
    settle(logged, (0, 8))
    logged.settle()
    revive(logged, (2, 3), (5, 6))
    (changed,) = logged.settle()
    assert changed.origins == [CONSUMER]
    snapshot = logged.snapshot() if with_snapshot else None
    settle(logged, (5, 6))
    logged.settle()
    for partition in (logged.partition, recovered(logged.log, snapshot)):
        state = partition.shares["workers"]
        assert (state.start, state.ahead(), state.lost) == (2, 5, 0)
        assert (state.revived_to, state.revivals) == ({9: 4}, 1)
        assert partition.cursors.applied["workers"].position == 2


def test_what_the_log_start_passes_before_it_is_revived_durably_is_lost():
    logged = shared()
    settle(logged, (0, 8))
    logged.settle()
    logged.step(MoveLogStart(4))
    revive(logged, (2, 3), (5, 6))
    logged.settle()
    for partition in (logged.partition, recovered(logged.log)):
        state = partition.shares["workers"]
        assert (state.start, state.lost) == (5, 1)
        assert partition.cursors.applied["workers"].position == 5


def test_what_is_not_durable_is_not_in_a_snapshot():
    logged = shared()
    settle(logged, (0, 2))
    logged.step(TurnEnded())
    assert recovered(logged.log[:2], logged.snapshot()).shares["workers"].start == 0


def test_an_index_that_is_put_elsewhere_forgets_what_was_settled():
    logged = shared()
    settle(logged, (0, 5), (7, 8))
    logged.settle()
    logged.step(SeekIndex(CONSUMER, "workers", 2))
    moved, changed = logged.settle()
    assert (moved.by, moved.cursor.position, changed.change.reset) == ("seek", 2, 2)
    state = logged.partition.shares["workers"]
    assert (state.start, state.ahead(), state.settings) == (2, 0, SETTINGS)
    assert position(logged) == 2


def test_a_deleted_index_is_gone_and_what_comes_late_for_it_is_nothing():
    logged = shared()
    settle(logged, (0, 2))
    logged.step(DeleteIndex(origin(2), "workers"))
    settle(logged, (2, 3))
    logged.settle()
    assert logged.partition.shares == {}
    settle(logged, (3, 4))
    assert logged.settle() == []
    logged.step(AttachIndex(origin(3), "workers", 6, False, "shared", SETTINGS))
    logged.settle()
    assert logged.partition.shares["workers"].start == 6


def test_what_was_on_its_way_when_the_index_was_deleted_does_not_bring_it_back():
    logged = shared()
    logged.step(DeleteIndex(origin(2), "workers"))
    logged.step(TurnEnded())
    logged.partition.cursors.leading["workers"] = Cursor(0, 9, False, "shared")
    settle(logged, (2, 3))
    logged.settle()
    assert logged.partition.shares == {}


def test_an_own_index_is_not_settled():
    logged = shared()
    logged.step(AttachIndex(origin(2), "billing", 0, False))
    logged.settle()
    change = ShareChange(settled=[(0, 5)])
    assert logged.step(ChangeShare(CONSUMER, "billing", change)) == []
    assert logged.settle() == []


def test_retention_moves_the_index_on_and_is_held_back_by_it():
    logged = shared(hold=True)
    settle(logged, (0, 2), (4, 5))
    logged.settle()
    assert logged.partition.cursors.held_from() == 2
    logged.step(MoveLogStart(4))
    assert logged.settle() == [LogStartMoved(4)]
    assert (position(logged), logged.partition.shares["workers"].start) == (5, 5)
    assert recovered(logged.log).shares["workers"].start == 5


def test_of_a_topic_without_shared_indexes_nothing_more_is_written():
    logged = Logged()
    logged.step(AttachIndex(origin(1), "billing", 0, False))
    logged.settle()
    assert b"shares" not in logged.log[0].body
