"""The write-ahead log: one for all groups of a data directory.

Theory: appended entries wait in their slabs until a commit takes them. A commit is one envelope,
written and synced by one call. The next commit starts when the last one has ended, and takes all
entries that have come meanwhile: none of them waits for company, and the busier the store is, the
larger its commits are. Entries that nobody waits for *rest*: they go with the next, or later.

A file is made ready before it is needed (`wal_files`). When none can be made ready, because the
disk is full, entries are refused before they are staged. Some room is kept from records, so that
entries which make room on a full disk are not refused themselves: the end of what is ready, or a
file that is kept aside. A store that is opened goes on in a file that no earlier run has written to
under that number: what a torn write left behind stays where it is, and is never read.

Beside entries an envelope tells which groups were cut back, and their terms and votes: *notes*. A
group with such news is `noted` until a commit has taken them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from hocket.log import wal_files
from hocket.log.commit import Commit, Told, write
from hocket.log.directory import Format
from hocket.log.envelope import SECTION_BYTES, Draft, aligned, envelope_bytes
from hocket.log.group import GroupLog, Truncated, notes_of
from hocket.log.model import VITAL, LogEnd, Purpose, Truncation
from hocket.log.settings import LogSettings
from hocket.log.wal_files import NO_SPACE, WalFile, WalStart, storage_full
from hocket.log.wal_list import WalList
from hocket.ports import Disk, Executor

BRIEF_COMMIT_BYTES = 64 << 10  # synced in about the time that waking a thread takes
REST_US, REST_BYTES_MAX = 10_000, 256 << 10  # between commits of what nobody waits for, at most
AMPLE_FILES = 16  # for which the disk has room before a file is kept that is not needed yet
_ADMISSION_MARGIN = 4096  # headers, table and padding of the commit that an entry goes into


class Wal:
    """Commits staged entries, and keeps files ready for them.

    It calls, on the node's thread, `durable(ends)` when a commit is durable, `failed(error)` when
    the disk failed and the WAL has stopped for good, and `room()` when there is room again after a
    `StorageFull`.
    """

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        settings: LogSettings,
        salt: int,
        files: WalList,
        form: Format,
        *,
        durable: Callable[[list[tuple[GroupLog, LogEnd]]], None],
        failed: Callable[[BaseException], None],
        room: Callable[[], None],
        unwritten: Callable[[], int] = lambda: 0,
    ) -> None:
        """`unwritten()` tells how many bytes the segments will still take on the disk."""
        self._disk = disk
        self._executor = executor
        self._settings = settings
        self._salt = salt
        self._files = files  # for the jobs of the worker "files" alone
        self._form = form
        self._tell_durable = durable
        self._tell_failed = failed
        self._tell_room = room
        self._unwritten = unwritten
        self._used: list[WalFile] = []
        self._current: WalFile | None = None
        self._ready: deque[WalFile] = deque()
        self._first_number = 1  # of this run
        self._next_number = 1
        self._file_bytes = aligned(settings.wal_file_bytes_min)  # of the next new file
        self._preparing = 0  # files being made or renamed ...
        self._preparing_bytes = 0  # ... and how large they are together
        self._reserve_bytes = 0  # the size of the file that is kept aside
        self._makes_reserve = False
        self._wanted_bytes = 0  # an entry waits for a file of at least this size; 0: none waits
        self._staged: dict[GroupLog, None] = {}  # groups with entries that no commit has taken
        self._resting: dict[GroupLog, None] = {}  # the same, of entries that nobody waits for
        self._roused_us = 0  # when what rested was last staged
        self._noted: dict[GroupLog, list[Told]] = {}  # groups with news that no commit has taken
        self._touched: list[GroupLog] = []  # groups in the last envelope ...
        self._told: tuple[GroupLog, ...] = ()  # ... and those whose notes it was the first to have
        self._carried: set[GroupLog] = set()
        self._dirty: dict[GroupLog, None] = {}  # groups in envelopes since the last checkpoint
        self._commit: Commit | None = None
        self._stalled = False  # the commit met a full disk and waits to be written again
        self._was_stalled = False  # the commit met a full disk and is being written again
        self._marked = True  # the last envelope was a bare mark
        self.full = ""  # why no file can be made ready; empty when that is not so
        self.stopped = False
        self.next_lsn = 1
        self.durable_lsn = 0
        self.staged_bytes = 0  # not yet durable
        self.bytes_since_checkpoint = 0
        self.bytes_made = 0  # of files made since whoever reads this has set it to 0 ...
        self.bytes_in_making = 0  # ... and of those that are being made

    # --- opening and closing ---------------------------------------------------------------------

    def start(self, start: WalStart, dirty: Iterable[GroupLog]) -> None:
        """Go on after recovery. Waits for the disk; a full disk is not an error here."""
        self.next_lsn = start.next_lsn
        self.durable_lsn = start.next_lsn - 1
        self._first_number = self._next_number = start.next_number
        self._used = start.used
        self._dirty = dict.fromkeys(dirty)
        self._marked = not start.used  # nothing says yet that the last envelope found is durable
        for stranger in start.foreign:
            self._background(partial(wal_files.keep_damaged, self._disk, self._files, stranger))
        self._reserve_bytes = wal_files.reserve_bytes(self._disk)
        for spare in start.spare:
            self._reuse_or_remove(spare)
        if not self._preparing:
            self._prepare()
        self._executor.drain()
        self._make_reserve()

    def is_not_needed(self) -> None:
        """All is in segments, and the store closes: no file is missed if it is gone later."""
        if not self.stopped:
            self._background(self._files.clear)

    def close(self) -> None:
        for file in (*self._used, *self._ready, self._current):
            if file is not None:
                file.file.close()
        self._used.clear()
        self._ready.clear()
        self._current = None

    # --- staging and committing --------------------------------------------------------------

    def admit(
        self, size: int, purpose: Purpose = Purpose.RECORDS, *, goes_first: bool = False
    ) -> None:
        """Raise StorageFull if an entry of this size could not be made durable.

        An entry that `goes_first` needs no room beside what is staged already.
        """
        needed = size + _ADMISSION_MARGIN + (0 if goes_first else self.staged_bytes)
        ready = self._current.room if self._current else 0
        kept = self._kept_from(purpose)
        # In two steps, since the first is all that it takes nearly always.
        if needed + kept <= ready:
            return
        ready += sum(file.size for file in self._ready)
        if needed + kept <= ready + self._reserve_bytes:
            if needed > ready:
                self._take_reserve()
            return
        if not self.full:
            if self._preparing and needed <= ready + self._preparing_bytes:
                return
            if self._disk_has_room(max(needed - ready, self._smallest_file())):
                self._prepare()
                return
            self.full = f"{self._disk.free_bytes()} bytes are free"
        raise storage_full(self._settings.where, self.full)

    def _kept_from(self, purpose: Purpose) -> int:
        """How much room an entry of this purpose has to leave, the reserve included."""
        if purpose is Purpose.TIDYING:
            return 0
        kept = self._settings.wal_reserve_bytes
        return kept if purpose is Purpose.RECORDS else kept // 2

    def _disk_has_room(self, size: int) -> bool:
        """Whether the disk has room for another file: beside segments and their reserve."""
        kept = self._settings.reserve_bytes + self._unwritten()
        return self._disk.free_bytes() > size + kept

    def stage(self, group: GroupLog, size: int) -> None:
        if self._staged and group.id in VITAL:
            self._staged = {group: None, **self._staged}  # entries that make room wait for none
        self._staged[group] = None
        self.staged_bytes += size

    def rest(self, group: GroupLog, size: int) -> None:
        """`stage` an entry that nobody waits for."""
        self._resting[group] = None
        self.staged_bytes += size

    def rouse(self) -> None:
        """Stage what rests."""
        self._staged.update(self._resting)
        self._resting.clear()

    def forget(self, group: GroupLog) -> None:
        """The group is deleted; its staged entries are not written."""
        self._dirty.pop(group, None)
        self._noted.pop(group, None)
        self._carried.discard(group)
        self.unstage(group)

    def unstage(self, group: GroupLog) -> None:
        """Nothing more of this log is written."""
        self.rouse()
        if group in self._staged:
            del self._staged[group]
            self.staged_bytes -= sum(slab.used - slab.sent for slab in group.unsent)
            group.unsent.clear()

    def cut(self, group: GroupLog, cut: Truncated) -> None:
        """The group was cut back: what is on its way to the disk counts up to its new end only."""
        self.staged_bytes -= cut.unsent_bytes
        self.rouse()
        if not group.unsent:
            self._staged.pop(group, None)
        if cut.was_sent:
            group.note_truncation(Truncation(group.end, self.next_lsn, self.next_lsn))
            self.note(group)
        commit = self._commit
        if commit is not None:
            commit.is_plain = False
            commit.cut[group] = min(group.end, commit.cut.get(group, group.end))

    def note(self, group: GroupLog, told: Told | None = None) -> None:
        """The next commit tells what is new of this group; when that is durable, `told` is called.

        What was asked for before is told as well: later news include it.
        """
        waiting = self._noted.setdefault(group, [])
        if told is not None:
            waiting.append(told)

    def awaits(self, group: GroupLog) -> bool:
        """Whether somebody waits for news of this group to be durable."""
        noted = (self._commit and self._commit.noted) or {}
        return bool(self._noted.get(group) or noted.get(group))

    def replace(self, old: GroupLog, new: GroupLog) -> None:
        """The group's log is another one from now on; its term and vote are what they were."""
        waiting = self._noted.get(old)
        self.forget(old)
        if waiting is not None:
            self._noted[new] = waiting
        if self._commit and self._commit.noted and old in self._commit.noted:
            self._commit.noted[new] = self._commit.noted.pop(old)
        self._told = tuple(new if each is old else each for each in self._told)
        if new.has_notes:  # given since the checkpoint was made
            self._dirty[new] = None

    def carry(self, group: GroupLog) -> None:
        """Write the group's entries that are in no segment once more, so that older files go."""
        self._carried.add(group)
        self.staged_bytes += group.carry()
        self._staged[group] = None

    @property
    def kept_bytes(self) -> int:
        """Of the files that are full and still needed."""
        return sum(file.size for file in self._used)

    @property
    def oldest_lsn(self) -> int:
        """The last envelope of the oldest file that is needed."""
        return self._used[0].last_lsn if self._used else 0

    @property
    def idle(self) -> bool:
        return self._commit is None and not (self._staged or self._noted or self._resting)

    @property
    def needs_mark(self) -> bool:
        return self.idle and not self._marked

    def flush(self, now_us: int | None = None) -> None:
        """Start a commit of what is staged, or has rested by now, unless one is under way."""
        if self._resting and now_us is not None and self._has_rested(now_us):
            self._roused_us = now_us
            self.rouse()
        if self._commit is None and (self._staged or self._noted) and not self.stopped:
            self._start_commit(mark=False)

    def _has_rested(self, now_us: int) -> bool:
        is_over = not 0 <= now_us - self._roused_us < REST_US  # a clock may be put back
        return is_over or self.staged_bytes > REST_BYTES_MAX

    def mark(self) -> None:
        """Write an envelope without entries, which says that the last one is durable."""
        if self.needs_mark and not self.stopped:
            self._start_commit(mark=True)

    def retry(self) -> None:
        """Some time has passed: try again what a full disk had stopped."""
        if self._stalled and self._commit and not self.stopped:
            self._stalled, self._was_stalled = False, True
            self._submit(self._commit)
        if self.full and not self._preparing and not self.stopped:
            self._prepare()
            if not self._preparing and not self._was_stalled and self._can_make_file():
                self.full = ""
                self._tell_room()

    def _start_commit(self, *, mark: bool) -> None:
        self.rouse()
        first = SECTION_BYTES + next(iter(self._staged)).first_unsent_bytes if self._staged else 0
        place = self._place_for(first, complete=mark)
        if place is None:
            return  # a file is being made ready, and then the commit starts
        file, rows, notes, complete = place
        bytes_max = min(self._settings.commit_bytes_max, file.room)
        bytes_max -= envelope_bytes(len(rows), len(notes))
        sections, ends, entry_bytes = self._gather(max(bytes_max, first))
        draft = Draft(file.number, self.next_lsn, self.durable_lsn, rows, complete, sections, notes)
        noted = None
        if self._noted:
            noted, self._noted = self._noted, {}
        is_plain = noted is None and not self._carried
        size = draft.size
        self._commit = Commit(draft, size, file, file.position, ends, entry_bytes, noted, is_plain)
        file.position += size
        file.last_lsn = self.next_lsn
        self.bytes_since_checkpoint += size
        self.next_lsn += 1
        self._submit(self._commit)

    def _gather(
        self, bytes_max: int
    ) -> tuple[list[tuple[int, memoryview]], list[tuple[GroupLog, LogEnd]], int]:
        """Sections of at most `bytes_max`, how their groups end with them, and entries' bytes."""
        sections: list[tuple[int, memoryview]] = []
        ends: list[tuple[GroupLog, LogEnd]] = []
        content = 0
        for group in list(self._staged):
            taken = group.take(bytes_max - content)
            content += taken.content_bytes
            sections += ((group.id, view) for view in taken.views)
            if taken.end is not None:
                ends.append((group, taken.end))
                commits = group.commits if group.carried is None else group.carried.commits
                commits.append((self.next_lsn, taken.end.next_index - 1))
            if not taken.all:
                break
            del self._staged[group]
        return sections, ends, content - SECTION_BYTES * len(sections)

    def _place_for(
        self, first_bytes: int, *, complete: bool
    ) -> tuple[WalFile, list[tuple[int, LogEnd]], bytes, bool] | None:
        """A file with room for the first entry, and the table and notes to go with it."""
        while True:
            file = self._current
            if file is not None:
                rows, notes, is_complete = self._table(
                    file, complete=complete or file.position == 0
                )
                if envelope_bytes(len(rows), first_bytes + len(notes)) <= file.room:
                    return file, rows, notes, is_complete
            if not self._ready:
                rows_max = max(len(self._dirty), len(self._touched))
                notes_max = len(notes_of((*self._dirty, *self._told, *self._noted)))
                self._wanted_bytes = envelope_bytes(rows_max, first_bytes + notes_max)
                if not self.full:  # else `retry` tries now and then, and not every turn
                    self._prepare()
                return None
            self._next_file()

    def _table(
        self, file: WalFile, *, complete: bool
    ) -> tuple[list[tuple[int, LogEnd]], bytes, bool]:
        groups: Iterable[GroupLog] = self._touched
        if complete:
            notes = notes_of((*self._dirty, *self._told, *self._noted))
            complete = envelope_bytes(len(self._dirty), len(notes)) <= file.size // 4
        if complete:
            groups = self._dirty
        else:
            notes = notes_of((*self._told, *self._noted)) if self._noted or self._told else b""
        return [(group.id, group.durable) for group in groups if not group.leaves], notes, complete

    def _next_file(self) -> None:
        file = self._current
        if file is not None:
            if file.position:
                self._used.append(file)
            else:
                self._reuse_or_remove(file)  # too small for what comes next
        self._current = self._ready.popleft()
        if not self._ready:
            self._prepare()

    def _submit(self, commit: Commit) -> None:
        file = commit.file.file
        job = partial(write, file, commit.position, commit.draft, self._salt, self._form)
        # A brief job may keep this thread waiting; for entries that nobody waits for, it must not.
        is_awaited = any(group.settings.is_awaited for group, _ in commit.ends)
        brief = is_awaited and commit.size <= BRIEF_COMMIT_BYTES
        self._executor.submit("wal", job, self._committed, brief=brief)

    def _committed(self, result: BaseException | None) -> None:
        commit = self._commit
        assert commit is not None
        if isinstance(result, OSError) and result.errno in NO_SPACE:
            # The file system needs new blocks even to overwrite. The same bytes are written again.
            self._stalled = True
            self.full = self.full or str(result)
            return
        if isinstance(result, BaseException):
            self.stopped = True
            self._tell_failed(result)
            return
        self._commit = None
        if commit.position == 0:
            self._background(partial(self._files.use, commit.file.number))
        self.durable_lsn = commit.draft.lsn
        self.staged_bytes -= commit.bytes
        self._marked = not commit.ends and not commit.noted
        self._touched = [group for group, _ in commit.ends]
        self._told = ()
        if not commit.is_plain:
            self._sort_out(commit)
        for group, end in commit.ends:
            group.durable = end
            if not group.deleted:
                self._dirty[group] = None
        self.flush()  # first, so that the disk works while the acknowledgements go out
        self._tell_durable(commit.ends)
        if commit.noted:
            for told in [each for waiting in commit.noted.values() for each in waiting]:
                told()
        if self._was_stalled:
            self._was_stalled, self.full = False, ""
            self._tell_room()

    def _sort_out(self, commit: Commit) -> None:
        """Leave the ends that are news: not what was cut back meanwhile, or was durable before."""
        commit.ends = [(group, min(end, commit.cut.get(group, end))) for group, end in commit.ends]
        for group, end in commit.ends:
            group.carried_through(end.next_index - 1, commit.draft.lsn)
            if group.carried is None:
                self._carried.discard(group)
        ends = [(group, end) for group, end in commit.ends if end > group.durable]
        noted = commit.noted or {}
        for group in (*noted, *self._touched):
            if not group.deleted:
                self._dirty[group] = None
        commit.ends, self._told = ends, tuple(noted)

    # --- files -------------------------------------------------------------------------------

    def checkpointed(self, lsn: int, generation: int) -> None:
        """Everything below `lsn` is in segments, durably: the files below it are free.

        Recovery does not look for files below `generation` any more.
        """
        while self._used and self._used[0].last_lsn < lsn:
            file = self._used.pop(0)
            if file.damaged:
                job = partial(wal_files.keep_damaged, self._disk, self._files, file)
                self._background(job)
            else:
                self._reuse_or_remove(file, needed=file.number >= generation)
        for group in [each for each in self._dirty if not each.commits and not each.has_notes]:
            del self._dirty[group]
        self._make_reserve()

    def first_number_needed(self, lsn: int) -> int:
        """Files with lower numbers are not needed after `checkpointed(lsn)`."""
        for file in self._used:
            if file.last_lsn >= lsn:
                return file.number
        return self._current.number if self._current else self._first_number

    def _reuse_or_remove(self, file: WalFile, *, needed: bool = True) -> None:
        """`needed`: the checkpoint does not say yet that nothing of this number is missed."""
        has_room, settings = self._disk_has_room(AMPLE_FILES * file.size), self._settings
        wanted = settings.wal_files_kept if has_room else settings.wal_files_ready
        enough = len(self._ready) + self._preparing >= wanted + (self._current is None)
        least = max(min(self._file_bytes, settings.wal_file_bytes), self._wanted_bytes)
        if enough or file.size < least:
            job = partial(wal_files.remove, self._disk, self._files, file, needed=needed)
            self._background(job)
            return
        number = self._take_number()
        reuse = partial(wal_files.reuse, self._disk, self._files, file, number, needed=needed)
        self._submit_file(file.size, reuse)

    def _prepare(self) -> None:
        """Have a new file made, if none is on its way."""
        if self._preparing or self.stopped:
            return
        if len(self._ready) >= self._settings.wal_files_ready and not self._wanted_bytes:
            return
        size = self._next_file_bytes()
        if size:
            self.bytes_in_making += size
            number = self._take_number()
            job = partial(wal_files.create, self._disk, self._files, number, size)
            self._submit_file(size, job)
        elif not self.full:
            self.full = f"{self._disk.free_bytes()} bytes are free"

    def _submit_file(self, size: int, job: Callable[[], WalFile]) -> None:
        self._preparing += 1
        self._preparing_bytes += size
        self._executor.submit("files", job, partial(self._prepared, size))

    def _smallest_file(self) -> int:
        return aligned(max(self._settings.wal_file_bytes_min, self._wanted_bytes))

    def _can_make_file(self) -> bool:
        return self._disk_has_room(self._smallest_file())

    def _next_file_bytes(self) -> int:
        """The size of the next new file: smaller where the disk has not much room; 0: too little.

        What an entry waits for is tried in any case.
        """
        least = self._smallest_file()
        size = max(self._file_bytes, least)
        while size > least and not self._disk_has_room(size):
            size = max(aligned(size // 2), least)
        if not self._wanted_bytes and not self._disk_has_room(size):
            return 0
        self._file_bytes = min(self._file_bytes, size)
        return size

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _make_reserve(self) -> None:
        """Keep a file aside for the entries that make room, if there is none."""
        size = aligned(self._settings.wal_reserve_bytes)
        is_there = self._makes_reserve or self._reserve_bytes >= size
        if is_there or self.stopped or not self._disk_has_room(size):
            return
        self._makes_reserve = True
        job = partial(wal_files.create_reserve, self._disk, size)
        self._executor.submit("files", job, partial(self._reserve_made, size))

    def _reserve_made(self, size: int, result: BaseException | None) -> None:
        self._makes_reserve = False
        if result is None:
            self._reserve_bytes = size
        elif not isinstance(result, OSError) or result.errno not in NO_SPACE:
            self._tidied(result)

    def _take_reserve(self) -> None:
        """Use the file that is kept aside as the next one."""
        size, self._reserve_bytes = self._reserve_bytes, 0
        self._preparing += 1
        self._preparing_bytes += size
        job = partial(wal_files.take_reserve, self._disk, self._files, self._take_number(), size)
        self._executor.submit("files", job, partial(self._reserve_taken, size))

    def _reserve_taken(self, size: int, result: WalFile | BaseException) -> None:
        self._preparing -= 1
        self._preparing_bytes -= size
        if isinstance(result, BaseException):
            self._tidied(result)
            return
        self._add_file(result)
        self.flush()  # the disk is as full as it was

    def _add_file(self, file: WalFile) -> None:
        self._ready.append(file)
        if file.size >= self._wanted_bytes:
            self._wanted_bytes = 0
        if self._current is None:
            self._current = self._ready.popleft()

    def _prepared(self, size: int, result: WalFile | BaseException) -> None:
        self._preparing -= 1
        self._preparing_bytes -= size
        self.bytes_in_making = 0
        if isinstance(result, BaseException):
            if not isinstance(result, OSError) or result.errno not in NO_SPACE:
                self.stopped = True
                self._tell_failed(result)
            elif not self.full:
                self.full = str(result)
            return
        self.bytes_made += size
        self._file_bytes = min(self._file_bytes * 2, aligned(self._settings.wal_file_bytes))
        was_full, self.full = self.full, ""
        self._add_file(result)
        self.flush()
        if was_full:
            self._tell_room()
        self._prepare()

    def _background(self, job: Callable[[], None]) -> None:
        self._executor.submit("files", job, self._tidied)

    def _tidied(self, result: BaseException | None) -> None:
        if isinstance(result, OSError) and result.errno in NO_SPACE:
            return  # the file stays where it is, and the next start tidies it up
        if isinstance(result, BaseException):
            self.stopped = True
            self._tell_failed(result)
