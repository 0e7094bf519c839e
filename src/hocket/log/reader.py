"""Reads a group's log: from memory at once, or from segment files by a job of the worker `read`.

The file of a segment that is in a storage tier is fetched first, and the job is submitted then.

What callers may rely on is said at `LogStore.read`, `offset_at_time` and `read_entries`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from hocket.errors import CorruptData, HocketError, OutOfRange
from hocket.log.group import GroupLog
from hocket.log.model import (
    Damage,
    EntriesDone,
    FileUnreadable,
    OffsetDone,
    RawDone,
    RawEntries,
    ReadDone,
    ReadResult,
    SegmentAway,
)
from hocket.log.segment import Location, Segment, SegmentRecord
from hocket.log.segment_reader import (
    SegmentRead,
    SegmentView,
    find_time,
    read_batches,
    read_entries,
    read_raw,
)
from hocket.log.settings import LogSettings
from hocket.log.tier.place import AwayError
from hocket.log.tier.tiering import Tiering
from hocket.ports import Disk, Executor

T = TypeVar("T")
INDEXES_MAX = 256  # sparse indexes of full segments that are kept in memory
WORKER = "read"
_Entries = tuple[dict[int, memoryview], list[Damage]]  # bodies by index, and what is damaged
_Wanted = tuple[SegmentView, Location | None, list[int]]  # where to begin, and which indexes


class Reader:
    def __init__(
        self, disk: Disk, executor: Executor, settings: LogSettings, tier: Tiering
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._tier = tier
        self._interval = settings.index_interval_bytes
        self._indexed: deque[Segment] = deque()  # full segments whose sparse index is in memory

    def read(
        self, log: GroupLog, offset: int, *, bytes_max: int, end_offset: int, done: ReadDone,
        wanted: Callable[[], bool],
    ) -> ReadResult | None:  # fmt: skip
        if not log.log_start <= offset <= log.end.next_offset:
            raise OutOfRange(
                f"offset {offset} is outside the log of group {log.id}, which holds "
                f"{log.log_start} to {log.end.next_offset}"
            )
        if log.damage:
            offset = log.readable_from(offset)
            end_offset = log.readable_until(offset, end_offset)
        end_offset = min(end_offset, log.end.next_offset)
        if offset >= end_offset:
            return ReadResult([], offset, offset, 0)
        memory_start = log.memory.start_offset
        if memory_start is not None and offset >= memory_start:
            log.memory_reads += 1
            return log.memory.read(offset, bytes_max=bytes_max, end_offset=end_offset)
        log.disk_reads += 1
        segment = log.segment_of(offset)
        view = self._view(log, segment)
        location = None
        if segment.points is not None:
            location = segment.points.before_offset(offset) or view.start
        job = partial(
            read_batches, self._disk, view, location, offset,
            bytes_max=bytes_max, end_offset=end_offset,
        )  # fmt: skip
        self._submit(
            (segment,),
            partial(_if_wanted, wanted, job),
            partial(self._read_done, log, segment, offset, done),
        )
        return None

    def _submit(
        self,
        segments: Collection[Segment],
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
    ) -> None:
        """Have the job run when the files of all these segments are there, or `done` told why."""
        if not any(each.away for each in segments):
            self._executor.submit(WORKER, job, done)
            return

        def then(error: AwayError | None) -> None:
            # Also an error comes by way of the worker: `done` is never called before we return.
            self._executor.submit(WORKER, job if error is None else partial(_fail, error), done)

        self._tier.need(segments, then)

    def _read_done(
        self, log: GroupLog, segment: Segment, offset: int, done: ReadDone,
        read: SegmentRead | BaseException,
    ) -> None:  # fmt: skip
        if isinstance(read, BaseException):
            done(self._read_error(log, segment, offset, read))
            return
        self._learn(log, segment, read)
        if read.result is not None:
            done(read.result)
        else:
            done(read.damage[0].as_error(log.id))

    def _learn(self, log: GroupLog, segment: Segment, read: SegmentRead) -> None:
        for damage in read.damage:
            log.note(damage)
        if read.points is None or segment.points is not None:
            return
        segment.points = read.points
        if segment.full:
            self._indexed.append(segment)
            if len(self._indexed) > INDEXES_MAX:
                self._indexed.popleft().points = None

    def _read_error(
        self, log: GroupLog, segment: Segment, offset: int, error: BaseException
    ) -> HocketError:
        if not isinstance(error, OSError):
            raise error
        if log.deleted or offset < log.log_start:
            return OutOfRange(
                f"offset {offset} of group {log.id} was removed while it was being read"
            )
        end = log.segment_record(segment).end_offset  # what lies behind it is still in memory
        kind: type[CorruptData] = FileUnreadable  # it may pass, or concern a part of the file
        if segment.away or isinstance(error, AwayError):
            kind = SegmentAway
        elif isinstance(error, FileNotFoundError):  # a file that is not there will not come back
            kind = CorruptData
            log.note(Damage(segment.base_offset, end, str(error), is_lasting=False))
        return kind(
            f"group {log.id}: offsets {offset} to {end - 1} cannot be read: {error}",
            start=offset,
            end=end,
        )

    def read_entries(
        self, log: GroupLog, indexes: Sequence[int], near: int, done: EntriesDone
    ) -> dict[int, memoryview] | None:
        found: dict[int, memoryview] = {}
        in_files: dict[Segment, list[int]] = {}
        for index in indexes:
            body = log.memory.entry(index)
            if body is not None:
                found[index] = body
                continue
            segment = log.segment_of_index(index)
            if segment is None:
                raise CorruptData(f"group {log.id}: entry {index} is in no file of its log")
            in_files.setdefault(segment, []).append(index)
        if not in_files:
            return found
        log.disk_reads += len(in_files)
        wanted = [
            (
                self._view(log, segment),
                None if segment.points is None else segment.points.before_index(near),
                some,
            )
            for segment, some in in_files.items()
        ]
        job = partial(_read_from_files, self._disk, wanted)
        self._submit(in_files, job, partial(self._entries_done, log, found, indexes, done))
        return None

    def _entries_done(
        self, log: GroupLog, found: dict[int, memoryview], indexes: Sequence[int],
        done: EntriesDone, read: _Entries | BaseException,
    ) -> None:  # fmt: skip
        if isinstance(read, BaseException):
            if not isinstance(read, OSError):
                raise read
            kind = SegmentAway if isinstance(read, AwayError) else CorruptData
            done(kind(f"group {log.id}: entries cannot be read: {read}"))
            return
        bodies, damage = read
        for each in damage:
            log.note(each)
        found.update(bodies)
        missing = [index for index in indexes if index not in found]
        if missing:
            done(CorruptData(f"group {log.id}: entry {missing[0]} is damaged"))
        else:
            done(found)

    def read_raw(
        self, log: GroupLog, first: int, *, end_index: int, bytes_max: int, done: RawDone
    ) -> RawEntries | None:
        end_index = min(end_index, log.end.next_index)
        if not log.first_index <= first < end_index:
            raise OutOfRange(
                f"entries {first} to {end_index - 1} are outside the log of group {log.id}, which "
                f"holds {log.first_index} to {log.end.next_index - 1}"
            )
        for damage in log.damage:
            if damage.first_index <= first < damage.end_index:
                raise damage.as_error(log.id)
        place = log.memory.place(first)
        if place is not None:
            log.memory_reads += 1
            return log.memory.read_raw(*place, end_index=end_index, bytes_max=bytes_max)
        segment = log.segment_of_index(first)
        if segment is None:
            raise CorruptData(f"group {log.id}: entry {first} is in no file of its log")
        log.disk_reads += 1
        before = log.segment_of_index(first - 1)
        # A storage tier is not asked for a term alone: what is sent to others must not wait for it.
        is_first = first == segment.first_index and before is not None and not before.away
        points = segment.points and segment.points.copy()  # it may grow meanwhile, and be cut
        job = partial(
            read_raw, self._disk, self._view(log, segment), points, first,
            end_index=end_index, bytes_max=bytes_max,
            before=self._view(log, before) if is_first and before else None,
        )  # fmt: skip
        outcome = partial(self._raw_done, log, segment, first, done)
        self._submit((segment,), job, outcome)
        return None

    def _raw_done(
        self, log: GroupLog, segment: Segment, first: int, done: RawDone,
        read: SegmentRead | BaseException,
    ) -> None:  # fmt: skip
        if isinstance(read, BaseException):
            if not isinstance(read, OSError):
                raise read
            if log.deleted or first < log.first_index:
                done(OutOfRange(f"entry {first} of group {log.id} was removed while it was read"))
                return
            done(self._read_error(log, segment, max(segment.base_offset, log.log_start), read))
            return
        self._learn(log, segment, read)
        if read.raw is not None:
            done(read.raw)
        else:
            done(CorruptData(f"group {log.id}: entry {first} is damaged"))

    def offset_at_time(self, log: GroupLog, timestamp_us: int, done: OffsetDone) -> int | None:
        return self._search(log, timestamp_us, log.log_start, done)

    def _search(
        self, log: GroupLog, timestamp_us: int, from_offset: int, done: OffsetDone
    ) -> int | None:
        memory_start = log.memory.start_offset
        for segment in log.segments:
            if segment.end_offset <= from_offset or segment.max_timestamp < timestamp_us:
                continue
            start = max(from_offset, segment.base_offset)
            if memory_start is not None and start >= memory_start:
                found = log.memory.offset_at_time(timestamp_us, from_offset=start)
                return log.end.next_offset if found is None else found
            view = self._view(log, segment)
            location = None
            if segment.points is not None:
                location = segment.points.before_time(timestamp_us) or view.start
            job = partial(find_time, self._disk, view, location, timestamp_us, from_offset=start)
            outcome = partial(self._searched, log, segment, view.record, timestamp_us, done)
            self._submit((segment,), job, outcome)
            return None
        return log.end.next_offset

    def _searched(
        self, log: GroupLog, segment: Segment, record: SegmentRecord, timestamp_us: int,
        done: OffsetDone, read: SegmentRead | BaseException,
    ) -> None:  # fmt: skip
        if isinstance(read, BaseException):
            done(self._read_error(log, segment, record.base_offset, read))
            return
        self._learn(log, segment, read)
        found = read.offset
        if found is None:
            found = self._search(log, timestamp_us, record.end_offset, done)
        if found is not None:
            done(found)

    def _view(self, log: GroupLog, segment: Segment) -> SegmentView:
        fetched = self._tier.path_of(segment) if segment.away else ""
        return SegmentView(log.id, log.segment_record(segment), self._interval, fetched)


def _fail(error: AwayError) -> Any:
    raise error


def _read_from_files(disk: Disk, wanted: list[_Wanted]) -> _Entries:
    bodies: dict[int, memoryview] = {}
    damage: list[Damage] = []
    for view, location, indexes in wanted:
        found, damaged = read_entries(disk, view, location or view.start, indexes)
        bodies.update(found)
        damage += damaged
    return bodies, damage


def _if_wanted(wanted: Callable[[], bool], job: Callable[[], SegmentRead]) -> SegmentRead:
    if not wanted():
        raise InterruptedError("whoever wanted to read this has left")
    return job()
