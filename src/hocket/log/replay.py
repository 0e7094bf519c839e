"""Rebuilds the groups from a checkpoint and from what the WAL holds behind it.

What was lost is known exactly from the table of the next envelope, or from the next entry of the
same group. Where neither is there, the group's end is unknown, and the group takes no more entries
until the operator has accepted the loss. That may be true of groups that nothing was found of.
"""

from __future__ import annotations

from dataclasses import replace

from crc32c import crc32c

from hocket.log.checkpoint import Checkpoint
from hocket.log.group import UNKNOWN, GroupLog
from hocket.log.model import Damage, HardState, LogEnd, Loss, RecoveredGroup, Truncation
from hocket.log.settings import LogSettings
from hocket.log.wal_scan import WalEntry
from hocket.model import EntryKind
from hocket.wire.entry import Header

EVERY_OTHER = -1  # in place of a group's number: all groups that nothing was found of
_LOST = "lost to damage in the write-ahead log"
_BODY = "does not match its checksum, in the write-ahead log"


class Replay:
    """The `wal_scan.ScanTarget` that fills groups.

    An entry takes the place of all that the log has from its index on, if it follows what is
    before that. What was cut off without a trace of what came instead is known from notes. If a
    note is lost as well, nobody knows from where on the log is another one: then all that no
    checkpoint has counts as lost.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: LogSettings,
        now_us: int,
        accepted: dict[int, list[Damage]],
        *,
        has_votes: bool = False,
    ) -> None:
        """`has_votes`: groups of this store may have terms and votes."""
        self._checkpoint = checkpoint
        self._settings = settings
        self._now_us = now_us
        self._accepted = accepted
        self._seen: dict[int, int] = {}  # group -> the LSN up to which its end is known
        self._unknown_from = 0  # from this LSN on, unknown entries are missing; 0: none are
        self._cut = ""  # why the end of no group is known; empty when that is not so
        self._has_votes = has_votes
        self.lacks_votes = False  # terms and votes may be lost, of any group
        self.doubt = ""  # why a group that nothing was found of may have had entries
        self.groups: dict[int, GroupLog] = {}
        self.recovered: dict[int, RecoveredGroup] = {}
        for number, record in checkpoint.groups.items():
            log = self._add(GroupLog(number, settings, record))
            log.damage = [self._judged(log, damage) for damage in log.damage]
            for damage in accepted.get(number, ()):
                if damage.end is not None:
                    log.note(damage)

    def _add(self, log: GroupLog) -> GroupLog:
        self.groups[log.id] = log
        self.recovered[log.id] = RecoveredGroup(
            log.record.snapshot, log.record.snapshot_index, log.record.end.term,
            log_start=log.log_start, state=log.state,
        )  # fmt: skip
        return log

    def _group(self, number: int) -> GroupLog | None:
        if number in self._checkpoint.deleted:
            return None
        return self.groups.get(number) or self._add(GroupLog(number, self._settings))

    # --- what the scan finds ---------------------------------------------------------------------

    def table(self, rows: list[tuple[int, LogEnd]], lsn: int, *, complete: bool) -> None:
        for number, end in rows:
            log = self._group(number)
            if log is None:
                continue
            self._seen[number] = lsn
            if any(each.covers_end(end, lsn) for each in log.truncations):
                continue
            if log.end.next_index < end.next_index:
                self._skip(log, end, _LOST)
            elif log.record.end.next_index < end.next_index and not _agrees(log, end):
                self._exchange(log, end)
        if complete:
            self.lacks_votes = False  # all notes stood beside that table
        if complete or self._unknown_from == lsn:
            self._unknown_from = 0

    def note(self, group: int, note: HardState | Truncation) -> None:
        log = self._group(group)
        if log is None:
            return
        if isinstance(note, HardState):
            if log.state.may_become(note):
                log.state = self.recovered[group].state = note
            return
        log.note_truncation(note)
        has_newer = log.commits and log.commits[-1][0] >= note.lsn
        if log.record.end.next_index <= note.end.next_index < log.end.next_index and not has_newer:
            self._truncate(log, note.end)

    def entry(self, entry: WalEntry, lsn: int, *, salvaged: bool = False) -> None:
        header = entry.header
        log = self._follower(header) if entry.group is None else self._group(entry.group)
        if log is None or header.index < log.record.end.next_index:
            return
        if log.is_cut_off(header.index, lsn):
            return
        before = LogEnd(header.index, header.base_offset, header.previous_crc, header.term)
        if header.index < log.end.next_index:
            if _has(log, header):
                return
            known = log.end_at(header.index - 1)
            if known is not None and known.last_crc == header.previous_crc:
                log.note_truncation(Truncation(known, lsn, lsn))
                self._truncate(log, known)
            else:
                self._exchange(log, before)
        elif header.index > log.end.next_index:
            self._skip(log, before, _LOST)
        elif header.previous_crc != log.end.last_crc:
            self._exchange(log, before)
        self._seen[log.id] = lsn - 1 if salvaged else lsn
        log.commits.append((lsn, header.index))
        if crc32c(entry.body) != header.body_crc:
            behind = LogEnd(header.index + 1, header.end_offset, header.crc, header.term)
            self._skip(log, behind, _BODY, kind=header.kind)
            return
        body = log.replay(header, entry.packed, entry.body, self._now_us)
        recovered = self.recovered[log.id]
        if header.index > recovered.snapshot_index:
            recovered.entries.append((header, body))
        else:
            recovered.snapshot_term = header.term

    def _follower(self, header: Header) -> GroupLog | None:
        """The group whose next entry this is, by the chain of CRCs."""
        found = [
            log
            for log in self.groups.values()
            if log.end.next_index == header.index and log.end.last_crc == header.previous_crc
        ]
        return found[0] if len(found) == 1 and header.previous_crc else None

    def lost(self, first_lsn: int) -> None:
        self._unknown_from = self._unknown_from or first_lsn

    def notes_lost(self) -> None:
        self.lacks_votes = self._has_votes

    def cut(self, why: str) -> None:
        self._cut = why

    def finish(self) -> None:
        """The scan is over: the groups hold everything that could be recovered."""
        if self._unknown_from or self._cut:
            self.doubt = self._cut or _LOST
            for log in self.groups.values():
                if self._cut or self._seen.get(log.id, 0) < self._unknown_from:
                    self.end_is_unknown(log)
        for number, log in self.groups.items():
            log.durable = log.end
            if self.lacks_votes:
                log.owed = UNKNOWN
            log.applied = log.record.snapshot_index
            recovered = self.recovered[number]
            recovered.next_index, recovered.next_offset = log.end.next_index, log.end.next_offset
            recovered.last_crc, recovered.term = log.end.last_crc, log.end.term
            recovered.damage = tuple(log.damage)
            self._recall(log, recovered)

    @staticmethod
    def _recall(log: GroupLog, recovered: RecoveredGroup) -> None:
        """Tell again of losses that the checkpoint knows and its snapshot does not.

        A checkpoint on a full disk has the damage alone. What is lost between entries shows again,
        when the WAL is read; an end that was not known does not, once entries have followed it.
        """
        known = set(recovered.losses)
        for damage in log.record.damage:
            at = damage.first_index
            loss = Loss(at, at, damage.start)
            if at == damage.end_index and at > log.record.snapshot_index and loss not in known:
                recovered.losses.append(loss)
        recovered.losses.sort(key=lambda each: each.next_index)

    # --- what was cut off ------------------------------------------------------------------------

    def _truncate(self, log: GroupLog, end: LogEnd) -> None:
        log.truncate(end)
        recovered = self.recovered[log.id]
        while recovered.entries and recovered.entries[-1][0].index >= end.next_index:
            recovered.entries.pop()
        recovered.losses = [
            each._replace(next_index=end.next_index, next_offset=end.next_offset)
            if each.next_index > end.next_index
            else each
            for each in recovered.losses
            if each.first_index < end.next_index
        ]

    def _exchange(self, log: GroupLog, end: LogEnd) -> None:
        """The log ended at `end`, with other entries than those that were found."""
        self._truncate(log, log.record.end)
        if log.end.next_index < end.next_index:
            self._skip(log, end, _LOST)

    # --- damage ------------------------------------------------------------------------------

    def _skip(self, log: GroupLog, end: LogEnd, what: str, kind: int | None = None) -> None:
        first, behind = log.end.next_index, end.next_index
        damage = Damage(
            log.end.next_offset, end.next_offset, f"{_entries(first, behind, kind)}: {what}",
            first_index=first, end_index=behind,
        )  # fmt: skip
        self.recovered[log.id].losses.append(Loss(first, behind, end.next_offset))
        log.skip_to(end, self._judged(log, damage))

    def end_is_unknown(self, log: GroupLog) -> None:
        """Entries may have followed, and nobody knows which."""
        at = log.end
        damage = Damage(
            at.next_offset, None, f"from entry {at.next_index} on: {self.doubt}",
            first_index=at.next_index, end_index=at.next_index,
        )  # fmt: skip
        log.note(self._judged(log, damage))
        if log.id in self.recovered:
            loss = Loss(at.next_index, at.next_index, at.next_offset)
            self.recovered[log.id].losses.append(loss)

    def unseen(self, number: int) -> Damage:
        """The damage of a group that nothing was found of, if there is a doubt."""
        log = GroupLog(number, self._settings)
        self.end_is_unknown(log)
        return log.damage[0]

    def _judged(self, log: GroupLog, damage: Damage) -> Damage:
        """The damage, marked as accepted if the operator has accepted it.

        An accepted end is an end: should something be lost there again, that is another damage.
        """
        for accepted in self._accepted.get(log.id, self._accepted.get(EVERY_OTHER, ())):
            if accepted.covers(damage):
                return replace(damage, accepted=True, end=accepted_end(damage))
        return damage


def _agrees(log: GroupLog, end: LogEnd) -> bool:
    """Whether the log, up to here, ends as it should."""
    found = log.end_at(end.next_index - 1)
    return found is not None and found.last_crc == end.last_crc


def _has(log: GroupLog, header: Header) -> bool:
    """Whether the log has this very entry. It may have been written twice (`GroupLog.carry`)."""
    found = log.end_at(header.index)
    return found is not None and found.last_crc == header.crc


def accepted_end(damage: Damage) -> int:
    return damage.start if damage.end is None else damage.end


def _entries(first: int, behind: int, kind: int | None) -> str:
    """Which entries, and of which kind if that is known."""
    if behind - first > 1:
        return f"entries {first} to {behind - 1}"
    if kind is None:
        return f"entry {first}"
    name = EntryKind(kind).name.lower() if kind in EntryKind.__members__.values() else kind
    return f"entry {first} of kind {name}"
