"""Damage in every field of a store with terms, votes and cuts: what is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hocket.errors import HocketError
from hocket.log import checkpoint as checkpoints
from hocket.log.directory import read_file
from hocket.log.model import HardState
from hocket.log.store import LogStore
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from tests.log.test_damage import CALM
from tests.log.test_store import checkpoint
from tests.support.damage.places import Place, mapped
from tests.support.log.replica_world import ReplicaWorld
from tests.support.threads import LONG

LAST = HardState(6, "bob")


@pytest.fixture(scope="module")
def world() -> ReplicaWorld:
    """Two groups that were cut back and have voted, before a checkpoint and behind it."""
    world = ReplicaWorld("noted", settings=replace(CALM, mark_after_us=20_000))
    for _ in range(2):
        world.add_group()
    for state in (HardState(4, "ann"), LAST):
        for number in (1, 2):
            for _ in range(4):
                world.append(number, size=24, kind=EntryKind.CURSOR, count=0)
            world.store.flush()
            world.run(10_000)
            world.cut(number, len(world.groups[number].entries) - 2)
            world.append(number, size=40, kind=EntryKind.CURSOR, count=0)
            world.append(number, size=40, kind=EntryKind.CURSOR, count=0)
            world.store.replicated.persist(number, state, lambda: None)
            world.group(number).states.append(state)
            world.store.flush()
            world.run(10_000)
        world.apply(1, world.groups[1].acked - 3)
        if state != LAST:
            checkpoint(world)
    world.run(100_000)  # the mark
    world.executor.crash()
    world.disk.kill()
    return world


def places(disk: SimDisk) -> Iterator[Place]:
    files = {name: read_file(disk, name) for name in disk.files()}
    found = mapped(files)
    for place in found.leaves:
        is_meant = place.path.startswith("wal/") or place.path == checkpoints.PATH
        if is_meant and "unused" not in place.name and "padding" not in place.name:
            yield place


def test_the_store_has_notes_of_every_kind(world: ReplicaWorld):
    names = {place.name.rpartition("/")[2] for place in places(world.disk)}
    assert {"vote", "told", "owed", "vote_bytes", "truncations"} <= names
    assert checkpoints.read(world.disk).version == 2
    store = opened(world)
    assert {store.recovered[number].state for number in (1, 2)} == {LAST}
    assert not any(found.damage for found in store.recovered.values())
    store.abandon()


def opened(world: ReplicaWorld) -> LogStore:
    executor = SimExecutor(world.scheduler)
    return LogStore.open(world.disk, executor, SimClock(world.scheduler), CALM)


def test_one_damaged_field_loses_no_vote_and_mixes_no_logs(world: ReplicaWorld):
    judged = named = 0
    for place in list(places(world.disk))[:: 1 if LONG else 16]:
        for position in {place.start, place.end - 1} if LONG else {place.start}:
            world.disk.flip(place.path, position, 0x41)
            try:
                named += judge(world, str(place))
            finally:
                world.disk.flip(place.path, position, 0x41)
                world.disk.kill()
            judged += 1
    assert judged > (500 if LONG else 30)
    assert named > (50 if LONG else 2)


def judge(world: ReplicaWorld, place: str) -> bool:
    """Whether damage was named; all that is not named is as it was."""
    try:
        store = opened(world)
    except HocketError:
        pytest.fail(f"{place}: refused, although each part is there twice")
    try:
        is_named = False
        for number in (1, 2):
            found = store.recovered[number]
            assert found.state == LAST, f"{place}: {found.state}"
            entries = world._entries(number)
            lost = {
                index for each in found.damage for index in range(each.first_index, each.end_index)
            }
            there = {header.index for header, _ in found.entries}
            assert not lost & there, place
            expected = set(range(found.snapshot_index + 1, len(entries) + 1))
            assert there | lost >= expected, f"{place}: {expected - there - lost} are missing"
            for header, body in found.entries:
                assert bytes(body) == entries[header.index - 1].body, f"{place}: {header.index}"
            assert bool(found.damage) == bool(store.replicated.faults(number))
            is_named |= bool(found.damage)
        return is_named
    finally:
        store.abandon()
