"""Recovers a data directory: reads the checkpoint, then the WAL behind it.

Segments are not looked at, so the time this takes grows with the WAL alone. Everything that is
found, the name of the checkpoint too, is synced before anything is built on it: after a crash of
the process alone it may be in the page cache only, where a crash of the machine still takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hocket.errors import NotADataDirectory
from hocket.log import checkpoint
from hocket.log.checkpoint import Checkpoint
from hocket.log.directory import ACCEPTED, DAMAGED, WAL, read_checked, salt_of
from hocket.log.envelope import HEADERS_BYTES, is_foreign
from hocket.log.group import GroupLog
from hocket.log.model import Damage, RecoveredGroup
from hocket.log.replay import Replay
from hocket.log.settings import LogSettings
from hocket.log.wal_files import WalFile, WalStart, number_of, wal_path
from hocket.log.wal_list import PATH as LIST, WalList
from hocket.log.wal_scan import WalScan, envelopes
from hocket.ports import Disk


@dataclass(slots=True)
class Recovery:
    checkpoint: Checkpoint
    replay: Replay
    wal: WalStart
    files: WalList
    remarks: list[str]  # what is wrong with files, and who reads the log should know
    accepts: bool  # the operator has accepted losses that the checkpoint does not know as accepted

    @property
    def groups(self) -> dict[int, GroupLog]:
        return self.replay.groups

    @property
    def recovered(self) -> dict[int, RecoveredGroup]:
        return self.replay.recovered

    @property
    def has_news(self) -> bool:
        """Whether there is something about damage that the checkpoint does not know."""
        return (
            self.accepts
            or bool(self.replay.doubt)
            or self.replay.lacks_votes
            or any(log.lasting_damage != log.record.damage for log in self.groups.values())
        )

    @property
    def summary(self) -> str:
        entries = sum(len(each.entries) for each in self.recovered.values())
        behind = f"{_count(entries, 'entry', 'entries')} behind their last checkpoint"
        files = f"{_count(len(self.wal.used), 'file', 'files')} of the write-ahead log"
        return f"{_count(len(self.groups), 'log', 'logs')}, with {behind}, from {files}"

    def close_files(self) -> None:
        for file in (*self.wal.used, *self.wal.spare, *self.wal.foreign):
            file.file.close()


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def recover(
    disk: Disk, store_id: str, settings: LogSettings, now_us: int, *, has_votes: bool = False
) -> Recovery:
    """Raises CorruptData if the checkpoint cannot be used, NotADataDirectory if the disk fails."""
    try:
        return _recover(disk, store_id, settings, now_us, has_votes)
    except OSError as error:
        raise NotADataDirectory(f"{settings.where} cannot be read: {error}") from error


def _recover(
    disk: Disk, store_id: str, settings: LogSettings, now_us: int, has_votes: bool
) -> Recovery:
    disk.sync_directory("")
    last = checkpoint.read(disk)
    remarks: list[str] = []
    accepted = read_accepted(disk, remarks)
    salt = salt_of(store_id)
    files = WalList(disk, salt)
    if files.is_damaged:
        remarks.append(f"{LIST} cannot be read: a file of the log that is gone would not be missed")
    replay = Replay(last, settings, now_us, accepted, has_votes=has_votes)
    scan = WalScan(replay, last.lsn, set())
    start = _scan_files(disk, salt, last, files, scan, remarks)
    replay.finish()
    start.next_lsn = scan.next_lsn
    _set_damaged_apart(start, scan)
    remarks += (
        f"{wal_path(each.number)} has damage in it, and will be kept in {DAMAGED}/"
        for each in start.used
        if each.damaged
    )
    return Recovery(last, replay, start, files, remarks, bool(accepted))


def _scan_files(
    disk: Disk, salt: int, last: Checkpoint, files: WalList, scan: WalScan, remarks: list[str]
) -> WalStart:
    start = WalStart()
    present = {n for n in map(number_of, disk.list(WAL)) if n is not None}
    for number in [n for n in files.files if n < last.generation and n not in present]:
        files.forget(number)
    numbers = present.union(files.files)
    start.next_number = max([*numbers, last.generation, 0]) + 1
    for number in sorted(numbers):
        if number not in present:
            _missing(scan, number, f"{wal_path(number)} is gone", remarks)
            continue
        opened = disk.open(wal_path(number))
        file = WalFile(number, opened, opened.size())
        if number < last.generation:
            is_ours = not is_foreign(memoryview(opened.read(HEADERS_BYTES, 0)), salt)
            (start.spare if is_ours else start.foreign).append(file)
            if not is_ours:
                remarks.append(_foreign(number))
            continue
        data = opened.read(file.size, 0)
        for found in envelopes(data, number, salt):
            scan.feed(found)
            file.last_lsn = max(file.last_lsn, found.lsn)
        if not file.last_lsn and is_foreign(memoryview(data[:HEADERS_BYTES]), salt):
            file.damaged = True
            _missing(scan, number, _foreign(number), remarks)
        elif not file.last_lsn and number in files.used:
            words = f"{wal_path(number)} holds nothing of what was written to it"
            _missing(scan, number, words, remarks)
        size = files.files.get(number, file.size)
        if file.size < size:
            words = f"{wal_path(number)} is cut short, {file.size} bytes of {size}"
            _missing(scan, number, words, remarks)
        if file.last_lsn:
            opened.sync()
            start.used.append(file)
        else:
            start.spare.append(file)
    scan.end(last.durable_through)
    return start


def _missing(scan: WalScan, number: int, why: str, remarks: list[str]) -> None:
    scan.missing(number, why)
    remarks.append(why)


def _foreign(number: int) -> str:
    return f"{wal_path(number)} has no envelope of this store, but of another, or damaged ones"


def _set_damaged_apart(start: WalStart, scan: WalScan) -> None:
    """Mark files with damage, which are kept; among them unreadable files between used ones.

    Files that are not ours are kept, too. Those that nothing is missing of are not needed as proof
    of damage, and are set aside at once.
    """
    used = [file.number for file in start.used] if scan.damaged else []
    for file in list(start.spare):
        is_between = bool(used) and used[0] < file.number < used[-1]
        if is_between or file.number in scan.damaged:
            file.last_lsn = scan.next_lsn - 1
            scan.damaged.add(file.number)
            start.spare.remove(file)
            start.used.append(file)
    start.used.sort(key=lambda file: file.number)
    for file in start.used:
        file.damaged = file.number in scan.damaged
    start.foreign += (file for file in start.spare if file.damaged)
    start.spare = [file for file in start.spare if not file.damaged]


def read_accepted(disk: Disk, remarks: list[str]) -> dict[int, list[Damage]]:
    """Losses that the operator has accepted and no checkpoint knows of yet, by group."""
    if not disk.exists(ACCEPTED):
        return {}
    try:
        return _accepted_in(read_checked(disk, ACCEPTED))
    except (AttributeError, KeyError, TypeError, ValueError):
        remarks.append(f"{ACCEPTED} is damaged, so that what it accepts is not accepted")
        return {}


def _accepted_in(content: Any) -> dict[int, list[Damage]]:
    found: dict[int, list[Damage]] = {}
    # A version that wrote no checksum wrote the rows alone.
    for row in content if isinstance(content, list) else content["accepted"]:
        end = row["end"]
        damage = Damage(
            int(row["start"]), None if end is None else int(end), str(row["what"]), accepted=True,
            first_index=int(row.get("first_index", 0)), end_index=int(row.get("end_index", 0)),
        )  # fmt: skip
        found.setdefault(int(row["group"]), []).append(damage)
    return found
