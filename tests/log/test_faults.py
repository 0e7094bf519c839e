"""Damage in the log of a copy: it stays a fault until the copy has again all that it had said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.log.model import HardState, Snapshot
from hocket.log.store import LogStore
from hocket.sim.clock import SimClock
from hocket.sim.executor import SimExecutor
from tests.log.test_damage import CALM, SMALL_GROUP, found_in, wal_file
from tests.log.test_store import checkpoint
from tests.support.log.replica_world import ReplicaWorld

ANN = HardState(7, "ann")
UNMARKED = replace(CALM, mark_after_us=10**12)


def copy_with(*commits: int, applied: int = 0, seed: int = 0) -> ReplicaWorld:
    """One group with so many entries in each commit; the first `applied` are in a checkpoint."""
    world = ReplicaWorld(seed, settings=UNMARKED, group=SMALL_GROUP)
    world.add_group()
    for count in commits:
        for _ in range(count):
            world.append(1, size=40)
        commit(world)
        if applied and len(world.group(1).entries) == applied:
            world.apply(1, applied)
            checkpoint(world)
    return world


def commit(world: ReplicaWorld) -> None:
    world.store.flush()
    world.scheduler.run_for(10_000)


def kill(world: ReplicaWorld) -> None:
    world.executor.crash()
    world.disk.kill()


def opened(world: ReplicaWorld, *, report: bool = True) -> LogStore:
    world.executor = SimExecutor(world.scheduler)
    clock = SimClock(world.scheduler)
    world.store = LogStore.open(world.disk, world.executor, clock, UNMARKED)
    world.store.configure(1, SMALL_GROUP)
    if report:
        world.store.report_to(world)
    return world.store


def spoil(world: ReplicaWorld, *numbers: int) -> None:
    """Flip bytes all over these envelopes, so that nothing of them can be read."""
    name = wal_file(world)
    envelopes = found_in(world, name)
    for found in (envelopes[number] for number in numbers):
        for at in range(found.position, found.position + len(found.data), 8):
            world.disk.flip(name, at, 0x41)


def test_what_is_whole_behind_a_loss_and_is_cut_off_with_it_is_owed_as_well():
    world = copy_with(3, 1, 2)
    entries = world._entries(1)
    kill(world)
    spoil(world, 1)
    replicated = opened(world).replicated
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(4, 5)]
    replicated.truncate(1, 3)
    world.group(1).acked = 3
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(4, 7)]
    replicated.append_raw(1, entries[3].packed)
    commit(world)
    assert replicated.faults(1), "entries 5 and 6 were told durable, and are not here"
    replicated.append_raw(1, entries[4].packed + entries[5].packed)
    commit(world)
    assert not replicated.faults(1)


def test_the_same_is_owed_if_the_power_fails_before_a_checkpoint_knows_of_the_cut():
    world = copy_with(3, 1, 2)
    kill(world)
    spoil(world, 1)
    opened(world, report=False).replicated.truncate(1, 3)
    world.store.report_to(world)
    commit(world)
    kill(world)
    faults = opened(world).replicated.faults(1)
    assert [(each.first_index, each.end_index) for each in faults] == [(4, 7)]


def test_what_is_owed_is_in_the_checkpoint_also_if_the_log_ends_where_its_segments_end():
    world = copy_with(2, 1, 2, applied=2)
    kill(world)
    spoil(world, 1)
    opened(world, report=False).replicated.truncate(1, 2)
    world.store.report_to(world)
    commit(world)
    checkpoint(world)
    assert world.store._checkpointer._last.groups[1].owed == 5
    world.store.close()
    assert opened(world).replicated.faults(1), "the files that tell of the loss are gone by now"


def test_what_was_mended_stays_mended():
    world = copy_with(2, 1, 2, applied=2)
    kill(world)
    spoil(world, 1)
    opened(world).replicated.truncate(1, 2)
    commit(world)
    checkpoint(world)
    world.store.replicated.mended(1)
    checkpoint(world)
    kill(world)
    assert not opened(world).replicated.faults(1)


def test_what_is_owed_behind_an_installed_state_stays_owed():
    world = copy_with(2, 1, 3, applied=2)
    entries = world._entries(1)
    kill(world)
    spoil(world, 1)
    replicated = opened(world).replicated
    replicated.truncate(1, 2)
    told: list[bool] = []
    snapshot = Snapshot(entries[3].end, 0, b"state")
    world.store.install_snapshot(1, snapshot, lambda: told.append(True))
    commit(world)
    assert told
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(5, 7)]
    world.group(1).acked = 4
    replicated.append_raw(1, entries[4].packed + entries[5].packed)
    commit(world)
    assert not replicated.faults(1)


def test_what_is_lost_at_the_end_of_the_last_envelope_is_not_lost_in_silence():
    world = copy_with(2, 3, applied=2)
    checkpoint(world)  # it proves that the last envelope was durable; the entries are not applied
    kill(world)
    name = wal_file(world)
    last = found_in(world, name)[-1]
    packed = world._entries(1)[-1].packed
    at = last.position + bytes(last.data).index(packed)
    world.disk.flip(name, at + 20, 0x41)  # in the header of the last entry
    store = opened(world)
    assert [header.index for header, _body in store.recovered[1].entries] == [3, 4]
    assert store.recovered[1].damage, "entry 5 was durable, and is gone"
    assert store.replicated.faults(1)


def vote(world: ReplicaWorld) -> None:
    world.store.replicated.persist(1, ANN, lambda: None)
    commit(world)


@pytest.mark.parametrize("spoilt", [(1,), (1, 2), (2,)])
def test_a_vote_is_missed_if_both_envelopes_that_told_it_are_lost(spoilt: tuple[int, ...]):
    world = copy_with(2, applied=2)
    other = world.add_group()
    vote(world)
    for number in (other, 1, other, 1):
        world.append(number, size=40)
        commit(world)
    kill(world)
    spoil(world, *spoilt)
    store = opened(world)
    assert [header.index for header, _body in store.recovered[1].entries] == [3, 4]
    if spoilt == (1, 2):
        assert store.recovered[1].state == HardState()
        assert [each.loses_vote for each in store.replicated.faults(1)] == [True]
        checkpoint(world)
        kill(world)
        assert opened(world).replicated.faults(1), "the files that tell of the loss are gone by now"
    else:
        assert store.recovered[1].state == ANN, "it was told twice"
        assert not store.replicated.faults(1)


def test_votes_are_not_missed_if_all_notes_were_written_again_since():
    world = copy_with(2, applied=2)
    vote(world)
    world.append(1, size=40)
    commit(world)
    world.store._wal.mark()
    commit(world)
    kill(world)
    spoil(world, 1, 2)
    store = opened(world)
    assert store.recovered[1].state == ANN
    assert not any(each.loses_vote for each in store.replicated.faults(1))


def test_lost_envelopes_are_no_fault_of_groups_that_never_vote():
    world = copy_with(2, 1, 1, 1, 1, applied=2)
    kill(world)
    spoil(world, 1, 2)
    assert [each.loses_vote for each in opened(world).replicated.faults(1)] == [False]


def test_a_torn_envelope_takes_no_vote_with_it():
    world = copy_with(2, applied=2)
    vote(world)
    world.append(1, size=40)
    commit(world)
    checkpoint(world)  # the last envelope was durable when it was made
    world.append(1, size=40)
    commit(world)
    kill(world)
    name = wal_file(world)
    last = found_in(world, name)[-1]
    for at in range(last.position + 128, last.position + len(last.data), 8):
        world.disk.flip(name, at, 0x41)  # behind its header: as if it had been cut short
    store = opened(world)
    assert store.recovered[1].state == ANN
    assert not store.replicated.faults(1)


@pytest.mark.parametrize("seed", range(4))
def test_a_vote_given_while_a_state_is_installed_is_told_twice_like_any_other(seed: int):
    world = copy_with(2, applied=2, seed=seed)
    other = world.add_group()
    end = world._entries(1)[1].end
    done: list[str] = []
    snapshot = Snapshot(end._replace(next_index=9), 0, b"state")
    world.store.install_snapshot(1, snapshot, lambda: done.append("installed"))
    checkpointer = world.store._checkpointer
    assert world.scheduler.run_until_true(lambda: checkpointer._next, within_us=10**6)
    world.store.replicated.persist(1, ANN, lambda: done.append("voted"))
    commit(world)
    assert sorted(done) == ["installed", "voted"]  # in both orders, with these seeds
    for _ in range(2):
        world.append(other, size=40)
        commit(world)
    kill(world)
    spoil(world, 1)
    assert opened(world).recovered[1].state == ANN, done
