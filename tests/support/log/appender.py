"""A process that appends to a store on a real disk and says what is durable, until it is killed.

    python -m tests.support.log.appender DIRECTORY SEED

Prints one line for every commit: "GROUP INDEX ...". Bodies follow from group and index alone, so
that the one who kills it knows what to expect.
"""

from __future__ import annotations

import sys
from queue import SimpleQueue
from random import Random
from typing import Any

from crc32c import crc32c

from hocket.adapters.clock import SystemClock
from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.executor import ThreadExecutor
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import LogStore, NewEntry
from hocket.model import EntryKind

GROUPS = (1, 2, 3)
SETTINGS = LogSettings(
    wal_file_bytes=256 << 10, wal_file_bytes_min=64 << 10, checkpoint_bytes=200_000,
    slab_bytes=16 << 10, index_interval_bytes=4096, reserve_bytes=4096,
)  # fmt: skip
GROUP_SETTINGS = GroupSettings(memory_bytes_max=64 << 10, segment_bytes_max=100_000)


def body_of(group: int, index: int) -> bytes:
    random = Random(f"{group}/{index}")
    return random.randbytes(random.randint(0, 2000))


class Host:
    """A thread's worth of a node: the store's observer, and a loop for what jobs report."""

    def __init__(self, directory: str, *, settings: LogSettings = SETTINGS) -> None:
        self.durable: dict[int, int] = {}
        self.stopped: Exception | None = None
        self.posted: SimpleQueue[Any] = SimpleQueue()
        self.executor = ThreadExecutor(self.posted.put)
        self.disk = DirectoryDisk(directory)
        self.store = LogStore.open(self.disk, self.executor, SystemClock(), settings)
        self.store.report_to(self)
        self.next = dict.fromkeys(GROUPS, (1, 0))  # index and offset of the next entry
        for group, found in self.store.recovered.items():
            self.next[group] = (found.next_index, found.next_offset)
            self.durable[group] = found.next_index - 1
        for group in GROUPS:
            self.store.configure(group, GROUP_SETTINGS)

    def log_durable(self, through: dict[int, int]) -> None:
        self.durable.update(through)

    def log_stopped(self, error: Exception) -> None:
        self.stopped = error

    def log_room(self) -> None:
        """It looks by itself."""

    def snapshot(self, group: int) -> tuple[int, bytes]:
        index = self.durable.get(group, 0)
        return index, b"state %d" % index

    def append(self, group: int) -> None:
        index, offset = self.next[group]
        body = body_of(group, index)
        self.store.append(
            group, NewEntry(EntryKind.BATCH, 0, 0, 1, 1, index, offset, crc32c(body), index, body)
        )
        self.next[group] = (index + 1, offset + 1)

    def turn(self, *, wait: bool = False) -> None:
        """What jobs have reported meanwhile; with `wait` at least one report."""
        if wait:
            self.posted.get(timeout=30)()
        while not self.posted.empty():
            self.posted.get()()

    def close(self) -> None:
        self.store.close()
        self.executor.close()


def main(directory: str, seed: str) -> None:
    host = Host(directory)
    random = Random(seed)
    said: dict[int, int] = dict(host.durable)
    while True:
        for _ in range(random.randint(1, 20)):
            host.append(random.choice(GROUPS))
        host.store.flush()
        host.store.tick()
        host.turn(wait=True)
        while host.store.congested:
            host.turn(wait=True)
        news = {group: index for group, index in host.durable.items() if said.get(group) != index}
        said.update(news)
        sys.stdout.write(" ".join(f"{group} {index}" for group, index in news.items()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
