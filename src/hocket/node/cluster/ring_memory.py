"""What a node must remember from one life to the next to be a good neighbour on the ring.

If an incarnation were used twice, answers to the former life would pass for answers to this one. So
the next number is durable before any other node hears it. The times of the last joins show whether
a node flaps; one that was stopped in order did not.

    ring.json, ring.other.json    the same, as of the last two times that it was written

A node must be able to begin a life on a full disk, where it may be told what to delete. So the
files are written in place, the older of the two each time: that needs no room. A crash may tear the
one that is being written, and the other one is as it was.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from hocket.errors import CorruptData, StorageFull
from hocket.log.directory import checked_text, read_checked, read_file, write_checked
from hocket.log.wal_files import NO_SPACE
from hocket.ports import Disk

PATH = "ring.json"
OTHER = "ring.other.json"
FILE_BYTES = 1024  # of each; what is not text is spaces
JOINS_KEPT = 16  # times of joins; the oldest is forgotten first


class Memory(Protocol):
    def next_life(self) -> int:
        """A number that no life of this node has had; durable on return."""

    def outlive(self, life: int) -> None:
        """The next life gets a larger number than this one; durable on return."""

    def joins_us(self) -> list[int]:
        """When this node joined lately, the oldest time first."""

    def joining(self, now_us: int) -> None:
        """Remember that this node joins now."""

    def leaving(self) -> None:
        """This node is stopped in order: forget its joins."""


class VolatileMemory:
    """For a node whose lives are all in this process, as in a simulation of thousands."""

    __slots__ = ("_joins_us", "_life")

    def __init__(self) -> None:
        self._life = 0
        self._joins_us: list[int] = []

    def next_life(self) -> int:
        self._life += 1
        return self._life

    def outlive(self, life: int) -> None:
        self._life = max(self._life, life)

    def joins_us(self) -> list[int]:
        return self._joins_us

    def joining(self, now_us: int) -> None:
        self._joins_us = [*self._joins_us, now_us][-JOINS_KEPT:]

    def leaving(self) -> None:
        self._joins_us = []


class DiskMemory:
    """Rule: what the two files say of lives differs by one at most. So whoever can read only one
    of them knows a number that the other does not exceed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._life = 0
        self._joins_us: list[int] = []
        self._written = 0  # how often
        self._next = PATH  # the file to be written next
        self._load()

    def next_life(self) -> int:
        self._life += 1
        self._save()
        return self._life

    def outlive(self, life: int) -> None:
        if life > self._life:
            self._life = life
            self._save()
            self._save()  # both files: see the rule

    def joins_us(self) -> list[int]:
        return self._joins_us

    def joining(self, now_us: int) -> None:
        self._joins_us = [*self._joins_us, now_us][-JOINS_KEPT:]
        self._save()

    def leaving(self) -> None:
        self._joins_us = []
        # A disk that fails keeps nobody from leaving: the next life waits as one that flaps.
        with suppress(OSError, StorageFull):
            self._save()

    def _load(self) -> None:
        there = [path for path in (PATH, OTHER) if self._disk.exists(path)]
        read = {path: _parsed(read_checked(self._disk, path)) for path in there}
        known = {path: state for path, state in read.items() if state is not None}
        if not known:
            if there:
                raise CorruptData(
                    f"{' and '.join(there)} in the data directory: damaged. Restore from a copy, "
                    f'or write {PATH} with {{"life": N, "joins_us": []}}, where N is larger than '
                    "any this node has had"
                )
            return
        newest = max(known, key=lambda path: known[path][0])
        self._written, self._life, self._joins_us = known[newest]
        if len(known) < len(there):
            self._life += 1  # the file that cannot be read may have been the newer one
        self._next = OTHER if newest == PATH else PATH

    def _save(self) -> None:
        try:
            self._write()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise StorageFull(
                f"the disk is full, and has no room for {self._next}, which a broker writes when "
                "it starts: make room there, and start the broker again"
            ) from error
        if not self._has_room(self._next):
            with suppress(OSError):  # it is made while the disk has room
                self._write()

    def _has_room(self, path: str) -> bool:
        """Whether the file is there, and large enough to be written over on a full disk."""
        return self._disk.exists(path) and len(read_file(self._disk, path)) >= FILE_BYTES

    def _write(self) -> None:
        path = self._next
        written = self._written + 1
        state = {"life": self._life, "joins_us": self._joins_us, "written": written}
        if self._disk.exists(path):
            file = self._disk.open(path)
            try:
                file.write([checked_text(state, max(FILE_BYTES, file.size()))], 0)
                file.sync()
            finally:
                file.close()
        else:
            write_checked(self._disk, path, state, size=FILE_BYTES)
        self._written, self._next = written, OTHER if path == PATH else PATH


def _parsed(state: Any) -> tuple[int, int, list[int]] | None:
    """How often it was written, the life, the joins; None: it is damaged."""
    try:
        # Older versions did not count.
        joins_us = [int(each) for each in state["joins_us"]]
        return int(state.get("written", 0)), int(state["life"]), joins_us
    except (ValueError, KeyError, TypeError):
        return None
