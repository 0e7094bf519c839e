"""The logs of nodes that are down, as they stand in their files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from hocket.adapters.clock import SystemClock
from hocket.adapters.disk import DirectoryDisk
from hocket.errors import HocketError
from hocket.log.model import RawEntries
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import LogStore
from hocket.model import EntryKind
from hocket.wire import batch as batches
from hocket.wire.entry import unpack_header

T = TypeVar("T")


class AtOnce:
    """An executor that does every job when it is submitted, and tells of it when it is drained."""

    def __init__(self) -> None:
        self._done: deque[Callable[[], None]] = deque()

    def submit(
        self,
        _worker: str,
        job: Callable[[], T],
        done: Callable[[Any], None],
        *,
        brief: bool = False,
    ) -> None:
        outcome: T | BaseException
        try:
            outcome = job()
        except Exception as error:
            outcome = error
        self._done.append(lambda: done(outcome))

    def drain(self) -> None:
        while self._done:
            self._done.popleft()()


class Watcher:
    """What a store tells when it is closed; nothing of it matters here."""

    def __init__(self, snapshots: dict[int, tuple[int, bytes]]) -> None:
        self._snapshots = snapshots

    def log_durable(self, through: dict[int, int]) -> None: ...
    def log_stopped(self, error: HocketError) -> None: ...
    def log_room(self) -> None: ...

    def snapshot(self, group: int) -> tuple[int, bytes]:
        return self._snapshots[group]


def entries_of(directory: Path, groups: Iterable[int]) -> dict[int, dict[int, bytes]]:
    """By group, the entries that the files of this data directory hold, by index."""
    executor = AtOnce()
    store = LogStore.open(DirectoryDisk(directory), executor, SystemClock(), LogSettings())
    found: dict[int, dict[int, bytes]] = {}
    try:
        for group in groups:
            store.configure(group, GroupSettings())
            first, durable, _end = store.replicated.bounds(group)
            found[group] = {}
            while first < durable.next_index:
                first = _read_some(store, executor, group, first, durable.next_index, found[group])
    finally:
        store.abandon()
    return found


def _read_some(
    store: LogStore, executor: AtOnce, group: int, first: int, end: int, found: dict[int, bytes]
) -> int:
    answers: list[RawEntries | HocketError] = []
    read = store.replicated.read_raw(
        group, first, end_index=end, bytes_max=1 << 20, done=answers.append
    )
    if read is None:
        executor.drain()
        (answer,) = answers
        assert isinstance(answer, RawEntries), answer
        read = answer
    data = b"".join(read.slices)
    at = 0
    while at < len(data):
        header = unpack_header(data, at)
        found[header.index] = data[at : at + header.size]
        at += header.size
    return read.end_index


def values_of(log: dict[int, bytes]) -> dict[int, bytes]:
    """By offset, the values of the records that stand in these entries."""
    found: dict[int, bytes] = {}
    for entry in log.values():
        header = unpack_header(entry)
        if header.kind == EntryKind.BATCH:
            values = batches.parse(memoryview(entry), 0).values()
            found.update(enumerate(map(bytes, values), header.base_offset))
    return found
