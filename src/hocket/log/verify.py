"""Looks into a data directory while no broker runs on it: for the command line.

`verify` changes nothing. `accept_loss` writes down that the operator knows what is lost. From the
next start on, readers skip the loss, and a group whose end was unknown takes entries again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hocket.log.directory import ACCEPTED, RESERVE, Directory, lock_existing, write_checked
from hocket.log.model import METADATA, VITAL, Damage, Report
from hocket.log.recovery import Recovery, read_accepted, recover
from hocket.log.replay import EVERY_OTHER
from hocket.log.segment import SegmentRecord
from hocket.log.segment_reader import SegmentView, walk_segment
from hocket.log.settings import LogSettings
from hocket.log.tier.stub import is_away
from hocket.log.wal_files import NO_SPACE
from hocket.ports import Disk


def verify(disk: Disk, where: str = "the data directory") -> Report:
    """Read everything: the checkpoint, the WAL, every segment. Takes the lock meanwhile."""
    directory = lock_existing(disk, where)
    try:
        return _report(disk, directory, _recovered(disk, directory, where))
    finally:
        disk.unlock()


def _recovered(disk: Disk, directory: Directory, where: str) -> Recovery:
    found = recover(disk, directory.store_id, LogSettings(where=where), now_us=0)
    found.close_files()
    return found


def _report(disk: Disk, directory: Directory, found: Recovery) -> Report:
    report = Report(directory.store_id, groups=len(found.groups))
    report.remarks += [*directory.remarks, *found.remarks]
    for group in sorted(found.groups):
        _verify_group(disk, found, group, report)
    if found.replay.doubt:
        if METADATA not in found.groups:  # there is no store without it
            report.damage.append((METADATA, found.replay.unseen(METADATA)))
        report.remarks.append(
            f"logs that are not listed may have had entries that are lost: {found.replay.doubt}"
        )
    return report


def accept_loss(disk: Disk, group: int, where: str = "the data directory") -> list[Damage]:
    """Accept all damage of a group. Returns the damage that was not accepted before."""
    return [damage for _, damage in accept_losses(disk, group, where)]


def accept_losses(
    disk: Disk, group: int | None, where: str = "the data directory"
) -> list[tuple[int, Damage]]:
    """The same, of all groups if `group` is None; each damage with its group."""
    directory = lock_existing(disk, where)
    try:
        found = _recovered(disk, directory, where)
        report = _report(disk, directory, found)
        news = [
            (number, replace(damage, accepted=True))
            for number, damage in report.damage
            if _is_meant(number, group) and not damage.accepted
        ]
        accepted = read_accepted(disk, [])
        if found.replay.doubt and group not in found.groups:
            # Nothing was found of the group, whose topic the metadata may know all the same.
            number = EVERY_OTHER if group is None else group
            what = found.replay.doubt
            unseen = Damage(0, None, what, accepted=True, first_index=1, end_index=1)
            known = [*accepted.get(number, ()), *(each for at, each in news if at == number)]
            if not any(each.covers(unseen) for each in known):
                news.append((number, unseen))
        for number, damage in news:
            accepted.setdefault(number, []).append(damage)
        rows = [
            {
                "group": number, "start": damage.start, "end": damage.end, "what": damage.what,
                "first_index": damage.first_index, "end_index": damage.end_index,
            }
            for number, losses in sorted(accepted.items())
            for damage in losses
        ]  # fmt: skip
        if news:
            _write_accepted(disk, {"accepted": rows})
    finally:
        disk.unlock()
    return news


def _is_meant(number: int, group: int | None) -> bool:
    """Whether who accepts the loss in `group` accepts it in this one."""
    # Metadata and decisions are lost together, and one was part of the other once.
    return group in (None, number) or (group == METADATA and number in VITAL)


def _write_accepted(disk: Disk, content: dict[str, Any]) -> None:
    """In the room that is kept for a checkpoint, if the disk is full."""
    try:
        write_checked(disk, ACCEPTED, content)
    except OSError as error:
        if error.errno not in NO_SPACE or not disk.exists(RESERVE):
            raise
        disk.remove(RESERVE)
        disk.sync_directory("")
        write_checked(disk, ACCEPTED, content)


def _verify_group(disk: Disk, found: Recovery, group: int, report: Report) -> None:
    log = found.groups[group]
    damages = list(log.damage)
    last_crc: int | None = None  # None: not known
    next_index = 0
    for record in log.record.segments:
        if record.first_index != next_index:
            last_crc = None
        for damage, crc in _verify_segment(disk, group, record, last_crc, report):
            last_crc = crc
            if damage is not None:
                damages.append(damage)
        next_index = record.end_index
    report.entries += len(found.recovered[group].entries)
    report.bytes += log.unwritten_bytes
    is_chained = next_index == log.record.end.next_index and last_crc is not None
    if is_chained and last_crc != log.record.end.last_crc:
        end = log.record.end.next_offset
        damages.append(Damage(end, end, "the segments do not end with the entry recorded"))
    known = [damage for damage in damages if damage.accepted]
    for damage in damages:
        is_known = damage.accepted or any(each.covers(damage) for each in known)
        report.damage.append((group, replace(damage, accepted=is_known)))


def _verify_segment(
    disk: Disk, group: int, record: SegmentRecord, last_crc: int | None, report: Report
) -> list[tuple[Damage | None, int | None]]:
    """For each damage, and for the end: (the damage or None, CRC of the last entry if known)."""
    view = SegmentView(group, record, interval=0)
    steps: list[tuple[Damage | None, int | None]] = []
    if is_away(disk, view.path):
        report.away_segments += 1
        report.away_bytes += record.size
        return [(None, None)]
    report.bytes += record.size
    try:
        for met in walk_segment(disk, view):
            damage = met.damage
            header = met.header
            if header is None:
                last_crc = None
            else:
                report.entries += 1
                if damage is None and last_crc not in (None, header.previous_crc):
                    damage = Damage(
                        header.base_offset, header.end_offset,
                        f"does not follow the entry before it, in {view.path}", is_lasting=False,
                    )  # fmt: skip
                last_crc = header.crc
            if damage is not None:
                steps.append((damage, last_crc))
    except OSError as error:
        words = f"{view.path} cannot be read: {error}"
        steps.append((Damage(record.base_offset, record.end_offset, words, is_lasting=False), None))
        last_crc = None
    steps.append((None, last_crc))
    return steps
