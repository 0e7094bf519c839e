"""The log store: every group's log on one WAL, in memory and in segment files.

Rule 1: all state here and below is touched by the node's thread only. Slow work is a job that gets
        plain values and views of bytes that never change; its result comes back as a call.
Rule 2: an entry is acknowledged (`log_durable`) only when its envelope is synced, and leaves
        memory only when its segment file is synced.
Rule 3: nothing is cut off or skipped in silence. What does not match its checksum is named. Only
        entries that were never applied are cut off, by name (`replicated.truncate`).

An append puts the entry into the memory tier, where it can be read at once; `flush` starts a group
commit; a checkpoint, now and then, moves what is durable into segment files and frees the WAL.
What groups need that several nodes keep is in `LogStore.replicated`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hocket.errors import Busy, CorruptData, HocketError, OutOfRange, StorageFull, StoreStopped
from hocket.log.checkpoint import GroupRecord
from hocket.log.checkpointer import Checkpointer
from hocket.log.directory import ACCEPTED, Format, open_directory, salt_of
from hocket.log.group import UNKNOWN, GroupLog, Truncated
from hocket.log.model import (
    FIRST_INDEX,
    VITAL,
    Damage,
    EntriesDone,
    GroupStats,
    LogEnd,
    LogObserver,
    NewEntry,
    OffsetDone,
    Purpose,
    ReadDone,
    ReadResult,
    RecoveredGroup,
    Report,
    SegmentInfo,
    Snapshot,
)
from hocket.log.reader import Reader
from hocket.log.recovery import Recovery
from hocket.log.replicated import RawEntry, ReplicatedLogs, install_record
from hocket.log.scrub import Scrub
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.tier.jobs import FORMAT_WITH_STUBS
from hocket.log.tier.tiering import Tiering
from hocket.log.vital import doubt_of, recovered, refuse_damaged
from hocket.log.wal import Wal
from hocket.log.wal_files import storage_full
from hocket.ports import Clock, Disk, Executor
from hocket.wire.entry import HEADER_BYTES, padded

__all__ = [
    "FIRST_INDEX", "Damage", "GroupSettings", "GroupStats", "LogObserver", "LogSettings",
    "LogStore", "NewEntry", "Purpose", "ReadResult", "RecoveredGroup", "Report", "SegmentInfo",
]  # fmt: skip


class LogStore:
    """See the module. `recovered` may be cleared once its content has been taken over.

    A group is known after `configure`, or if `open` recovered it. A recovered group that is not
    wanted must be deleted again: a crash forgets a deletion that is in no checkpoint.
    """

    def __init__(self, disk: Disk, executor: Executor, clock: Clock, settings: LogSettings) -> None:
        """Use `open`."""
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._settings = settings
        self._observer: LogObserver | None = None
        directory = open_directory(disk, settings.where, settings.new_store_id, settings.new_groups)
        self.store_id = directory.store_id
        self._stopped: StoreStopped | None = None
        try:
            found = recovered(disk, directory, settings, clock.now_us())
        except BaseException:
            disk.unlock()
            raise
        self._found: Recovery | None = found  # until `settle`
        self.remarks = [*directory.remarks, *found.remarks]
        self.summary = f"store {self.store_id} in {settings.where}: {found.summary}"
        self._groups = found.groups
        self._reserved_bytes = 0  # of all groups
        self._waiting_bytes = 0  # of all groups, and part of what is unwritten
        form = Format(disk, self.store_id, directory.version)
        self.recovered = found.recovered
        self._wal = self.wal = Wal(
            disk, executor, settings, salt_of(self.store_id), found.files, form,
            durable=self._durable, failed=self._failed, room=self._check_room,
            unwritten=lambda: self._unwritten,
        )  # fmt: skip
        self._checkpointer = Checkpointer(
            disk, executor, settings, self._groups, self._wal, found.checkpoint, form,
            snapshot=self._snapshot, written=self._written, published=self._published,
            installed=self._installed, gone=lambda *gone: self.tier.gone(*gone),
            failed=self._failed,
        )  # fmt: skip
        self.tier = Tiering(
            disk, executor, clock, settings, self._groups, self.store_id, form,
            lambda: self._checkpointer.published, has_stubs=directory.version >= FORMAT_WITH_STUBS,
        )  # fmt: skip
        self._scrub = Scrub(disk, executor, settings, self._groups)
        self._reader = Reader(disk, executor, settings, self.tier)
        self.replicated = ReplicatedLogs(
            self._groups, self._wal, self._checkpointer, self._reader,
            snapshot=self._snapshot, admit=self.admit, stage=self._stage_raw, cut=self._cut,
        )  # fmt: skip
        self._installing: dict[int, Callable[[], None]] = {}
        self._unwritten = sum(log.unwritten_bytes for log in self._groups.values())
        self._free_bytes = 0  # of the disk, when it was looked at last
        self._lacks_room = False  # the disk has no room for more segments
        self._memory_is_due = False  # entries have to leave memory, and are not written yet
        self._owes_room = False  # `log_room` is due: somebody was refused, or told to wait
        self._closed = False
        now_us = clock.now_us()
        self._appended_us = self._checkpointed_us = self._retried_us = now_us
        self._wal.bytes_since_checkpoint = self._unwritten
        dirty = [log for log in self._groups.values() if log.commits or log.has_notes]
        self._wal.start(found.wal, dirty)
        if self._stopped is not None:
            self.close()
            raise self._stopped
        self.tier.keeps_orphans = any(file.damaged for file in found.wal.used)
        if not self.tier.keeps_orphans:  # else keep all that may be of use
            self._checkpointer.remove_strangers()
        self._checkpointer.make_reserve()

    @classmethod
    def open(cls, disk: Disk, executor: Executor, clock: Clock, settings: LogSettings) -> LogStore:
        """Lock the directory, recover what is there, or begin. Waits for the disk.

        Raises NotADataDirectory, NewerFormat, DataDirectoryInUse; CorruptData if the checkpoint
        itself cannot be read, or if entries of the metadata are lost; StoreStopped if the disk
        fails. Damage elsewhere is in `recovered`.
        """
        return cls(disk, executor, clock, settings)

    def report_to(self, observer: LogObserver) -> None:
        """Tell `observer` from now on. To be called before the first `flush`, `tick` or `close`.

        What recovery found out about damage is in a checkpoint afterwards: the WAL that shows it is
        not the proof of it any more. So are groups that were installed meanwhile. Waits for the
        disk if there is such news. All groups are configured by then, and nothing was appended yet.
        """
        self._observer = observer
        found, self._found = self._found, None
        if found is None or not (found.has_news or self._checkpointer.installs):
            return
        outcome: list[HocketError | None] = []
        self.checkpoint_now(outcome.append)
        self._executor.drain()
        error = outcome[0] if outcome else self._stopped
        if isinstance(error, StorageFull) and not self._checkpointer.knows_all:
            error = StorageFull(
                f"{error}; it has to say what is new or damaged: make room there, and start the "
                "broker again"
            )
        elif isinstance(error, StorageFull):
            error = None  # the room that is kept aside was enough for that
        if error is not None:
            self.close()
            raise error
        if self._disk.exists(ACCEPTED):
            self._disk.remove(ACCEPTED)
            self._disk.sync_directory("")

    def _snapshot(self, group: int) -> tuple[int, bytes]:
        assert self._observer is not None, "a checkpoint needs the states of the groups"
        return self._observer.snapshot(group)

    # --- groups ----------------------------------------------------------------------------------

    def configure(self, group: int, settings: GroupSettings) -> None:
        """Create the group if it is new, and set its limits. May be called again."""
        log = self._groups.get(group)
        if log is None:
            log = self._groups[group] = GroupLog(group, self._settings)
            if self._found is not None and self._found.replay.doubt:
                self._found.replay.end_is_unknown(log)
                refuse_damaged(log, self._settings.where)
            if self._found is not None and self._found.replay.lacks_votes:
                log.owed = UNKNOWN
        log.settings = settings

    def go_on_at(self, group: int, next_index: int, next_offset: int) -> None:
        """The group's snapshot knows entries up to here, and the log has lost the last of them.

        So it may be where entries are applied before they are durable: a checkpoint waits until the
        WAL has those that its snapshot knows, and not until segments have them. They are damage,
        and accepted if the operator has accepted the unknown end that they were in.
        """
        log = self._groups[group]
        at = log.end
        damage = Damage(
            at.next_offset, next_offset, "lost to damage in the write-ahead log",
            accepted=log.tail_damage is None, first_index=at.next_index, end_index=next_index,
        )  # fmt: skip
        log.skip_to(LogEnd(next_index, next_offset, 0, at.term), damage)
        log.durable = log.end

    def install(
        self, group: int, index: int, term: int, snapshot: bytes, done: Callable[[], None]
    ) -> None:
        """Set the group to the state behind the entry `index`, of `term`, of another node's log.

        The group is made if it is new; its next entry is the one behind `index`. All this is in one
        checkpoint, and when that is durable `done` is called. A crash before leaves all as it was.
        Until then nothing may be appended to the group. On a full disk it is tried again and again.
        """
        self.install_snapshot(group, Snapshot(LogEnd(index + 1, 0, 0, term), 0, snapshot), done)

    def install_snapshot(
        self, group: int, snapshot: Snapshot, done: Callable[[], None], *,
        begin: LogEnd | None = None,
    ) -> None:  # fmt: skip
        """The same with a `Snapshot`, which knows offsets and CRCs.

        The log goes on behind the snapshot, and has no records before it. With `begin` it is empty
        and begins there, to be filled by `append_raw` from the first entry that the other node has;
        the state is that of the snapshot all the while. What the log has that was not applied is
        lost with it, damage too; never what was applied.
        """
        log = self._groups.get(group)
        if log is None:
            log = self._groups[group] = GroupLog(group, self._settings)
        self._installing[group] = done
        self._checkpointer.install(install_record(log, self._wal, snapshot, begin))
        if self._observer is not None and self._stopped is None:
            self._start_checkpoint()

    def _installed(self, record: GroupRecord) -> None:
        old = self._groups[record.group]
        self._drop(old)
        new = self._groups[record.group] = GroupLog(record.group, self._settings, record)
        new.settings, new.state, new.applied = old.settings, old.state, record.snapshot_index
        self._wal.replace(old, new)
        self._installing.pop(record.group)()

    def delete_group(self, group: int) -> None:
        log = self._groups.pop(group)
        self._drop(log)
        self._installing.pop(group, None)
        self._wal.forget(log)
        self._checkpointer.delete(log)

    def _drop(self, log: GroupLog) -> None:
        log.deleted = log.leaves = True
        self._reserved_bytes -= log.reserved_bytes
        self._unwritten -= log.unwritten_bytes
        self._waiting_bytes -= log.waiting_bytes

    def _cut(self, cut: Truncated) -> None:
        self._unwritten -= cut.unwritten_bytes
        self._waiting_bytes -= cut.waiting_bytes

    def _count_waiting(self) -> None:
        self._waiting_bytes = sum(log.waiting_bytes for log in self._groups.values())

    def set_log_start(self, group: int, offset: int) -> None:
        """Retention: records before `offset` cannot be read any more.

        Segments that lie wholly before it are removed when the next checkpoint has recorded that.
        """
        log = self._groups[group]
        if offset > log.end.next_offset:
            raise OutOfRange(
                f"the log of group {group} cannot start at {offset}: it ends at "
                f"{log.end.next_offset}"
            )
        if offset > log.log_start:
            log.log_start = offset
            self._checkpointer.changed = True

    def hold(self, group: int, index: int | None, reserved_bytes: int) -> None:
        """Keep the entries from `index` on, even below the log's start, and keep room on the disk.

        `admit` refuses other entries this room; the entries that it is kept for are admitted with
        `reserved`. The promise holds only if nobody else fills the disk.
        """
        log = self._groups[group]
        log.held_index = index
        self._reserved_bytes += reserved_bytes - log.reserved_bytes
        log.reserved_bytes = reserved_bytes

    def segments(self, group: int) -> list[SegmentInfo]:
        """The segments, oldest first, with entries that are still only in memory."""
        return [
            SegmentInfo(each.base_offset, each.end_offset, each.size, each.max_timestamp)
            for each in self._groups[group].segments
        ]

    def stats(self, group: int) -> GroupStats:
        return self.tier.seen_in(self._groups[group].stats(self._wal.next_lsn), group)

    def doubt(self, group: int) -> str:
        """What may be lost behind the end of the group, in words; empty if its end is known."""
        return doubt_of(self._groups[group], self._settings.where)

    # --- writing ---------------------------------------------------------------------------------

    def admit(
        self, group: int, size: int, *, reserved: bool = False, purpose: Purpose = Purpose.RECORDS
    ) -> None:
        """Raise if an entry of `size` bytes could not be made durable; this changes nothing.

        With `reserved` the room that is kept aside (`hold`) may be used; what is for something else
        than records may use more of what is left of a full disk. Raises StoreStopped, StorageFull,
        or CorruptData if the group's end is damaged.
        """
        log = self._groups[group]
        if self._stopped is not None:
            raise StoreStopped(str(self._stopped))
        if log.damage and log.tail_damage is not None:
            raise CorruptData(f"nothing can be added to group {group}: {self.doubt(group)}")
        if log.waiting_bytes and log.waiting_bytes > self._settings.waiting_bytes_max:
            self._owes_room = True
            raise Busy(
                f"group {group} has {log.waiting_bytes} bytes that wait to be committed by the "
                f"other replicas, and takes no more than {self._settings.waiting_bytes_max}"
            )
        try:
            if purpose is Purpose.RECORDS:  # what is not, is small, and may stay in the WAL
                self._admit_to_segments(size, keeps_reserve=not reserved)
                if self._reserved_bytes and not reserved:
                    self._admit_beside_reserved(size)
            self._wal.admit(size, purpose, goes_first=group in VITAL)
        except StorageFull:
            self._owes_room = True
            raise

    def _admit_to_segments(self, size: int, *, keeps_reserve: bool) -> None:
        """Raise StorageFull if the entry could not leave the WAL for a segment.

        So the disk gets full while everything can still be moved into segments, and the WAL is
        free for the entries that make room.
        """
        if self._checkpointer.full and self._unwritten > self._settings.unwritten_bytes_max:
            raise storage_full(self._settings.where, "it has no room for segments")
        # Beside the file that is the reserve, as much again is left for what is not records.
        kept = self._settings.reserve_bytes if keeps_reserve else 0
        needed = self._unwritten + size + kept + self._wal.bytes_in_making
        if needed + self._wal.bytes_made <= self._free_bytes:
            return
        self._look_at_disk()
        if needed > self._free_bytes:
            self._lacks_room = True
            raise storage_full(self._settings.where, f"{self._free_bytes} bytes are free")

    def _look_at_disk(self) -> None:
        self._free_bytes = self._disk.free_bytes()
        self._wal.bytes_made = 0
        if self._lacks_room:
            kept = 2 * self._settings.reserve_bytes
            self._lacks_room = self._free_bytes < self._unwritten + kept

    def _admit_beside_reserved(self, size: int) -> None:
        free = self._disk.free_bytes()
        margin = self._settings.reserve_bytes + self._settings.wal_file_bytes
        if free < size + self._reserved_bytes + margin:
            raise StorageFull(
                f"of the {free} bytes that the disk of {self._settings.where} has free, "
                f"{self._reserved_bytes} are kept for transactions; make room there, or end these"
            )

    def append(
        self, group: int, entry: NewEntry, *, admitted: bool = False, awaited: bool = True
    ) -> None:
        """Stage an entry: readable at once, durable when `log_durable` says so; it may rest before
        (see `wal`) unless it is `awaited`.

        Raises what `admit` does, and then nothing has changed. With `admitted` the caller has asked
        before it changed anything itself, and the entry is staged in any case: should the disk be
        full by now it becomes durable when there is room, and on a stopped store never.
        """
        log = self._groups[group]
        size = HEADER_BYTES + padded(memoryview(entry.body).nbytes)
        if not admitted:
            self.admit(group, size)
        self._appended_us = now_us = self._clock.now_us()
        log.append(entry, now_us)
        self._appended(log, size, awaited)

    def _stage_raw(self, log: GroupLog, entries: Sequence[RawEntry], size: int) -> None:
        self._appended_us = now_us = self._clock.now_us()
        for header, packed, body in entries:
            log.append_raw(header, packed, body, now_us)
        self._appended(log, size, awaited=True)

    def _appended(self, log: GroupLog, size: int, awaited: bool) -> None:
        (self._wal.stage if awaited else self._wal.rest)(log, size)
        self._unwritten += size
        if log.memory.bytes > log.settings.memory_bytes_max:
            self._evict(log, self._appended_us)

    def flush(self) -> None:
        """The end of the driver's turn: start a group commit, unless one is under way."""
        self._wal.flush(self._clock.now_us())
        if self._unwritten or self._checkpointer.changed:
            self._checkpoint_if_due(self._clock.now_us())

    @property
    def congested(self) -> bool:
        """Too many bytes are not durable yet, or not in segments yet: wait for `log_room`."""
        settings = self._settings
        if (
            self._wal.staged_bytes <= settings.undurable_bytes_max
            and self._unwritten - self._waiting_bytes <= settings.unwritten_bytes_max
        ):
            return False
        if self._stopped is not None or self._wal.full or self._checkpointer.full:
            return False  # waiting would not help: `admit` refuses, and reading must go on
        self._owes_room = True
        return True

    def _durable(self, ends: list[tuple[GroupLog, LogEnd]]) -> None:
        through = {log.id: end.next_index - 1 for log, end in ends if not log.deleted}
        if through:
            assert self._observer is not None, "nothing is committed before `report_to`"
            self._observer.log_durable(through)
        self._checkpointer.wal_is_durable()
        self._check_room()

    def _check_room(self) -> None:
        if self._owes_room and not (self._wal.full or self._lacks_room or self.congested):
            self._owes_room = False
            assert self._observer is not None, "nobody was told to wait before `report_to`"
            self._observer.log_room()

    def _failed(self, error: BaseException) -> None:
        self._wal.stopped = self._checkpointer.stopped = True
        if self._stopped is None:
            self._stopped = StoreStopped(
                f"the disk of {self._settings.where} failed ({error}); nothing more is written; "
                "see to the disk, then start the broker again"
            )
            if self._observer is not None:
                self._observer.log_stopped(self._stopped)

    # --- reading ---------------------------------------------------------------------------------

    def read(
        self, group: int, offset: int, *, bytes_max: int, end_offset: int, done: ReadDone,
        wanted: Callable[[], bool] = lambda: True,
    ) -> ReadResult | None:  # fmt: skip
        """Batches from the one that holds `offset`, below `end_offset`; at least one, if there is.

        Memory answers at once. Otherwise this returns None, and `done` is called later, with the
        result or with CorruptData or OutOfRange. Before the disk is read, `wanted` is asked, on
        another thread, whether somebody still waits. Raises OutOfRange for an offset outside the
        log, and CorruptData for one in a damaged range.
        """
        log = self._groups[group]
        return self._reader.read(
            log, offset, bytes_max=bytes_max, end_offset=end_offset, done=done, wanted=wanted
        )

    def offset_at_time(self, group: int, timestamp_us: int, done: OffsetDone) -> int | None:
        """The first offset whose batch's latest timestamp is not before this; the end if none is.

        At once if memory can tell; otherwise None, and `done` is called later.
        """
        return self._reader.offset_at_time(self._groups[group], timestamp_us, done)

    def read_entries(
        self, group: int, indexes: Sequence[int], near_offset: int, done: EntriesDone
    ) -> dict[int, memoryview] | None:
        """The bodies of entries of any kind, by index; `near_offset` is the first one's.

        At once if memory has them all. Otherwise None, and `done` is called later, with all of them
        or a CorruptData. Raises CorruptData for one that is in no file.
        """
        return self._reader.read_entries(self._groups[group], indexes, near_offset, done)

    # --- time passes -------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called about every 100 ms: eviction, the idle mark, checkpoints, the scrub."""
        now_us = self._clock.now_us()
        for log in self._groups.values():
            settings = log.settings
            if log.memory.lets_go(now_us - settings.memory_retention_us, settings.memory_bytes_max):
                self._evict(log, now_us)
        self._look_at_disk()
        if self._stopped is None:
            if now_us - self._retried_us >= self._settings.retry_us:
                self._retried_us = now_us
                self._wal.retry()
                self._check_room()
            if self._wal.needs_mark and now_us - self._appended_us >= self._settings.mark_after_us:
                self._wal.mark()
            self._checkpoint_if_due(now_us)
        self.tier.tick(writes=self._stopped is None, disk_is_full=self._lacks_room)
        self._scrub.step(now_us)

    def checkpoint_now(self, done: Callable[[HocketError | None], None] | None = None) -> None:
        """Make a checkpoint of all that is durable now; `done(None)` when it is published."""
        if self._stopped is not None:
            if done:
                done(self._stopped)
            return
        self._checkpointer.when_done(done or (lambda _: None))
        self._start_checkpoint()

    def scrub(self, done: Callable[[Report], None]) -> None:
        """Read and check everything in segment files; `done` gets what was found."""
        self._scrub.hurry(done)

    def close(self) -> None:
        """Make everything durable, checkpoint it, and unlock. Waits for the disk.

        After an error of the disk, or with a full one, what is in the WAL stays there for the next
        `open`; what could not be made durable was never acknowledged.
        """
        if self._closed:
            return
        self._closed = True
        self.tier.close()
        try:
            self._wal.rouse()
            self._wal.flush()
            self._executor.drain()
            if self._stopped is None:
                self._start_checkpoint()
                self._executor.drain()
                if self._all_is_in_segments():
                    self._wal.is_not_needed()
                    self._executor.drain()
        finally:
            self._wal.close()
            self._disk.unlock()

    def _all_is_in_segments(self) -> bool:
        """And the checkpoint that says so is published."""
        is_published = not self._checkpointer.running and not self._checkpointer.full
        is_written = not any(log.commits for log in self._groups.values())
        return is_published and is_written and self._wal.idle

    def abandon(self) -> None:
        """Let the directory go and write nothing: it cannot be served."""
        if self._closed:
            return
        self._closed = True
        self._wal.close()
        self._disk.unlock()

    def _evict(self, log: GroupLog, now_us: int) -> None:
        settings = log.settings
        if log.memory.evict(
            appended_until_us=max(now_us - settings.memory_retention_us, 0),
            bytes_max=settings.memory_bytes_max,
        ):
            # What waits to be applied stays in memory, whatever a checkpoint does.
            self._memory_is_due |= not log.waiting_bytes

    def _checkpoint_if_due(self, now_us: int) -> None:
        if self._checkpointer.running or not (self._unwritten or self._checkpointer.changed):
            return
        since_us = now_us - self._checkpointed_us
        if self._checkpointer.full or self._wal.full or self._lacks_room:
            due = since_us >= self._settings.retry_us
        else:
            after = self._checkpointer.next_due
            unwritten_max = self._settings.unwritten_bytes_max
            congested = self._unwritten - self._waiting_bytes > unwritten_max
            due = (
                self._wal.bytes_since_checkpoint >= after.wal_bytes
                or since_us >= after.interval_us
                or (self._memory_is_due and since_us >= after.spacing_us)
                or (congested and since_us >= self._settings.checkpoint_spacing_us)
            )
        if due:
            self._checkpointed_us = now_us
            self._start_checkpoint()

    def _start_checkpoint(self) -> None:
        if not self._checkpointer.running:
            self._memory_is_due = False
            self._wal.bytes_since_checkpoint = 0
            self._checkpointer.start()
            self._count_waiting()

    def _written(self, size: int) -> None:
        self._unwritten -= size
        self._count_waiting()
        now_us = self._clock.now_us()
        for log in self._groups.values():
            if log.memory.slabs:
                self._evict(log, now_us)
        self._check_room()

    def _published(self) -> None:
        self._check_room()
        if self._checkpointer.wanted or self._checkpointer.installs:
            self._start_checkpoint()
