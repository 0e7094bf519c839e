"""The data directory: which store it belongs to, and in which format it is.

    hocket.json          what this directory is: format version, store id, checksum
    hocket.copy.json     the same again: without it, all that is stored could not be told from
                         what another store has written
    lock                 held by the running broker
    checkpoint           see `checkpoint`
    reserve              space kept aside for tidying up a full disk: for the checkpoint ...
    reserve.wal          ... and for the entries that say what goes; see `wal_files`
    wal/NUMBER.wal       see `wal`
    groups/ID/*.log      see `segment`
    groups/ID/*.away     segments that are in a storage tier; see `tier.stub`
    fetched/             what was fetched from there; emptied at every start
    damaged/             WAL files with damage in them, kept for people to look at
    accepted.json        losses that the operator has accepted; see `verify`

`hocket.json` is written last. A directory that only holds what a creation cut short leaves is new.
If one of the two files is damaged it is written anew, from the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple

from crc32c import crc32c

from hocket.errors import CorruptData, HocketError, NewerFormat, NotADataDirectory
from hocket.log import checkpoint
from hocket.log.checkpoint import Checkpoint, GroupRecord
from hocket.ports import Disk

FORMAT = 3  # the newest that is read, and written once it is needed
FORMAT_OF_NEW = 1  # an older version of Hocket can open such a directory
IDENTITY = "hocket.json"
COPY = "hocket.copy.json"
CRC = "crc32c"  # the field with the checksum of the other fields
ACCEPTED = "accepted.json"
DAMAGED = "damaged"
RESERVE = "reserve"
WAL_RESERVE = "reserve.wal"
WAL = "wal"
_UNFINISHED = frozenset(
    # what a creation that was cut short leaves, and what a fresh file system has in its root
    {"lock", "checkpoint", "checkpoint.new", f"{COPY}.new", f"{IDENTITY}.new", "lost+found"}
)


class Directory(NamedTuple):
    store_id: str
    remarks: list[str]  # what is wrong with the files that say what the directory is
    version: int = FORMAT_OF_NEW


class Format:
    """Which format the directory says it is in. It is raised when something needs that, by a job,
    before anything is written that an older version of Hocket would not understand."""

    def __init__(self, disk: Disk, store_id: str, version: int) -> None:
        self._disk = disk
        self._store_id = store_id
        self._version = version
        self._lock = Lock()  # jobs of several workers ask

    def need(self, version: int) -> None:
        if version <= self._version:
            return
        with self._lock:
            if version > self._version:
                _write_identity(self._disk, self._store_id, version, (COPY, IDENTITY))
                self._version = version


def open_directory(
    disk: Disk, where: str, new_store_id: str = "", new_groups: tuple[int, ...] = ()
) -> Directory:
    """Lock the directory, create what a new one needs, and mend what can be mended."""
    try:
        disk.make_directory("")
        names = disk.list("")
        if not {IDENTITY, COPY}.intersection(names) and not _UNFINISHED.issuperset(names):
            raise NotADataDirectory(
                f"{where} is not empty and has no {IDENTITY}: it holds something else than a "
                "broker's data; name another directory"
            )
        disk.lock()
    except OSError as error:
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    try:
        if not _is_there(disk):
            return Directory(_create(disk, new_store_id, new_groups), [])
        found = _identify(disk, where)
        _write_identity(disk, found.store_id, found.version, found.damaged)
        return Directory(found.store_id, found.remarks, found.version)
    except OSError as error:
        disk.unlock()
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    except HocketError:
        disk.unlock()
        raise


def lock_existing(disk: Disk, where: str) -> Directory:
    """Lock a directory that is there already, for looking into it."""
    try:
        if not _is_there(disk):
            raise NotADataDirectory(f"{where} has no {IDENTITY}: it is not a data directory")
        disk.lock()
    except OSError as error:
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    try:
        found = _identify(disk, where)
        return Directory(found.store_id, found.remarks, found.version)
    except BaseException:
        disk.unlock()
        raise


def store_id_of(disk: Disk, where: str) -> str:
    """The id of the store in this directory, which is made if nothing is there.

    A broker may be running on it: what is there is read, without the lock and without a change.
    """
    try:
        if _is_there(disk):
            return _identify(disk, where).store_id
    except OSError as error:
        raise NotADataDirectory(f"{where} cannot be used as a data directory: {error}") from error
    directory = open_directory(disk, where)
    disk.unlock()
    return directory.store_id


def _is_there(disk: Disk) -> bool:
    return disk.exists(IDENTITY) or disk.exists(COPY)


class _Identity(NamedTuple):
    store_id: str
    damaged: list[str]  # the files to be written anew
    remarks: list[str]
    version: int


def _identify(disk: Disk, where: str) -> _Identity:
    """Which store this is, from whichever of the two files is whole."""
    found = {name: _read_identity(disk, name) for name in (COPY, IDENTITY)}  # written in this order
    checked = {name: fields for name, fields in found.items() if fields and CRC in fields}
    whole = max(checked.values(), key=lambda fields: fields["format"], default=None)
    if len(checked) == 2 and checked[COPY]["store"] != checked[IDENTITY]["store"]:
        raise NotADataDirectory(
            f"{IDENTITY} and {COPY} in {where} name different stores; remove the one that does not "
            "belong there"
        )
    remarks: list[str] = []
    if whole is not None:
        damaged = [name for name in found if name not in checked]
        remarks += (f"{name} was damaged or missing, and is written anew" for name in damaged)
        # The power may have failed while the format was raised.
        damaged += (name for name, fields in checked.items() if fields["format"] < whole["format"])
    elif not disk.exists(COPY) and found[IDENTITY] is not None:
        # Of a version that wrote neither a checksum nor a copy.
        whole, damaged = found[IDENTITY], list(found)
    else:
        raise NotADataDirectory(
            f"{IDENTITY} and {COPY} in {where} are both damaged, so that nobody knows which store "
            f"this is. Put one of them back from a copy of the directory; or, if the log of the "
            f"broker has the store's id (it says it at every start), remove both and write "
            f"{IDENTITY} with this in it: "
            f'{{"format": {FORMAT}, "store": "THE ID"}}'
        )
    assert whole is not None
    version, store_id = whole["format"], whole["store"]
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
    return _Identity(store_id, damaged, remarks, version)


def _read_identity(disk: Disk, name: str) -> dict[str, Any] | None:
    """None if the file is missing, is damaged, or says something else than which store this is."""
    fields = read_checked(disk, name) if disk.exists(name) else None
    if not isinstance(fields, dict):
        return None
    is_one = isinstance(fields.get("format"), int) and isinstance(fields.get("store"), str)
    return fields if is_one else None


def _create(disk: Disk, store_id: str, groups: tuple[int, ...]) -> str:
    store_id = store_id or uuid.uuid4().hex
    first = Checkpoint(groups={group: GroupRecord(group) for group in groups})
    checkpoint.publish(disk, checkpoint.encode(first))
    _write_identity(disk, store_id, FORMAT_OF_NEW, (COPY, IDENTITY))
    return store_id


def _write_identity(disk: Disk, store_id: str, version: int, names: Iterable[str]) -> None:
    for name in names:
        write_checked(disk, name, {"format": version, "store": store_id})


def salt_of(store_id: str) -> int:
    """Where the CRCs of this store's envelopes begin."""
    return crc32c(store_id.encode())


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def read_checked(disk: Disk, path: str) -> Any:
    """The JSON in this file; None if it is none, or does not match the checksum in it.

    What has no checksum is handed out all the same: older versions wrote none.
    """
    try:
        value = json.loads(read_file(disk, path))
    except ValueError:  # not UTF-8 or not JSON
        return None
    if isinstance(value, dict) and CRC in value:
        fields = {name: each for name, each in value.items() if name != CRC}
        return value if value[CRC] == _crc_of(fields) else None
    return value


def write_checked(disk: Disk, path: str, fields: dict[str, Any], *, size: int = 0) -> None:
    """Write the fields and their checksum as JSON, atomically and durably; see `checked_text`."""
    new = f"{path}.new"
    file = disk.open(new, create=True)
    try:
        file.truncate(0)
        file.write([checked_text(fields, size)], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(new, path)
    disk.sync_directory("")


def checked_text(fields: dict[str, Any], size: int = 0) -> bytes:
    """The fields and their checksum as JSON; of at least `size` bytes, so that it can later be
    written over by another text of this size."""
    value = {**fields, CRC: _crc_of(fields)}
    return json.dumps(value, indent=2).encode().ljust(size - 1) + b"\n"


def _crc_of(fields: dict[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
