"""The scrub: reads segment files and checks every entry, a piece at a time.

Damage is better found while there is still a copy elsewhere than on the day the data is needed. A
pass takes each segment as it is when the pass comes to it, and leaves out segments that retention
has removed meanwhile. Between two pieces the worker `read` is free for readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hocket.log.group import GroupLog
from hocket.log.model import Damage, Report
from hocket.log.segment import Location, Segment
from hocket.log.segment_reader import SegmentView, verify_segment
from hocket.log.settings import LogSettings
from hocket.ports import Disk, Executor

ReportDone = Callable[[Report], None]
_Outcome = tuple[Location | None, int, list[Damage]]


class Scrub:
    def __init__(
        self, disk: Disk, executor: Executor, settings: LogSettings, groups: dict[int, GroupLog]
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._settings = settings
        self._groups = groups
        self._report: Report | None = None  # of the pass under way
        self._left: list[tuple[GroupLog, Segment]] = []  # segments still to check, the next last
        self._location: Location | None = None  # in the next segment; None: its beginning
        self._busy = False
        self._waiting: list[ReportDone] = []
        self.ended_us = 0  # when the last pass ended

    def hurry(self, done: ReportDone) -> None:
        """Make a whole pass without pauses, from the beginning; `done` gets the report."""
        self._waiting.append(done)
        self._begin()
        self._next()

    def step(self, now_us: int) -> None:
        """Check one piece, if a pass is under way or due. Called at every tick."""
        if self._report is None:
            interval = self._settings.scrub_interval_us
            self.ended_us = self.ended_us or now_us
            if not interval or now_us - self.ended_us < interval:
                return
            self._begin()
        self.ended_us = now_us
        if not self._busy:
            self._next()

    def _begin(self) -> None:
        self._report = Report(groups=len(self._groups))
        self._location = None
        self._left = [(log, segment) for log in self._groups.values() for segment in log.segments]
        self._left.reverse()

    def _next(self) -> None:
        while self._left:
            log, segment = self._left[-1]
            is_readable = segment.end_offset > log.log_start  # else it is about to be removed
            if segment.written and is_readable and not log.deleted and segment in log.segments:
                if not segment.away:
                    break
                if self._report is not None:  # fetching all that is there would cost too much
                    self._report.away_segments += 1
                    self._report.away_bytes += segment.written
            self._left.pop()
            self._location = None
        if self._busy:
            return
        if not self._left:
            self._end()
            return
        assert self._report is not None
        record = log.segment_record(segment)
        view = SegmentView(log.id, record, self._settings.index_interval_bytes)
        location = self._location or view.start
        self._busy = True
        job = partial(verify_segment, self._disk, view, location, self._settings.scrub_step_bytes)
        outcome = partial(self._checked, self._report, log, segment, location)
        self._executor.submit("read", job, outcome)

    def _checked(
        self,
        report: Report,
        log: GroupLog,
        segment: Segment,
        location: Location,
        result: _Outcome | BaseException,
    ) -> None:
        self._busy = False
        if report is not self._report:
            self._next()  # a new pass has begun meanwhile
            return
        if isinstance(result, BaseException):
            if not isinstance(result, OSError):
                raise result
            result = (None, 0, self._unreadable(log, segment, result))
        behind, count, damage = result
        report.entries += count
        report.bytes += (behind.position if behind else segment.written) - location.position
        for each in damage:
            log.note(each)
            known = any(old.accepted and old.covers(each) for old in log.damage)
            report.damage.append((log.id, replace(each, accepted=known)))
        self._location = behind
        if behind is None:
            self._left.pop()
        if self._waiting or not self._left:
            self._next()

    @staticmethod
    def _unreadable(log: GroupLog, segment: Segment, error: OSError) -> list[Damage]:
        if log.deleted or segment not in log.segments:
            return []
        end = log.segment_record(segment).end_offset
        return [Damage(segment.base_offset, end, str(error), is_lasting=False)]

    def _end(self) -> None:
        report, self._report = self._report, None
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            assert report is not None
            done(report)
