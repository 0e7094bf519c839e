"""The store on a real disk, with real threads; and killed without warning."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.adapters.disk import DirectoryDisk
from hocket.errors import DataDirectoryInUse, HocketError, NotADataDirectory
from hocket.log.model import HardState
from hocket.log.store import ReadResult
from hocket.log.verify import verify
from hocket.wire.entry import HEADER_BYTES, unpack_header
from tests.support.log.appender import GROUPS, Host, body_of
from tests.support.processes.forked import popen

ROUNDS = 5
LINES = 60  # commits to wait for before the kill


def read_all(host: Host, group: int) -> int:
    """Every record of the group, compared. Returns how many there are."""
    end = host.next[group][1]
    offset = 0
    while offset < end:
        answers: list[ReadResult | HocketError] = []
        result = host.store.read(
            group, offset, bytes_max=100_000, end_offset=end, done=answers.append
        )
        while result is None and not answers:
            host.turn(wait=True)
        found = result or answers[0]
        assert isinstance(found, ReadResult), found
        data = b"".join(found.slices)
        position = 0
        while position < len(data):
            header = unpack_header(data, position)
            assert header.base_offset == offset
            start = position + HEADER_BYTES
            assert data[start : start + header.length] == body_of(group, header.index)
            position += header.size
            offset += 1
    return offset


def test_kill_minus_nine(tmp_path: Path) -> None:
    """Whatever a process had said to be durable is there after it was killed, again and again."""
    said: dict[int, int] = {}
    for number in range(ROUNDS):
        command = [sys.executable, "-m", "tests.support.log.appender", str(tmp_path), str(number)]
        with popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(LINES + 7 * number):
                words = [int(word) for word in child.stdout.readline().split()]
                said.update(zip(words[::2], words[1::2], strict=True))
            child.kill()
            rest = child.stdout.read()
        for line in rest.splitlines(keepends=True):
            if line.endswith("\n"):
                words = [int(word) for word in line.split()]
                said.update(zip(words[::2], words[1::2], strict=True))
        report = verify(DirectoryDisk(tmp_path))
        assert report.ok, report
    host = Host(str(tmp_path))
    for group in GROUPS:
        assert not host.store.recovered[group].damage
        assert host.next[group][0] > said[group] > 100
        assert read_all(host, group) == host.next[group][1]
    assert sum(host.store.stats(group).disk_reads for group in GROUPS) > 0
    host.close()


def test_a_life_on_a_real_disk(tmp_path: Path) -> None:
    directory = tmp_path / "made" / "by itself"
    host = Host(str(directory))
    with pytest.raises(DataDirectoryInUse, match=str(os.getpid())):
        DirectoryDisk(directory).lock()
    for _ in range(100):
        for group in GROUPS:
            host.append(group)
        host.store.flush()
        host.store.tick()
        host.turn()
    host.close()
    assert host.durable == dict.fromkeys(GROUPS, 100)
    assert verify(DirectoryDisk(directory)).ok
    host = Host(str(directory))
    assert all(not found.entries for found in host.store.recovered.values())
    for group in GROUPS:
        assert read_all(host, group) == 100
    assert host.stopped is None
    host.close()


def test_an_acknowledgement_comes_soon(tmp_path: Path) -> None:
    """Not a benchmark: it only shows that nobody commits_only anywhere."""
    host = Host(str(tmp_path))
    start = time.monotonic()
    for _ in range(20):
        host.append(1)
        host.store.flush()
        while host.durable.get(1, 0) < host.next[1][0] - 1:
            host.turn(wait=True)
    assert time.monotonic() - start < 10
    host.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(NotADataDirectory, match="Permission denied"):
            Host(str(tmp_path / "data"))
    finally:
        tmp_path.chmod(0o700)


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    with pytest.raises(NotADataDirectory, match="cannot be used"):
        Host(str(path))


def test_a_log_is_cut_back_and_keeps_its_vote(tmp_path: Path) -> None:
    """Threads sync what was cut meanwhile; a raw read of the file is the log that was meant."""
    host = Host(str(tmp_path))
    told: list[bool] = []
    for _ in range(20):
        host.append(1)
        host.store.flush()
    host.store.replicated.persist(1, HardState(3, "ann"), lambda: told.append(True))
    host.store.replicated.truncate(1, 5)
    host.next[1] = (6, 5)
    host.durable[1] = min(host.durable.get(1, 0), 5)
    host.append(1)
    host.store.flush()
    while not told or host.durable.get(1) != 6:
        host.turn(wait=True)
    host.close()
    assert verify(DirectoryDisk(str(tmp_path))).ok
    again = Host(str(tmp_path))
    assert again.store.recovered[1].state == HardState(3, "ann")
    assert again.next[1] == (7, 6)
    assert read_all(again, 1) == 6
    again.close()
