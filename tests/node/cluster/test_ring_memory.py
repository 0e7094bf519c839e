"""A node's memory of its lives: no incarnation is used twice, whatever happens to the machine."""

from __future__ import annotations

from random import Random

import pytest

from hocket.errors import CorruptData
from hocket.node.cluster.ring_memory import JOINS_KEPT, PATH, DiskMemory, Memory, VolatileMemory
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


def test_damage_is_told_with_what_to_do() -> None:
    disk = SimDisk()
    DiskMemory(disk).next_life()
    file = disk.open(PATH)
    file.write([b"nonsense!"], 0)
    file.close()
    with pytest.raises(CorruptData, match="larger than any"):
        DiskMemory(disk)


def test_a_directory_put_back_from_an_older_copy_has_no_life_twice() -> None:
    disk = SimDisk()
    now = 1_700_000_000.5
    lives = [DiskMemory(disk, lambda: now).next_life() for _ in range(5)]
    assert lives == [1_700_000_000 + number for number in range(5)]
    older = SimDisk()
    DiskMemory(older).next_life()  # of an earlier version, say
    now += 60
    assert DiskMemory(older, lambda: now).next_life() > lives[-1]


def test_a_clock_that_is_wrong_takes_no_life_back_nor_uses_them_up() -> None:
    disk = SimDisk()
    times = iter([1_700_000_000, 5, 1 << 40])
    memory = DiskMemory(disk, lambda: next(times))
    assert [memory.next_life() for _ in range(3)] == [1_700_000_000 + each for each in range(3)]
