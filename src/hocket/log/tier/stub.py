"""The record of a segment that is away: a small file beside the other segments of its group.

Rule 1: a segment is away if its stub is there and its own file is not. With both of them the file
        counts, and the stub means nothing: it may be torn.
Rule 2: the file is removed only when the stub is synced, and its name as well.

The stub has the length and the CRC of the whole segment. The key follows from the store, the group
and the name of the segment alone; so a stub that is damaged loses nothing but the comparison.
"""

from __future__ import annotations

from typing import NamedTuple

from hocket.log.directory import checked_text, read_checked
from hocket.log.segment import index_path
from hocket.ports import Disk

ENDING = ".away"


class Stub(NamedTuple):
    tier: str  # the plug-in that has taken it
    size: int
    crc: int


def stub_path(path: str) -> str:
    return path.removesuffix(".log") + ENDING


def names_beside(path: str) -> tuple[str, str, str]:
    """All files that a segment may have."""
    return path, index_path(path), stub_path(path)


def key_of(store_id: str, path: str) -> str:
    """By which key a tier keeps the segment of this path, `groups/GROUP/NAME.log`."""
    return f"{store_id}/{path.removeprefix('groups/')}"


def write_stub(disk: Disk, path: str, stub: Stub) -> None:
    file = disk.open(stub_path(path), create=True)
    try:
        file.truncate(0)
        file.write([checked_text({"tier": stub.tier, "size": stub.size, "crc": stub.crc})], 0)
        file.sync()
    finally:
        file.close()
    disk.sync_directory(path.rpartition("/")[0])


def read_stub(disk: Disk, path: str) -> Stub | None:
    """None if it is damaged, or not there."""
    if not disk.exists(stub_path(path)):
        return None
    fields = read_checked(disk, stub_path(path))
    try:
        return Stub(str(fields["tier"]), int(fields["size"]), int(fields["crc"]))
    except (KeyError, TypeError, ValueError):
        return None


def is_away(disk: Disk, path: str) -> bool:
    return disk.exists(stub_path(path)) and not disk.exists(path)
