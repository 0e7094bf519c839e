"""What a node must remember from one life to the next to be a good neighbour on the ring.

If an incarnation were used twice, answers to the former life would pass for answers to this one. So
the next number is durable before any other node hears it. But a data directory may be put back from
an older copy, and then knows less than the other nodes: they would take it for a former life and
hear nothing of it, and what it asks for would pass for what was done before. So on a real node a
life's number is also not below the time, in seconds, at which it begins. The times of the last
joins show whether a node flaps; one that was stopped in order did not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from hocket.errors import CorruptData
from hocket.ports import Disk

PATH = "ring.json"
NEW = "ring.json.new"
LIFE_BY_CLOCK_MAX = 3 << 30  # in the year 2072; a clock beyond is wrong, and a life has 32 bits
JOINS_KEPT = 16  # times of joins; the oldest is forgotten first


class Memory(Protocol):
    def next_life(self) -> int:
        """A number that no life of this node has had; durable on return."""

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

    def joins_us(self) -> list[int]:
        return self._joins_us

    def joining(self, now_us: int) -> None:
        self._joins_us = [*self._joins_us, now_us][-JOINS_KEPT:]

    def leaving(self) -> None:
        self._joins_us = []


class DiskMemory:
    """The file is written as a whole and then renamed: a crash leaves the old state or the new."""

    def __init__(self, disk: Disk, seconds: Callable[[], float] = lambda: 0.0) -> None:
        """`seconds()` is the time since 1970; 0: it does not matter."""
        self._disk = disk
        self._seconds = seconds
        self._life = 0
        self._joins_us: list[int] = []
        if disk.exists(PATH):
            self._load()

    def next_life(self) -> int:
        seconds = int(self._seconds())
        self._life = max(self._life + 1, seconds if seconds < LIFE_BY_CLOCK_MAX else 0)
        self._save()
        return self._life

    def joins_us(self) -> list[int]:
        return self._joins_us

    def joining(self, now_us: int) -> None:
        self._joins_us = [*self._joins_us, now_us][-JOINS_KEPT:]
        self._save()

    def leaving(self) -> None:
        self._joins_us = []
        self._save()

    def _load(self) -> None:
        file = self._disk.open(PATH)
        try:
            text = file.read(file.size(), 0)
        finally:
            file.close()
        try:
            state = json.loads(text)
            self._life = int(state["life"])
            self._joins_us = [int(each) for each in state["joins_us"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(
                f"{PATH} in the data directory is damaged ({error}). Restore it from a copy, or "
                'write {"life": N, "joins_us": []} with an N larger than any this node has had'
            ) from error

    def _save(self) -> None:
        state = {"life": self._life, "joins_us": self._joins_us}
        file = self._disk.open(NEW, create=True)
        try:
            file.truncate(0)
            file.write([json.dumps(state).encode()], 0)
            file.sync()
        finally:
            file.close()
        self._disk.rename(NEW, PATH)
        self._disk.sync_directory("")
