"""L2 and L3 from the disks: when all is settled, every copy is read from end to end, as it would be
for another node, and what is committed is the same bytes everywhere.

Most of it is in segment files by then. A copy begins where retention has left it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hocket.errors import CorruptData, HocketError, OutOfRange
from hocket.node.raft_mail import entries_in
from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.log.model import RawEntries
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy

READ_BYTES = 4_096


class TheFilesOfAllCopiesHoldTheSame(CopiesChecker):
    name = "the_files_of_all_copies_hold_the_same"
    sentence = "What is committed is the same bytes at every copy, read from its disk."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._entries: dict[tuple[int, int], tuple[bytes, str]] = {}  # by group and index: whose
        self._open: dict[str, int] = {}  # copies that are being read, and how far
        self._wrong = ""

    def after_event(self) -> None:
        """It looks at the end only."""

    def settled(self) -> None:
        for story in self._view.stories.values():
            for copy in story.copies.values():
                if copy.replica is not None and not copy.replica.stopped:
                    first = copy.replica.log.replicated.bounds(story.group)[0]
                    self._read(copy, first)

    def _read(self, copy: Copy, index: int) -> None:
        self._open[copy.name] = index
        while index <= copy.commit and copy.replica is not None:
            try:
                found = copy.replica.log.replicated.read_raw(
                    copy.story.group, index, end_index=copy.commit + 1, bytes_max=READ_BYTES,
                    done=partial(self._was_read, copy, index),
                )  # fmt: skip
            except HocketError as error:
                self._cannot(copy, error)
                break
            if found is None:
                return
            self._compare(copy, found)
            index = found.end_index
        self._open.pop(copy.name, None)

    def _was_read(self, copy: Copy, _index: int, found: RawEntries | HocketError) -> None:
        if isinstance(found, HocketError):
            self._cannot(copy, found)
            self._open.pop(copy.name, None)
        else:
            self._compare(copy, found)
            self._read(copy, found.end_index)

    def _cannot(self, copy: Copy, error: HocketError) -> None:
        """Retention has passed it, or its disk was damaged and it says so."""
        is_excused = isinstance(error, CorruptData) and copy.machine.is_damaged
        if not isinstance(error, OutOfRange) and not is_excused:
            self._wrong = self._wrong or f"{copy.name} cannot be read: {error}"

    def _compare(self, copy: Copy, found: RawEntries) -> None:
        data = b"".join(found.slices)
        entries = entries_in(data)
        for number, entry in enumerate(entries):
            end = entries[number + 1].at if number + 1 < len(entries) else len(data)
            key = copy.story.group, entry.header.index
            mine = data[entry.at : end]
            known, whose = self._entries.setdefault(key, (mine, copy.name))
            self.seen += 1
            if known != mine:
                self._wrong = self._wrong or (
                    f"entry {entry.header.index} of {copy.name} is not that of {whose}"
                )

    def at_end(self) -> None:
        if self._wrong:
            raise self.broken(self._wrong)
        if self._open and not self._cluster.workload.given_up:
            raise self.broken(f"not read to the end: {self._open}")
