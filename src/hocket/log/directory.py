"""The data directory: which store it belongs to, and in which format it is.

    hocket.json          what this directory is: format version, store id
    lock                 held by the running broker
    checkpoint           see `checkpoint`
    reserve              space kept aside for tidying up a full disk: for the checkpoint ...
    reserve.wal          ... and for the entries that say what goes; see `wal_files`
    wal/NUMBER.wal       see `wal`
    groups/ID/*.log      see `segment`
    damaged/             WAL files with damage in them, kept for people to look at
    accepted.json        losses that the operator has accepted; see `verify`

`hocket.json` is written last. A directory that only holds what a creation cut short leaves is new.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from crc32c import crc32c

from hocket.errors import CorruptData, HocketError, NewerFormat, NotADataDirectory
from hocket.log import checkpoint
from hocket.log.checkpoint import Checkpoint
from hocket.ports import Disk

FORMAT = 1
IDENTITY = "hocket.json"
ACCEPTED = "accepted.json"
DAMAGED = "damaged"
RESERVE = "reserve"
WAL_RESERVE = "reserve.wal"
WAL = "wal"
_UNFINISHED = frozenset(
    # what a creation that was cut short leaves, and what a fresh file system has in its root
    {"lock", "checkpoint", "checkpoint.new", f"{IDENTITY}.new", "lost+found"}
)


def open_directory(disk: Disk, where: str, new_store_id: str = "") -> str:
    """Lock the directory, and create what a new one needs. Returns the store's id."""
    try:
        disk.make_directory("")
        names = disk.list("")
        if IDENTITY not in names and not _UNFINISHED.issuperset(names):
            raise NotADataDirectory(
                f"{where} is not empty and has no {IDENTITY}: it holds something else than a "
                "broker's data; name another directory"
            )
        disk.lock()
    except OSError as error:
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    try:
        return _identify(disk, where) if disk.exists(IDENTITY) else _create(disk, new_store_id)
    except OSError as error:
        disk.unlock()
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    except HocketError:
        disk.unlock()
        raise


def _identify(disk: Disk, where: str) -> str:
    try:
        identity = json.loads(read_file(disk, IDENTITY))
        version, store_id = int(identity["format"]), str(identity["store"])
    except (ValueError, KeyError, TypeError) as error:
        raise NotADataDirectory(f"{IDENTITY} in {where} cannot be read: {error!r}") from error
    if version > FORMAT:
        raise NewerFormat(
            f"{where} was written in format {version}, by a newer version of Hocket than this "
            f"one, which reads format {FORMAT}; install that version"
        )
    if not disk.exists(checkpoint.PATH):
        raise CorruptData(
            f"{where} has no file {checkpoint.PATH!r}, without which the log cannot be read; put "
            "it back from a copy of the data directory"
        )
    return store_id


def lock_existing(disk: Disk, where: str) -> str:
    """Lock a directory that is there already, for looking into it. Returns the store's id."""
    try:
        if not disk.exists(IDENTITY):
            raise NotADataDirectory(f"{where} has no {IDENTITY}: it is not a data directory")
        disk.lock()
    except OSError as error:
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    try:
        return _identify(disk, where)
    except BaseException:
        disk.unlock()
        raise


def _create(disk: Disk, store_id: str) -> str:
    store_id = store_id or uuid.uuid4().hex
    checkpoint.publish(disk, checkpoint.encode(Checkpoint()))
    write_json(disk, IDENTITY, {"format": FORMAT, "store": store_id})
    return store_id


def salt_of(store_id: str) -> int:
    """Where the CRCs of this store's envelopes begin."""
    return crc32c(store_id.encode())


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def write_json(disk: Disk, path: str, value: Any) -> None:
    """Write the file atomically and durably."""
    new = f"{path}.new"
    file = disk.open(new, create=True)
    try:
        file.truncate(0)
        file.write([json.dumps(value, indent=2).encode() + b"\n"], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(new, path)
    disk.sync_directory("")
