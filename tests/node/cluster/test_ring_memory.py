"""A node's memory of its lives: no incarnation is used twice, whatever happens to the machine."""

from __future__ import annotations

import errno
from random import Random

import pytest

from hocket.errors import CorruptData, StorageFull
from hocket.node.cluster.ring_memory import (
    JOINS_KEPT,
    OTHER,
    PATH,
    DiskMemory,
    Memory,
    VolatileMemory,
)
from hocket.sim.disk import SimDisk


@pytest.fixture(params=["volatile", "disk"])
def memory(request: pytest.FixtureRequest) -> Memory:
    return VolatileMemory() if request.param == "volatile" else DiskMemory(SimDisk())


def test_lives_are_numbered_from_one(memory: Memory) -> None:
    assert [memory.next_life() for _ in range(3)] == [1, 2, 3]


def test_the_last_joins_are_kept(memory: Memory) -> None:
    for time_us in range(JOINS_KEPT + 5):
        memory.joining(time_us)
    assert memory.joins_us() == list(range(5, JOINS_KEPT + 5))


def test_who_leaves_in_order_forgets_its_joins_and_no_life(memory: Memory) -> None:
    memory.next_life()
    memory.joining(17)
    memory.leaving()
    assert memory.joins_us() == []
    assert memory.next_life() == 2


@pytest.mark.parametrize("seed", range(30))
def test_no_life_is_used_twice_across_power_failures(seed: int) -> None:
    disk, random = SimDisk(), Random(seed)
    last = 0
    for _ in range(10):
        memory = DiskMemory(disk)
        for _ in range(random.randrange(3)):
            life = memory.next_life()
            assert life > last
            last = life
        memory.joining(random.randrange(100))
        disk.crash(random)


def test_joins_are_known_in_the_next_life() -> None:
    disk = SimDisk()
    DiskMemory(disk).joining(17)
    assert DiskMemory(disk).joins_us() == [17]
    DiskMemory(disk).leaving()
    assert DiskMemory(disk).joins_us() == []


def damage(disk: SimDisk, path: str) -> None:
    file = disk.open(path)
    file.write([b"nonsense!"], 0)
    file.close()


def test_damage_is_told_with_what_to_do() -> None:
    disk = SimDisk()
    DiskMemory(disk).next_life()
    for path in (PATH, OTHER):
        damage(disk, path)
    with pytest.raises(CorruptData, match="larger than any"):
        DiskMemory(disk)


@pytest.mark.parametrize("path", [PATH, OTHER])
@pytest.mark.parametrize("lives", range(1, 4))
def test_one_file_that_is_damaged_makes_no_life_be_used_twice(path: str, lives: int) -> None:
    disk = SimDisk()
    memory = DiskMemory(disk)
    last = [memory.next_life() for _ in range(lives)][-1]
    damage(disk, path)
    assert DiskMemory(disk).next_life() > last


def test_a_life_begins_on_a_full_disk_too() -> None:
    disk = SimDisk()
    DiskMemory(disk).next_life()
    disk.capacity_bytes = sum(disk.files().values())
    for life in range(2, 6):
        memory = DiskMemory(disk)
        assert memory.next_life() == life
        for time_us in range(10**15, 10**15 + JOINS_KEPT):
            memory.joining(time_us)


def test_a_directory_of_an_older_version_goes_on() -> None:
    disk = SimDisk()
    file = disk.open(PATH, create=True)
    file.write([b'{"life": 7, "joins_us": [17]}'], 0)
    file.sync()
    file.close()
    disk.sync_directory("")
    memory = DiskMemory(disk)
    assert memory.joins_us() == [17]
    assert memory.next_life() == 8
    disk.capacity_bytes = sum(disk.files().values())
    assert [DiskMemory(disk).next_life() for _ in range(3)] == [9, 10, 11]


def test_an_older_version_on_a_full_disk_says_what_to_do() -> None:
    disk = SimDisk()
    file = disk.open(PATH, create=True)
    file.write([b'{"life": 7, "joins_us": []}'], 0)
    file.close()
    disk.capacity_bytes = sum(disk.files().values())
    with pytest.raises(StorageFull, match="make room"):
        DiskMemory(disk).next_life()


def test_a_disk_that_fails_keeps_nobody_from_leaving() -> None:
    disk = SimDisk()
    memory = DiskMemory(disk)
    memory.next_life()
    memory.joining(17)

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "it fails", path)

    disk.before = fail
    memory.leaving()
    with pytest.raises(OSError, match="it fails"):  # a number that is not durable is not used
        memory.next_life()


def test_a_life_can_be_outlived(memory: Memory) -> None:
    memory.outlive(40)
    memory.outlive(30)
    assert memory.next_life() == 41


@pytest.mark.parametrize("path", [PATH, OTHER])
def test_what_was_outlived_is_known_by_either_file(path: str) -> None:
    disk = SimDisk()
    memory = DiskMemory(disk)
    memory.next_life()
    memory.outlive(40)
    damage(disk, path)
    assert DiskMemory(disk).next_life() > 40
