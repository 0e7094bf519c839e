"""Recovers a data directory: reads the checkpoint, then the WAL behind it.

Segments are not looked at, so the time this takes grows with the WAL alone. Everything that is
found, the name of the checkpoint too, is synced before anything is built on it: after a crash of
the process alone it may be in the page cache only, where a crash of the machine still takes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hocket.errors import NotADataDirectory
from hocket.log import checkpoint
from hocket.log.checkpoint import Checkpoint
from hocket.log.directory import ACCEPTED, WAL, read_file, salt_of
from hocket.log.group import GroupLog
from hocket.log.model import Damage, RecoveredGroup
from hocket.log.replay import Replay
from hocket.log.settings import LogSettings
from hocket.log.wal_files import WalFile, WalStart, number_of, wal_path
from hocket.log.wal_scan import WalScan, envelopes
from hocket.ports import Disk


@dataclass(slots=True)
class Recovery:
    checkpoint: Checkpoint
    groups: dict[int, GroupLog]
    recovered: dict[int, RecoveredGroup]
    wal: WalStart


def recover(disk: Disk, store_id: str, settings: LogSettings, now_us: int) -> Recovery:
    """Raises CorruptData if the checkpoint cannot be used, NotADataDirectory if the disk fails."""
    try:
        return _recover(disk, store_id, settings, now_us)
    except OSError as error:
        raise NotADataDirectory(f"{settings.where} cannot be read: {error}") from error


def _recover(disk: Disk, store_id: str, settings: LogSettings, now_us: int) -> Recovery:
    disk.sync_directory("")
    last = checkpoint.read(disk)
    accepted = read_accepted(disk)
    replay = Replay(last, settings, now_us, accepted)
    scan = WalScan(replay, last.lsn, set())
    start = _scan_files(disk, salt_of(store_id), last, scan)
    replay.finish()
    start.next_lsn = scan.next_lsn
    _set_damaged_apart(start, scan)
    return Recovery(last, replay.groups, replay.recovered, start)


def _scan_files(disk: Disk, salt: int, last: Checkpoint, scan: WalScan) -> WalStart:
    start = WalStart()
    numbers = [n for n in map(number_of, disk.list(WAL)) if n is not None]
    start.next_number = max([*numbers, last.generation, 0]) + 1
    for number in sorted(numbers):
        opened = disk.open(wal_path(number))
        file = WalFile(number, opened, opened.size())
        if number < last.generation:
            start.spare.append(file)
            continue
        for found in envelopes(opened.read(file.size, 0), number, salt):
            scan.feed(found)
            file.last_lsn = max(file.last_lsn, found.lsn)
        if file.last_lsn:
            opened.sync()
            start.used.append(file)
        else:
            start.spare.append(file)
    scan.end(last.durable_through)
    return start


def _set_damaged_apart(start: WalStart, scan: WalScan) -> None:
    """Mark files with damage, which are kept; among them unreadable files between used ones."""
    if not scan.damaged:
        return
    for file in [f for f in start.spare if start.used and start.used[0].number < f.number]:
        if file.number < start.used[-1].number:
            file.last_lsn = scan.next_lsn - 1
            scan.damaged.add(file.number)
            start.spare.remove(file)
            start.used.append(file)
    start.used.sort(key=lambda file: file.number)
    for file in start.used:
        file.damaged = file.number in scan.damaged


def read_accepted(disk: Disk) -> dict[int, list[Damage]]:
    """Losses that the operator has accepted, by group."""
    if not disk.exists(ACCEPTED):
        return {}
    found: dict[int, list[Damage]] = {}
    for row in json.loads(read_file(disk, ACCEPTED)):
        damage = Damage(int(row["start"]), row["end"], str(row["what"]), accepted=True)
        found.setdefault(int(row["group"]), []).append(damage)
    return found
