"""The last records of a node's audit log, in memory and in two files, so that they can be read.

    audit.log, audit.old.log    a line of JSON for each record: its time, and the text

When the first is full it takes the place of the second. They are written without being synced: the
log on stderr, which an operator keeps, is what an auditor relies on. A line that a crash has torn
is passed over. A disk that is full keeps nobody out and lets nobody in: what cannot be written is
kept in memory.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from itertools import islice

from hocket.cluster_model import AuditRecord
from hocket.core.placement.auditing import Page, page_of
from hocket.ports import Clock, Disk

log = logging.getLogger("hocket.node")

PATH, OLD = "audit.log", "audit.old.log"
FILE_BYTES = 1 << 20  # of each of the two
RECORDS_MAX = 10_000  # in memory
TEXT_MAX = 4_000  # characters of one


class Trail:
    def __init__(self, node: str, disk: Disk, clock: Clock) -> None:
        self._node = node
        self._disk = disk
        self._clock = clock
        self._records: deque[AuditRecord] = deque(maxlen=RECORDS_MAX)
        self._size = 0  # of the first file
        self._complained = False
        for path in (OLD, PATH):
            with suppress(OSError):
                self._load(path)

    def add(self, text: str) -> None:
        """Each has a time of its own: by that a reader goes on."""
        last_us = self._records[-1].time_us if self._records else 0
        time_us = max(self._clock.now_us(), last_us + 1)
        record = AuditRecord(self._node, time_us, text[:TEXT_MAX])
        self._records.append(record)
        try:
            self._write(json.dumps([record.time_us, record.text]).encode() + b"\n")
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning("the audit log cannot be kept on disk: %s", error)

    def since(self, since_us: int) -> Page:
        """The oldest of those from this time on."""
        times = [record.time_us for record in self._records]
        return page_of(islice(self._records, bisect_left(times, since_us), None))

    def _load(self, path: str) -> None:
        if not self._disk.exists(path):
            return
        file = self._disk.open(path)
        try:
            data = file.read(file.size(), 0)
        finally:
            file.close()
        # What is written next takes the place of a torn line: behind it, it would be torn, too.
        size = data.rfind(b"\n") + 1
        if path == PATH:
            self._size = size
        for line in data[:size].split(b"\n"):
            with suppress(ValueError, TypeError):
                time_us, text = json.loads(line)
                last_us = self._records[-1].time_us if self._records else 0
                if isinstance(text, str) and isinstance(time_us, int) and time_us > last_us:
                    self._records.append(AuditRecord(self._node, time_us, text[:TEXT_MAX]))

    def _write(self, line: bytes) -> None:
        if self._size and self._size + len(line) > FILE_BYTES:
            self._disk.rename(PATH, OLD)
            self._size = 0
        file = self._disk.open(PATH, create=True)
        try:
            file.write([line], self._size)
        finally:
            file.close()
        self._size += len(line)
