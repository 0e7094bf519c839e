"""A simulated disk that lies: what it lost or put elsewhere shows when the power has failed."""

from __future__ import annotations

from random import Random

from hocket.sim.disk import SECTOR, Lies, SimDisk

DATA = bytes(range(256)) * 8  # four sectors


def written(lies: Lies | None, *, sync: bool = True) -> SimDisk:
    disk = SimDisk()
    disk.lie(lies)
    file = disk.open("file", create=True)
    disk.sync_directory("")
    file.write([DATA], 0, sync=sync)
    if not sync:
        file.sync()
    return disk


def content(disk: SimDisk) -> bytes:
    return disk.open("file").read(len(DATA) + SECTOR, 0)


def test_an_honest_disk_keeps_what_was_synced():
    for sync in (True, False):
        disk = written(None, sync=sync)
        disk.crash(Random(1))
        assert content(disk) == DATA


def test_a_lost_write_is_seen_after_a_power_failure_and_not_before():
    for sync in (True, False):
        lies = Lies(Random(1), 1.0)
        disk = written(lies, sync=sync)
        assert lies.told == 4
        assert content(disk) == DATA
        disk.kill()  # the process ends, and the machine's memory has it
        assert content(disk) == DATA
        disk.crash(Random(1))
        assert content(disk) == bytes(len(DATA))


def test_a_misdirected_write_lands_on_another_sector():
    disk = SimDisk()
    file = disk.open("file", create=True)
    disk.sync_directory("")
    file.write([bytes(4 * SECTOR)], 0, sync=True)
    disk.lie(Lies(Random(3), 1.0, misdirects=True))
    file.write([b"x" * SECTOR], 0, sync=True)
    disk.crash(Random(1))
    sectors = [content(disk)[at : at + SECTOR] for at in range(0, 4 * SECTOR, SECTOR)]
    assert len(content(disk)) == 4 * SECTOR
    assert sectors.count(b"x" * SECTOR) <= 1
    assert set(sectors) <= {b"x" * SECTOR, bytes(SECTOR)}


def test_a_disk_that_behaves_again_tells_the_truth():
    disk = written(Lies(Random(1), 1.0))
    disk.capacity_bytes = 1
    disk.behave()
    file = disk.open("file")
    file.write([DATA], 0, sync=True)
    disk.crash(Random(1))
    assert content(disk) == DATA
    assert disk.free_bytes() > 1 << 30
