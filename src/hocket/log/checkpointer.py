"""The checkpoint procedure: memory to segment files, then one file that says so.

1. Every group with new entries gives its snapshot (applied index A), and views of the entries that
   its segments lack: the durable ones up to A, never more. So every entry behind the end of the
   segments is in the WAL, and every entry behind the snapshot too.
2. A job writes the views and syncs the files.
3. When the WAL is durable through every A (a snapshot must not know of entries that a crash may
   take back), a job writes the checkpoint.
4. Then the WAL files that the checkpoint does not need are free, and segments below a log's start
   are removed.

What lies below the start of its log is not written any more: its segment is removed by the very
checkpoint that would have written it.

A full disk ends a checkpoint without harm, and the checkpoint is tried again. If segments or whole
groups wait to be removed, or damage is to be recorded, a small checkpoint makes that possible, in
space that is kept aside for it. The small checkpoint moves the starts of logs, and takes in what
needs no segment written: of other groups their damage alone. Any other error stops the store: after
a failed fsync nobody knows what the disk holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hocket.errors import HocketError, StorageFull, StoreStopped
from hocket.log import checkpoint
from hocket.log.checkpoint import Checkpoint, GroupRecord
from hocket.log.directory import RESERVE, Format
from hocket.log.group import GroupLog
from hocket.log.segment import Segment, segment_path
from hocket.log.segment_writer import GroupWork, add_indexes, add_write, tidy, write_segments
from hocket.log.settings import LogSettings
from hocket.log.tier.stub import names_beside
from hocket.log.wal import Wal
from hocket.log.wal_files import NO_SPACE
from hocket.ports import Disk, Executor

Done = Callable[[HocketError | None], None]
WORKER = "checkpoint"


class Checkpointer:
    """Calls `written(bytes)`, `published()`, `installed(record)`, `gone(segments, groups)` and
    `failed(error)`, all on the node's thread."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        settings: LogSettings,
        groups: dict[int, GroupLog],
        wal: Wal,
        last: Checkpoint,
        form: Format,
        *,
        snapshot: Callable[[int], tuple[int, bytes]],
        written: Callable[[int], None],
        published: Callable[[], None],
        installed: Callable[[GroupRecord], None],
        gone: Callable[[list[Segment], list[int]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._settings = settings
        self._groups = groups
        self._wal = wal
        self._last = last
        self._form = form
        self._snapshot = snapshot
        self._tell_written = written
        self._tell_published = published
        self._tell_installed = installed
        self._tell_gone = gone
        self._tell_failed = failed
        self._work: list[GroupWork] | None = None  # of the checkpoint whose segments are written
        self._next: Checkpoint | None = None  # the checkpoint that is being published
        self._waits_for_wal = False
        self._doomed: list[Segment] = []  # segments to be removed once `_next` is published
        self._doomed_groups: list[int] = []
        self._lsn = last.lsn  # of the checkpoint that was made last, published or not
        self._installs: dict[int, GroupRecord] = {}  # groups that are to become what is said here
        self._deleted: dict[int, int] = dict(last.deleted)
        self._waiting: list[Done] = []  # to be told of the checkpoint under way
        self._waiting_next: list[Done] = []  # to be told of one that begins from now on
        self._reserve_is_gone = True
        self._reserve_bytes = 0  # how large it was made last
        self._is_small = False  # the checkpoint being published has no new segments
        self.changed = False  # a log's start or a deletion is not recorded yet
        self.full = False  # the last checkpoint met a full disk
        image_bytes = checkpoint.size(last)  # of the last one
        self.next_due = settings.checkpoint_after(image_bytes)  # every turn asks for this
        self.stopped = False

    @property
    def running(self) -> bool:
        return self._work is not None or self._next is not None

    @property
    def published(self) -> dict[int, GroupRecord]:
        """The groups, as the last checkpoint that is durable has them."""
        return self._last.groups

    @property
    def wanted(self) -> bool:
        """`when_done` was called since the last checkpoint began."""
        return bool(self._waiting_next)

    @property
    def knows_all(self) -> bool:
        """Whether the last checkpoint that was published has all damage and installed groups."""
        if self._installs:
            return False
        known = self._last.groups
        return all(
            log.lasting_damage == (known[log.id].damage if log.id in known else ())
            for log in self._groups.values()
        )

    def when_done(self, done: Done) -> None:
        """Call `done` after a whole checkpoint that begins from now on."""
        self._waiting_next.append(done)

    def delete(self, log: GroupLog) -> None:
        self._installs.pop(log.id, None)
        self._deleted[log.id] = self._wal.next_lsn
        self._doomed_groups.append(log.id)
        self.changed = True

    def install(self, record: GroupRecord) -> None:
        """Make the group what the record says, by the next checkpoint that is published.

        Until then the group's log is as it was, here and on the disk, and takes no entries.
        """
        self._installs[record.group] = record
        self.changed = True

    @property
    def installs(self) -> bool:
        """Whether a group waits to be installed."""
        return bool(self._installs)

    # --- 1 and 2: segments -----------------------------------------------------------------------

    def start(self) -> None:
        if self.running or self.stopped:
            return
        assert not self._waiting
        self._waiting, self._waiting_next = self._waiting_next, []
        self.changed = False
        self._work = [self._work_of(log) for log in self._groups.values() if log.is_changed]
        job = partial(write_segments, self._disk, [work for work in self._work if work.files])
        self._executor.submit(WORKER, job, self._segments_done)

    def _work_of(self, log: GroupLog) -> GroupWork:
        index, state = self._snapshot(log.id)
        writes, end = log.slab_writes(min(index, log.durable.next_index - 1))
        log.is_applied(index)
        work = GroupWork(log, index, state, end, writes)
        for write in writes:
            segment = write.slab.segment
            if _is_needless(segment, log, recorded=end.next_index, applied=index):
                segment.full, segment.points = True, None
            else:
                add_write(work, write)
        add_indexes(work)
        if work.files and not log.has_directory:
            work.names = self._names_of(log)
        return work

    def _names_of(self, log: GroupLog) -> frozenset[str]:
        """The files that belong to the group, with those that only the last checkpoint needs."""
        paths = [segment.path for segment in log.segments]
        if log.id in self._last.groups:
            published = self._last.groups[log.id].segments
            paths += [
                segment_path(log.id, each.base_offset, each.first_index) for each in published
            ]
        return frozenset(name.rpartition("/")[2] for path in paths for name in names_beside(path))

    def _segments_done(self, result: BaseException | None) -> None:
        assert self._work is not None
        if isinstance(result, BaseException):
            self._gave_up(result)
            return
        total = 0
        for work in self._work:
            if work.log.deleted:
                continue
            total += work.log.were_written(work.writes, work.end)
            work.log.has_directory |= bool(work.files)
            for segment in work.indexed:
                segment.index_is_written = True
                segment.points = None  # a reader that needs them finds them in the index file
        self._tell_written(total)
        self._waits_for_wal = True
        self._wal.rouse()  # now somebody waits for it
        self._wal.flush()
        self.wal_is_durable()

    # --- 3: the file -----------------------------------------------------------------------------

    def wal_is_durable(self) -> None:
        """The WAL has become durable a bit further: go on if the checkpoint waits for that."""
        if not self._waits_for_wal or self.stopped:
            return
        assert self._work is not None
        if any(self._knows_too_much(work) for work in self._work):
            return
        if not all(map(self._is_ready, self._installs.values())):
            return
        self._waits_for_wal = False
        for work in self._work:
            work.log.record = self._record(work)
        self._publish(self._checkpoint())

    def _knows_too_much(self, work: GroupWork) -> bool:
        """Whether a crash could take back entries that the snapshot knows."""
        log = work.log
        if log.deleted or log.id in self._installs:
            return False
        # An installed snapshot may be ahead of a log that is being filled.
        is_known = work.snapshot_index <= log.record.snapshot_index
        return work.snapshot_index >= log.durable.next_index and not is_known

    def _is_ready(self, record: GroupRecord) -> bool:
        """Whether a log may be installed: what is on its way of the old one is durable, or cut."""
        return all(each.lsn <= self._wal.durable_lsn + 1 for each in record.truncations)

    def _record(self, work: GroupWork) -> GroupRecord:
        log = work.log
        while log.commits and log.commits[0][1] < work.end.next_index:
            log.commits.popleft()
        return GroupRecord(
            log.id, work.end, work.snapshot_index, work.snapshot, log.log_start,
            log.segment_records(), log.lasting_damage, log.state, log.record.truncations,
            log.record.owed,
        )  # fmt: skip

    def _checkpoint(self) -> Checkpoint:
        """A checkpoint of the records of all groups, with the starts of their logs of now."""
        ready = {number for number, each in self._installs.items() if self._is_ready(each)}
        needed = (log.first_lsn for log in self._groups.values() if log.id not in ready)
        next_lsn = self._wal.durable_lsn + 1
        lsn = min((each for each in needed if each), default=next_lsn)
        if any(each.lsn > next_lsn for log in self._groups.values() for each in log.truncations):
            # A commit that is under way may bring back what was cut off: all of it, or nothing.
            lsn = self._lsn
        self._lsn = lsn
        for number in ready:
            state = self._groups[number].state
            self._installs[number] = replace(self._installs[number], state=state)
        records = {
            number: self._installs[number] if number in ready else self._trimmed(log, lsn)
            for number, log in self._groups.items()
        }
        self._deleted = {group: at for group, at in self._deleted.items() if at >= lsn}
        return Checkpoint(
            lsn, self._wal.durable_lsn, self._wal.first_number_needed(lsn), records,
            dict(self._deleted),
        )  # fmt: skip

    def _trimmed(self, log: GroupLog, lsn: int) -> GroupRecord:
        """The group's record without the segments that lie below its start, with its notes of now.

        What was cut off before the envelope `lsn` will not be read any more.
        """
        doomed = [segment for segment in log.segments if self._may_go(segment, log)]
        if doomed:
            gone = {segment.first_index for segment in doomed}
            log.segments = [each for each in log.segments if each.first_index not in gone]
            kept = tuple(each for each in log.record.segments if each.first_index not in gone)
            log.record = replace(log.record, segments=kept)
            self._doomed += doomed
        if log.record.log_start != log.log_start:
            log.record = replace(log.record, log_start=log.log_start)
        truncations = log.truncations_between(lsn, self._wal.durable_lsn + 1)
        notes = log.state, truncations, log.owed if log.owes else 0
        if (log.record.state, log.record.truncations, log.record.owed) != notes:
            state, truncations, owed = notes
            log.record = replace(log.record, state=state, truncations=truncations, owed=owed)
        return log.record

    @staticmethod
    def _may_go(segment: Segment, log: GroupLog) -> bool:
        """Whether nobody may read the segment, and its effect on the group's state is recorded."""
        recorded, applied = log.record.end.next_index, log.record.snapshot_index
        return segment.written == segment.size and _is_needless(
            segment, log, recorded=recorded, applied=applied
        )

    def _publish(self, following: Checkpoint) -> None:
        self._work = None
        self._next = following
        job = partial(_publish, self._disk, following, self._form)
        self._executor.submit(WORKER, job, self._published)

    def _published(self, result: int | BaseException) -> None:
        following = self._next
        assert following is not None
        if isinstance(result, BaseException):
            self._gave_up(result)
            return
        self._last = following
        # The next checkpoint may be somewhat larger than this one, and must fit into the reserve.
        self.next_due = self._settings.checkpoint_after(result)
        wanted = max(self._settings.reserve_bytes, 2 * result)
        if wanted > self._reserve_bytes:
            self._reserve_bytes, self._reserve_is_gone = wanted, True
        self.full = self._is_small  # after a small one, the whole one is still to be made
        self._is_small = False
        self._wal.checkpointed(following.lsn, following.generation)
        self._carry_what_waits()
        for number, record in list(self._installs.items()):
            if following.groups.get(number) is record:
                del self._installs[number]
                self._doomed += (each for each in self._groups[number].segments if each.written)
                self._tell_installed(record)
        self._remove_doomed()
        self._tell(None)
        self._next = None  # not before: whoever was told may want another one, and must wait for it
        self._tell_published()

    # --- 4: what is not needed any more ------------------------------------------------------

    def _carry_what_waits(self) -> None:
        """Free the files of the WAL that are kept for groups whose entries are not applied.

        Their entries are written once more, at the WAL's end. That is done when the files kept are
        many times that, so it costs the disk a part of what the other groups write.
        """
        waiting = sum(log.waiting_bytes for log in self._groups.values())
        kept_max = max(self._settings.wal_kept_bytes_max, 4 * waiting)
        if self._wal.kept_bytes <= kept_max or self._wal.full or self.full:
            return
        oldest = self._wal.oldest_lsn
        for log in self._groups.values():
            is_free = log.carried is None and not log.leaves
            if log.waiting_bytes and is_free and (log.first_lsn or oldest + 1) <= oldest:
                self._wal.carry(log)
        self._wal.flush()

    def _remove_doomed(self) -> None:
        paths = [segment.path for segment in self._doomed]
        groups = [group for group in self._doomed_groups if group not in self._last.groups]
        self._tell_gone(self._doomed, groups)
        self._doomed.clear()
        self._doomed_groups = [group for group in self._doomed_groups if group in self._last.groups]
        reserve = self._reserve_bytes if self._reserve_is_gone else 0
        if paths or groups or reserve:
            self._reserve_is_gone = False
            job = partial(tidy, self._disk, paths, groups, reserve)
            self._executor.submit(WORKER, job, self._tidied)

    def _tidied(self, result: BaseException | None) -> None:
        if isinstance(result, OSError) and result.errno in NO_SPACE:
            self._reserve_is_gone = True
        elif isinstance(result, BaseException):
            self._stop(result)

    def make_reserve(self) -> None:
        """Keep room aside from the beginning: the first checkpoint may meet a full disk already."""
        size = self._settings.reserve_bytes
        if self._disk.exists(RESERVE) or self._disk.free_bytes() <= 2 * size:
            return  # after a checkpoint the reserve is looked at again
        self._reserve_bytes, self._reserve_is_gone = size, False
        self._executor.submit(WORKER, partial(tidy, self._disk, [], [], size), self._tidied)

    def remove_strangers(self) -> None:
        """Remove the directories of groups that neither checkpoint nor WAL knows: deleted ones."""
        names = self._disk.list("groups")
        strangers = [int(n) for n in names if n.isdecimal() and int(n) not in self._groups]
        if strangers:
            job = partial(tidy, self._disk, [], strangers, 0)
            self._executor.submit(WORKER, job, self._tidied)

    # --- failure -----------------------------------------------------------------------------

    def _gave_up(self, error: BaseException) -> None:
        self._work = self._next = None
        if not isinstance(error, OSError) or error.errno not in NO_SPACE:
            self._stop(error)
            return
        self.full = self.changed = True
        self._tell(StorageFull(f"no room for a checkpoint in {self._settings.where}: {error}"))
        if self._is_small:
            self._is_small = False
        elif self._has_something_to_remove() or not self.knows_all:
            self._publish_small()

    def _has_something_to_remove(self) -> bool:
        return bool(self._doomed or self._doomed_groups) or any(
            _is_needless(
                segment, log, recorded=log.durable.next_index, applied=log.durable.next_index
            )
            for log in self._groups.values()
            for segment in log.segments
        )

    def _publish_small(self) -> None:
        """Publish a checkpoint for which no segment is written, in the reserve if need be."""
        self._is_small = self._reserve_is_gone = True
        total = 0
        for log in self._groups.values():
            if not log.is_changed:
                continue
            work = self._work_of(log)
            if not work.files and not self._knows_too_much(work):
                total += log.were_written(work.writes, work.end)
                log.record = self._record(work)
            elif log.lasting_damage != log.record.damage:
                log.record = replace(log.record, damage=log.lasting_damage)
        self._next = self._checkpoint()
        self._tell_written(total)
        job = partial(_publish_in_reserve, self._disk, self._next, self._form)
        self._executor.submit(WORKER, job, self._published)

    def _stop(self, error: BaseException) -> None:
        self.stopped = True
        self._waiting += self._waiting_next
        self._waiting_next.clear()
        self._tell_failed(error)
        self._tell(StoreStopped(f"the checkpoint failed: {error}"))

    def _tell(self, error: HocketError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)


def _is_needless(segment: Segment, log: GroupLog, *, recorded: int, applied: int) -> bool:
    """Whether nobody may read the segment, and its effect on the group's state is recorded.

    That is so with all entries before the index `recorded` in segments, and the group's snapshot
    taken after the entry `applied`.
    """
    is_below = segment.end_offset <= log.log_start
    is_recorded = segment.end_index <= recorded and segment.end_index - 1 <= applied
    is_held = log.held_index is not None and segment.end_index > log.held_index
    return is_below and is_recorded and not is_held


def _publish(disk: Disk, following: Checkpoint, form: Format) -> int:
    """Returns the size of the checkpoint."""
    form.need(following.version)
    image = checkpoint.encode(following)
    checkpoint.publish(disk, image)
    return len(image)


def _publish_in_reserve(disk: Disk, following: Checkpoint, form: Format) -> int:
    try:
        return _publish(disk, following, form)
    except OSError as error:
        if error.errno not in NO_SPACE or not disk.exists(RESERVE):
            raise
        disk.remove(RESERVE)
        disk.sync_directory("")
        return _publish(disk, following, form)
