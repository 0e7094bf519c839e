"""Retention: from time to time, moves the starts of logs and lets go of idle producers.

How far a start may move is planned by `core.partition.retention`. To say so in the log needs room,
which is kept for that; should a full disk refuse it all the same, it is planned again the next
time.
"""

from __future__ import annotations

from hocket.core.partition import events
from hocket.core.partition.retention import plan_log_start
from hocket.core.partition.waiting import WaitingPartition
from hocket.errors import CorruptData, HocketError
from hocket.model import HOUR_US
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring

PRODUCERS_CHECKED_EVERY_US = HOUR_US


class Retention:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._due_us = 0
        self._producers_due_us = 0

    def tick(self, now_us: int) -> None:
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._wiring.settings.retention_every_us
        checks_producers = now_us >= self._producers_due_us
        if checks_producers:
            self._producers_due_us = now_us + PRODUCERS_CHECKED_EVERY_US
        idle_since_us = now_us - events.PRODUCER_IDLE_US
        for hosted in list(self._wiring.partitions):
            start = self._planned_log_start(hosted, now_us)
            try:
                if start > hosted.core.start:
                    self._wiring.partitions.admit_tidying(hosted.group)
                    self._wiring.partitions.step(hosted, events.MoveLogStart(start))
                if checks_producers and hosted.core.dedupe.has_idle(idle_since_us):
                    self._wiring.partitions.admit(hosted.group)
                    self._wiring.partitions.step(hosted, events.ExpireProducers(idle_since_us))
            except CorruptData:
                continue  # this log takes no entries until its damage is accepted; the others do
            except HocketError:  # there is no room to write it down: next time
                return

    def _planned_log_start(self, hosted: Hosted, now_us: int) -> int:
        core, settings = hosted.core, hosted.settings
        if isinstance(core, WaitingPartition):
            return core.needed_from  # what waits does not get too old, nor does it take too much
        start = plan_log_start(
            self._wiring.log.segments(hosted.group),
            log_start=core.start,
            now_us=now_us,
            retention_us=settings.disk_retention_us,
            bytes_max=settings.disk_bytes_max,
            held_from=core.cursors.held_from(),
        )
        return min(core.high_watermark, start)
