"""Entries that are needed although the log has moved on: read by index, held, with room kept."""

from __future__ import annotations

import pytest

from hocket.errors import CorruptData, HocketError, StorageFull
from hocket.log.settings import GroupSettings
from hocket.model import EntryKind
from tests.log.test_store import ROOMY_GROUP, checkpoint, roomy_world, unwanted
from tests.support.log.world import World

SMALL = GroupSettings(memory_retention_us=0, segment_bytes_max=600)


def with_stages(group: GroupSettings = SMALL) -> World:
    """Records, then entries without records that all have one base offset, then records."""
    world = roomy_world(group)
    for _ in range(3):
        world.append(1, size=200, count=2)
    for _ in range(8):
        world.append(1, size=150, kind=EntryKind.STAGE, count=0)
    world.append(1, size=200, count=2)
    world.settle()
    return world


def bodies(world: World, *indexes: int) -> dict[int, bytes]:
    return {index: world.groups[1].entries[index - 1].body for index in indexes}


def read(world: World, *indexes: int, near: int = 6) -> dict[int, bytes] | HocketError:
    answers: list = []
    found = world.store.read_entries(1, indexes, near, answers.append)
    if found is None:
        assert world.scheduler.run_until_true(lambda: answers, within_us=10_000_000)
        found = answers[0]
    if isinstance(found, HocketError):
        return found
    return {index: bytes(body) for index, body in found.items()}


def test_from_memory_they_come_at_once():
    world = with_stages(ROOMY_GROUP)
    found = world.store.read_entries(1, [4, 11], 6, unwanted)
    assert found is not None
    assert {index: bytes(body) for index, body in found.items()} == bodies(world, 4, 11)
    assert world.store.read_entries(1, [], 0, unwanted) == {}


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "opened again"])
def test_from_segment_files_in_any_order_and_over_several(restarted):
    world = with_stages()
    checkpoint(world)
    world.run(100_000)
    assert world.store.stats(1).memory_bytes == 0
    if restarted:
        world.close()
        world.disk.kill()
        world.open()
    everything = range(4, 12)
    assert read(world, *everything) == bodies(world, *everything)
    assert read(world, 9, 5) == bodies(world, 9, 5)
    assert read(world, 1, near=0) == bodies(world, 1)


def test_partly_in_memory_and_partly_not():
    world = with_stages()
    checkpoint(world)
    world.run(100_000)
    world.append(1, size=50, kind=EntryKind.STAGE, count=0)
    assert read(world, 4, 13) == bodies(world, 4, 13)


def test_one_that_is_nowhere_is_named():
    world = with_stages(ROOMY_GROUP)
    with pytest.raises(CorruptData, match="entry 99"):
        world.store.read_entries(1, [99], 6, unwanted)
    with pytest.raises(CorruptData, match="entry 0"):
        world.store.read_entries(1, [0], 6, unwanted)


@pytest.mark.parametrize("at", [10, 100], ids=["header", "body"])
def test_one_that_is_damaged_is_named_and_the_others_are_read(at):
    world = with_stages()
    checkpoint(world)
    world.run(100_000)
    path = next(name for name in world.disk.files() if name.endswith(f"-{5:020}.log"))
    world.disk.flip(path, at)
    error = read(world, 5)
    assert isinstance(error, CorruptData)
    assert "entry 5" in str(error)
    assert world.store.stats(1).problem
    assert read(world, 11) == bodies(world, 11)


def test_a_file_that_is_gone_is_told():
    world = with_stages()
    checkpoint(world)
    world.run(100_000)
    for name in [name for name in world.disk.files() if name.startswith("groups/1/")]:
        world.disk.remove(name)
    assert isinstance(read(world, 4), CorruptData)


def test_what_is_held_stays_below_the_start_of_the_log_until_it_is_let_go():
    world = with_stages()
    world.store.hold(1, 4, 0)
    world.store.set_log_start(1, 8)
    checkpoint(world)
    checkpoint(world)
    world.run(100_000)
    assert read(world, 4, 11) == bodies(world, 4, 11)
    files = sorted(name for name in world.disk.files() if name.endswith(".log"))
    world.store.hold(1, 11, 0)
    world.store.set_log_start(1, 8)
    world.store._checkpointer.changed = True
    checkpoint(world)
    world.run(100_000)
    fewer = sorted(name for name in world.disk.files() if name.endswith(".log"))
    assert set(fewer) < set(files)
    assert read(world, 11) == bodies(world, 11)
    world.store.hold(1, None, 0)
    world.store._checkpointer.changed = True
    checkpoint(world)
    world.run(100_000)
    assert not [name for name in world.disk.files() if name.endswith(".log")]


def test_room_that_is_kept_is_refused_to_others_only():
    world = roomy_world()
    other = world.add_group()
    used = sum(world.disk.files().values())
    margin = world.settings.reserve_bytes + world.settings.wal_file_bytes
    world.disk.capacity_bytes = used + margin + 5000
    world.store.admit(other, 4000)
    world.store.hold(1, None, 3000)
    with pytest.raises(StorageFull, match="3000 are kept for transactions"):
        world.store.admit(other, 4000)
    world.store.admit(other, 2000)
    world.store.admit(other, 4000, reserved=True)
    world.store.hold(1, None, 1000)
    world.store.admit(other, 4000)
    world.store.hold(1, None, 3000)
    world.store.delete_group(1)
    world.store.admit(other, 4000)
