"""The files of the WAL, and the jobs that make them ready.

A file is filled with zeros before it is used, so that a commit changes no metadata and needs no
space. The numbers of files only grow. A file that is not needed any more is renamed to the next
number and used again. Every envelope names the number of its file, so envelopes from an earlier use
of the file are never taken for new.

One file more is kept aside, as the reserve: when the disk is full, it takes the entries that make
room. It is renamed to the next number then, so that it needs no space.

Rule: a rename or a new name is synced, and listed (`wal_list`), before anything is committed under
it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from hocket.errors import StorageFull
from hocket.log.directory import DAMAGED, WAL, WAL_RESERVE
from hocket.log.envelope import ALIGNMENT
from hocket.log.wal_list import WalList
from hocket.ports import Disk, File

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_NEW_PATH = f"{WAL}/new"
_ZEROS = bytes(1 << 20)


def wal_path(number: int) -> str:
    return f"{WAL}/{number:012}.wal"


def number_of(name: str) -> int | None:
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "wal" and stem.isdecimal() else None


@dataclass(slots=True, eq=False)
class WalFile:
    number: int
    file: File
    size: int
    position: int = 0  # where the next envelope goes
    last_lsn: int = 0
    damaged: bool = False  # it is kept for people to look at, and never used again

    @property
    def room(self) -> int:
        return self.size - self.position


@dataclass(slots=True)
class WalStart:
    """What recovery hands over."""

    next_lsn: int = 1
    next_number: int = 1
    used: list[WalFile] = field(default_factory=list)  # files still needed, oldest first
    spare: list[WalFile] = field(default_factory=list)  # files not needed, to be used again
    foreign: list[WalFile] = field(default_factory=list)  # not ours, and not needed: set aside


# --- jobs: no state but what they are given ------------------------------------------------------


def create(disk: Disk, files: WalList, number: int, size: int) -> WalFile:
    file = _create(disk, wal_path(number), size)
    return _listed(files, WalFile(number, file, size))


def _listed(files: WalList, file: WalFile) -> WalFile:
    """List a file that has its number. It stays if that fails: it may be listed by then."""
    try:
        files.add(file.number, file.size)
    except BaseException:
        file.file.close()
        raise
    return file


def create_reserve(disk: Disk, size: int) -> None:
    _create(disk, WAL_RESERVE, size).close()
    disk.sync_directory("")


def _create(disk: Disk, path: str, size: int) -> File:
    """A new file of `size` zeros, durably, under its name."""
    assert size % ALIGNMENT == 0
    disk.make_directory(WAL)
    file = disk.open(_NEW_PATH, create=True)
    try:
        file.truncate(0)
        for position in range(0, size, len(_ZEROS)):
            file.write([_ZEROS[: size - position]], position)
        file.sync()
        disk.rename(_NEW_PATH, path)
        disk.sync_directory(WAL)
    except BaseException:
        file.close()
        _remove_quietly(disk, _NEW_PATH)
        raise
    return file


def reserve_bytes(disk: Disk) -> int:
    """The size of the reserve; 0 if there is none."""
    if not disk.exists(WAL_RESERVE):
        return 0
    file = disk.open(WAL_RESERVE)
    try:
        return file.size() // ALIGNMENT * ALIGNMENT
    finally:
        file.close()


def take_reserve(disk: Disk, files: WalList, number: int, size: int) -> WalFile:
    file = disk.open(WAL_RESERVE)
    disk.rename(WAL_RESERVE, wal_path(number))
    disk.sync_directory(WAL)
    disk.sync_directory("")
    return _listed(files, WalFile(number, file, size))


def reuse(disk: Disk, files: WalList, file: WalFile, number: int, *, needed: bool) -> WalFile:
    """Give the file this number. `needed`: recovery would miss it under its present one."""
    _unlist(files, file, needed=needed)
    disk.rename(wal_path(file.number), wal_path(number))
    disk.sync_directory(WAL)
    files.add(number, file.size)
    return WalFile(number, file.file, file.size)


def remove(disk: Disk, files: WalList, file: WalFile, *, needed: bool) -> None:
    _unlist(files, file, needed=needed)
    file.file.close()
    disk.remove(wal_path(file.number))
    disk.sync_directory(WAL)


def keep_damaged(disk: Disk, files: WalList, file: WalFile) -> None:
    _unlist(files, file, needed=True)
    file.file.close()
    disk.make_directory(DAMAGED)
    disk.rename(wal_path(file.number), f"{DAMAGED}/{file.number:012}.wal")
    disk.sync_directory(DAMAGED)
    disk.sync_directory(WAL)


def _unlist(files: WalList, file: WalFile, *, needed: bool) -> None:
    if needed:
        files.drop(file.number)
    else:
        files.forget(file.number)


def _remove_quietly(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except OSError:
        return  # what matters is the write that failed before


def storage_full(where: str, why: str) -> StorageFull:
    return StorageFull(
        f"the disk of {where} is full ({why}); delete topics, shorten their retention or make room "
        "there, and writing goes on by itself"
    )
