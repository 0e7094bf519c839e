"""One contract for disks: the real one and the simulated one."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hocket.adapters import disk as disk_module
from hocket.adapters.disk import BUFFERS_MAX, DirectoryDisk
from hocket.errors import DataDirectoryInUse
from hocket.ports import Disk
from hocket.sim.disk import SECTOR, PowerLoss, SimDisk


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = DirectoryDisk(tmp_path / "a" / "b") if request.param == "real" else SimDisk()
    made.make_directory("")
    yield made
    made.unlock()


def put(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write([data], 0)
    file.sync()
    file.close()


def get(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def test_writing_and_reading_anywhere(disk: Disk) -> None:
    file = disk.open("f", create=True)
    assert file.size() == 0
    file.write([b"hello ", bytearray(b"wide "), memoryview(b"world")], 0)
    file.write([b"W"], 11, sync=True)
    assert file.read(100, 0) == b"hello wide World"
    assert file.read(4, 6) == b"wide"
    assert file.read(4, 14) == b"ld"
    assert file.read(4, 100) == b""
    file.write([b"x"], 20)
    assert file.read(100, 16) == bytes(4) + b"x"
    assert file.size() == 21
    file.drop_cache(0, 21)
    assert file.read(5, 0) == b"hello"
    file.close()


def test_truncating(disk: Disk) -> None:
    file = disk.open("f", create=True)
    file.write([b"abcdef"], 0)
    file.truncate(3)
    assert file.read(10, 0) == b"abc"
    file.truncate(5)
    assert file.read(10, 0) == b"abc\0\0"
    file.truncate(0)
    assert file.size() == 0
    file.sync()
    file.close()


@pytest.mark.parametrize("sync", [False, True])
def test_more_buffers_than_one_call_takes(disk: Disk, sync: bool) -> None:
    buffers = [bytes([number % 251]) * (number % 3) for number in range(2 * BUFFERS_MAX + 7)]
    file = disk.open("f", create=True)
    file.write(buffers, 3, sync=sync)
    assert file.read(10_000, 3) == b"".join(buffers)
    file.close()


def test_buffers_of_other_shapes(disk: Disk) -> None:
    file = disk.open("f", create=True)
    file.write([memoryview(bytes(range(16))).cast("Q"), memoryview(b"xyz").cast("c")], 0)
    assert file.read(100, 0) == bytes(range(16)) + b"xyz"
    file.close()


def test_opening_what_is_not_there(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("nothing")
    with pytest.raises(FileNotFoundError):
        disk.open("no/such/directory", create=True)
    with pytest.raises(FileNotFoundError):
        disk.rename("nothing", "something")
    with pytest.raises(FileNotFoundError):
        disk.remove("nothing")
    assert disk.list("nothing") == []
    assert not disk.exists("nothing")
    disk.remove_tree("nothing")


def test_names(disk: Disk) -> None:
    disk.make_directory("d/e")
    disk.make_directory("d/e")
    put(disk, "d/e/one", b"1")
    put(disk, "d/two", b"2")
    assert disk.exists("d")
    assert disk.exists("d/e/one")
    assert disk.list("d") == ["e", "two"]
    assert disk.list("d/e") == ["one"]
    disk.rename("d/e/one", "d/two")
    disk.sync_directory("d")
    assert disk.list("d/e") == []
    assert get(disk, "d/two") == b"1"
    disk.remove("d/two")
    assert disk.list("d") == ["e"]
    put(disk, "d/e/three", b"3")
    disk.remove_tree("d")
    assert not disk.exists("d")
    assert not disk.exists("d/e/three")


def test_an_open_file_follows_its_rename(disk: Disk) -> None:
    file = disk.open("old", create=True)
    disk.rename("old", "new")
    file.write([b"still me"], 0, sync=True)
    file.close()
    assert get(disk, "new") == b"still me"


def test_one_lock_at_a_time(disk: Disk) -> None:
    disk.lock()
    other: Disk = disk if isinstance(disk, SimDisk) else DirectoryDisk(disk.root)  # type: ignore[attr-defined]
    with pytest.raises(DataDirectoryInUse):
        other.lock()
    disk.unlock()
    other.lock()
    other.unlock()


def test_there_is_some_space(disk: Disk) -> None:
    assert disk.free_bytes() > 0


# --- the real one --------------------------------------------------------------------------------


def test_the_lock_names_its_holder_and_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from hocket.adapters.disk import DirectoryDisk\n"
        f"disk = DirectoryDisk({str(tmp_path)!r}); disk.lock(); print('locked', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        disk = DirectoryDisk(tmp_path)
        with pytest.raises(DataDirectoryInUse, match=f"process {child.pid}"):
            disk.lock()
        child.kill()
        child.wait()
    disk.lock()
    disk.unlock()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_synced_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    write, sync = os.pwritev, os.fdatasync
    syncs = 0

    def pwritev(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(code, "not supported")
        return write(descriptor, buffers, position)

    def fdatasync(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        sync(descriptor)

    monkeypatch.setattr(disk_module.os, "pwritev", pwritev)
    monkeypatch.setattr(disk_module.os, "fdatasync", fdatasync)
    file = DirectoryDisk(tmp_path).open("f", create=True)
    file.write([b"abc"], 0, sync=True)
    file.write([b"def"], 3, sync=True)
    assert file.read(10, 0) == b"abcdef"
    assert syncs == 2
    file.close()


def test_writes_that_the_system_cuts_short_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwritev

    def short(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        return write(descriptor, [buffers[0][:2]], position, flags)

    monkeypatch.setattr(disk_module.os, "pwritev", short)
    file = DirectoryDisk(tmp_path).open("f", create=True)
    file.write([b"abc", b"", b"defgh", b"i"], 1, sync=True)
    assert file.read(20, 0) == b"\0abcdefghi"
    file.close()


# --- systems that lack what Linux has ------------------------------------------------------------

LINUX_ONLY = ("RWF_DSYNC", "pwritev", "fdatasync", "posix_fadvise", "POSIX_FADV_DONTNEED")
FULL_SYNC = 51  # F_FULLFSYNC of macOS


@pytest.mark.parametrize("lacking", [LINUX_ONLY, *[(name,) for name in LINUX_ONLY[:4]]])
def test_a_system_without_the_calls_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, ...]
) -> None:
    for name in lacking:
        monkeypatch.delattr(os, name)
    disk = DirectoryDisk(tmp_path / "a" / "b")
    disk.make_directory("")
    disk.lock()
    file = disk.open("f", create=True)
    buffers = [bytes([number % 251]) * (number % 3) for number in range(BUFFERS_MAX + 7)]
    file.write(buffers, 3, sync=True)
    file.write([b"abc"], 0, sync=True)
    file.sync()
    file.drop_cache(0, 100)
    assert file.read(10_000, 0) == b"abc" + b"".join(buffers)
    file.close()
    disk.unlock()


def test_what_is_synced_leaves_the_cache_of_the_drive_where_fsync_does_not_see_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS: F_FULLFSYNC, and no other call, for data and for names."""
    calls: list[str] = []
    for name in LINUX_ONLY:
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: calls.append("fsync"))
    monkeypatch.setattr(fcntl, "fcntl", lambda _descriptor, what: calls.append(f"fcntl {what}"))
    disk = DirectoryDisk(tmp_path)
    file = disk.open("f", create=True)
    file.write([b"abc"], 0, sync=True)
    file.sync()
    disk.sync_directory("")
    file.close()
    assert calls == [f"fcntl {FULL_SYNC}"] * 3


def test_a_file_system_that_does_not_know_the_full_sync_is_synced_as_well_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    code = errno.ENOTSUP

    def refuse(_descriptor: int, _what: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = DirectoryDisk(tmp_path).open("f", create=True)
    file.sync()
    assert len(synced) == 1
    code = errno.EIO  # which is what must never be passed over
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.close()


# --- the simulated one ---------------------------------------------------------------------------


def test_what_was_synced_survives_and_the_rest_by_chance() -> None:
    outcomes = set()
    for seed in range(50):
        disk = SimDisk()
        put(disk, "f", b"a" * 4 * SECTOR)
        disk.sync_directory("")
        file = disk.open("f")
        file.write([b"b" * SECTOR], 0, sync=True)
        file.write([b"c" * 2 * SECTOR], SECTOR)
        disk.crash(random.Random(seed))
        found = get(disk, "f")
        assert found[:SECTOR] == b"b" * SECTOR
        assert found[3 * SECTOR :] == b"a" * SECTOR
        outcomes.add(found[SECTOR : 3 * SECTOR : SECTOR])
    assert outcomes == {b"aa", b"ac", b"ca", b"cc"}


def test_names_that_were_not_synced_survive_by_chance() -> None:
    outcomes = set()
    for seed in range(50):
        disk = SimDisk()
        put(disk, "old", b"old")
        put(disk, "kept", b"kept")
        disk.sync_directory("")
        put(disk, "new", b"new")
        disk.rename("new", "old")
        disk.remove("kept")
        disk.crash(random.Random(seed))
        outcomes.add((tuple(disk.list("")), get(disk, "old")))
    assert outcomes == {
        (("kept", "old"), b"old"),
        (("kept", "new", "old"), b"old"),
        (("kept", "old"), b"new"),
        (("old",), b"new"),
    }


def test_a_killed_process_loses_nothing_and_its_files_are_closed() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.write([b"abc"], 0)
    disk.lock()
    disk.kill()
    assert get(disk, "f") == b"abc"
    disk.lock()
    with pytest.raises(AssertionError, match="opened before the crash"):
        file.write([b"x"], 0)


def test_planted_faults() -> None:
    disk = SimDisk(capacity_bytes=1000)
    put(disk, "f", bytes(900))
    assert disk.free_bytes() == 100
    with pytest.raises(OSError) as full:
        put(disk, "g", bytes(101))
    assert full.value.errno == errno.ENOSPC
    file = disk.open("f")
    file.write([b"x" * 900], 0)  # over old bytes: needs no room
    disk.flip("f", 3, 0x80)
    assert file.read(2, 3) == bytes([ord("x") ^ 0x80]) + b"x"

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "bad sector", path)

    disk.before = fail
    file.write([b"y"], 0)
    with pytest.raises(OSError, match="bad sector"):
        file.sync()
    with pytest.raises(OSError, match="bad sector"):
        file.write([b"y"], 0, sync=True)

    def lose(operation: str, path: str) -> None:
        raise PowerLoss

    disk.before = lose
    with pytest.raises(PowerLoss):
        disk.remove("f")


@given(st.data())
def test_files_behave_like_a_bytearray(data: st.DataObject) -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    model = bytearray()
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, 1500))
        chunk = data.draw(st.binary(max_size=700))
        if data.draw(st.booleans()):
            file.write([chunk], position, sync=data.draw(st.booleans()))
            if chunk:
                model.extend(bytes(max(position + len(chunk) - len(model), 0)))
                model[position : position + len(chunk)] = chunk
        else:
            file.truncate(position)
            model[position:] = bytes(max(position - len(model), 0))
        assert file.read(4000, 0) == model
    file.sync()
    disk.sync_directory("")
    disk.crash(random.Random(0))
    assert get(disk, "f") == model
