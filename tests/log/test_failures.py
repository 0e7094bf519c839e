"""A disk that is full, and one that fails."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from hocket.errors import HocketError, NotADataDirectory, StorageFull, StoreStopped
from hocket.log.settings import GroupSettings
from hocket.log.store import NewEntry
from tests.support.log.world import TINY, World
from tests.support.threads import LONG


def fill(world: World, number: int) -> None:
    """Append until the store refuses."""
    for _ in range(10_000):
        if not world.append(number, size=200):
            return
        world.settle()
    pytest.fail("the disk never got full")


def full_world(seed: int = 1) -> World:
    settings = replace(TINY, where="/data/hocket")
    world = World(seed, settings=settings)
    world.add_group()
    world.append(1, size=200)
    world.settle()
    world.disk.capacity_bytes = 50_000
    return world


def test_a_full_disk_refuses_writes_and_goes_on_reading() -> None:
    world = full_world()
    fill(world, 1)
    group = world.groups[1]
    assert group.acked == len(group.entries), "what was taken is durable"
    with pytest.raises(StorageFull, match=r"/data/hocket is full .* goes on by itself"):
        world.store.append(1, entry_like_the_last(world))
    world.check_all()
    assert world.stopped is None
    world.run(500_000)
    world.check_all()
    world.close()


def test_room_comes_back_by_itself() -> None:
    world = full_world()
    fill(world, 1)
    rooms = world.rooms
    world.run(300_000)
    assert world.rooms == rooms
    world.disk.capacity_bytes = 80_000
    world.run(300_000)
    assert world.rooms == rooms + 1
    assert world.append(1, size=200)
    world.settle()
    assert world.groups[1].acked == len(world.groups[1].entries)
    world.check_all()
    world.close()
    world.check_offline()


def test_retention_makes_room_on_a_full_disk() -> None:
    """Removing segments needs a checkpoint, and the disk is full: the reserve is for that."""
    world = full_world()
    fill(world, 1)
    world.disk.capacity_bytes = sum(world.disk.files().values())  # not a byte more
    rooms = world.rooms
    start = world.store.segments(1)[-3].base_offset
    world.store.set_log_start(1, start)
    world.groups[1].log_start = start
    world.run(1_000_000)
    assert world.rooms > rooms
    for _ in range(20):
        assert world.append(1, size=200)
        world.settle()
    world.check_all()
    world.close()
    world.check_offline()


def test_a_crash_on_a_full_disk() -> None:
    for seed in range(500 if LONG else 10):
        world = full_world(seed)
        fill(world, 1)
        world.crash()
        world.check_all()
        world.append(1, size=200)
        world.run(200_000)
        world.disk.capacity_bytes = None
        world.run(200_000)
        assert world.append(1, size=200)
        world.settle()
        world.check_all()
        world.close()
        world.check_offline()


def test_a_store_that_opens_on_a_full_disk_can_be_read() -> None:
    world = full_world()
    fill(world, 1)
    world.disk.capacity_bytes = None
    world.close()
    for name in list(world.disk.files()):
        if name.startswith("wal/"):
            world.disk.remove(name)
    world.disk.capacity_bytes = sum(world.disk.files().values())
    world.disk.kill()
    world.open()
    world.check_all()
    assert not world.append(1, size=1)
    world.disk.capacity_bytes = None
    world.run(200_000)
    assert world.append(1, size=1)
    world.settle()
    assert world.groups[1].acked == len(world.groups[1].entries)
    world.close()


def test_what_waits_for_room_is_not_tried_every_turn() -> None:
    """What a node is told by others is staged, full or not. Each turn of the node ends with a
    flush, and an attempt that failed would bring about the next turn."""
    world = full_world()
    fill(world, 1)
    world.disk.capacity_bytes = sum(world.disk.files().values())
    while world.groups[1].acked == len(world.groups[1].entries):
        assert world.append(1, size=200, admitted=True)
        world.store.flush()
        world.scheduler.run_for(10_000)
    attempts = 0

    def count(operation: str, path: str) -> None:
        nonlocal attempts
        attempts += operation == "write" and path.startswith("wal/")

    world.disk.before = count
    for _ in range(100):
        world.store.flush()
        world.scheduler.run_for(1_000)
    assert attempts <= 1
    world.disk.capacity_bytes = None
    world.run(300_000)
    assert world.groups[1].acked == len(world.groups[1].entries)
    world.check_all()
    world.close()


def test_a_file_system_where_writing_over_old_blocks_needs_space() -> None:
    """There a commit itself may meet a full disk. It is written again, not given up."""
    world = full_world()
    left = 3

    def full(operation: str, path: str) -> None:
        nonlocal left
        if operation == "write" and path.startswith("wal/") and left:
            left -= 1
            raise OSError(errno.ENOSPC, "no space left")

    world.disk.before = full
    world.append(1, size=50)
    world.store.flush()
    world.scheduler.run_for(10_000)
    assert world.groups[1].acked == 1
    world.run(300_000)
    assert world.groups[1].acked == 2
    assert world.stopped is None
    world.crash()
    world.check_all()
    world.close()


def test_seeds_with_a_disk_that_is_full_now_and_then() -> None:
    for seed in range(1000 if LONG else 15):
        world = World(f"full/{seed}")
        world.add_group()
        for _ in range(30):
            used = sum(world.disk.files().values())
            world.disk.capacity_bytes = world.random.choice((None, used, used + 3000, 40_000))
            try:
                world.play(4)
            except BaseException as error:
                error.add_note(f"seed full/{seed}")
                raise
        world.disk.capacity_bytes = None
        world.run(300_000)
        world.settle()
        for number, group in world.groups.items():
            assert group.acked == len(group.entries), f"seed {seed}: group {number} is stuck"
        world.close()
        world.check_offline()


# --- errors ----------------------------------------------------------------------------------


def fail_on(world: World, *, operation: str, start: str) -> None:
    def fail(found: str, path: str) -> None:
        if found == operation and path.startswith(start):
            raise OSError(errno.EIO, "input/output error", path)

    world.disk.before = fail


@pytest.mark.parametrize(
    ("operation", "start"),
    [
        ("sync", "wal/"),
        ("write", "wal/"),
        ("sync", "groups/"),
        ("sync_directory", "groups/"),
        ("sync", "checkpoint"),
        ("rename", "checkpoint"),
        ("sync_directory", ""),
    ],
)
def test_an_error_of_the_disk_stops_the_store_for_good(operation: str, start: str) -> None:
    world = World(1, group=GroupSettings(memory_retention_us=0, segment_bytes_max=1500))
    number = world.add_group()
    world.append(number, size=100)
    world.settle()
    assert world.stopped is None
    durable = world.groups[number].acked
    fail_on(world, operation=operation, start=start)
    for _ in range(40):
        if world.stopped:
            break
        world.append(number, size=300)
        world.settle()
    assert isinstance(world.stopped, StoreStopped)
    assert "input/output error" in str(world.stopped)
    world.disk.before = lambda operation, path: None  # the disk is well again, but who knows
    acked = world.groups[number].acked
    assert acked >= durable
    with pytest.raises(StoreStopped):
        world.store.append(number, entry_like_the_last(world))
    world.run(1_000_000)
    assert world.groups[number].acked == acked, "nothing becomes durable any more"
    outcomes: list[HocketError | None] = []
    world.store.checkpoint_now(outcomes.append)
    assert isinstance(outcomes[0], StoreStopped)
    world.check_all()  # reading goes on
    world.close()
    world.stopped = None
    world.disk.kill()
    world.open()
    assert world.append(number, size=10)
    world.settle()
    world.check_all()
    world.close()


def test_a_disk_that_fails_while_the_store_opens() -> None:
    world = World(1)
    number = world.add_group()
    world.append(number, size=100)
    world.settle()
    world.executor.crash()
    world.disk.kill()
    fail_on(world, operation="rename", start="wal/")
    with pytest.raises(StoreStopped, match="input/output error"):
        world.open()
    assert world.stopped is None, "whoever opens it is told by the error"
    fail_on(world, operation="sync", start="wal/")
    with pytest.raises(NotADataDirectory, match=r"cannot be read: .*input/output error"):
        world.open()
    world.disk.kill()
    world.open()
    world.check_all()
    world.close()


def entry_like_the_last(world: World) -> NewEntry:
    group = world.groups[1]
    index = len(group.entries) + 1
    return NewEntry(1, 0, 0, 1, 1, index, group.end_offset, 0, 0, bytes(4000))
