"""How long a store takes to open again, after a clean end or a kill, by the size of its data.

    python -m benchmarks.recovery [--sizes 0.1,1,5] [--directory DIR] [--json FILE]

What is asked for: the time must not grow with the data, only with the WAL behind the last
checkpoint. Each size is written through `LogStore` on a real disk; then the directory is opened
once after a clean close, and once after the process that went on appending was cut off at a moment
when its WAL was as full as it gets (nothing is closed, checkpointed or flushed). The page cache is
dropped before each opening, where the system lets us; `wal_mib` says what had to be replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from crc32c import crc32c

from hocket.adapters.clock import SystemClock
from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.executor import ThreadExecutor
from hocket.errors import StoreStopped
from hocket.log.store import GroupSettings, LogSettings, LogStore, NewEntry
from hocket.model import EntryKind

GROUPS = 16
BODY = os.urandom(64 << 10)
BODY_CRC = crc32c(BODY)
GIB = 1 << 30


class Host:
    """The least that a store needs around it."""

    def __init__(self, directory: Path) -> None:
        self.posted: SimpleQueue[Any] = SimpleQueue()
        self.executor = ThreadExecutor(self.posted.put)
        self.durable: dict[int, int] = {}
        started = time.perf_counter()
        self.store = LogStore.open(
            DirectoryDisk(directory), self.executor, SystemClock(), LogSettings()
        )
        self.store.report_to(self)
        self.open_seconds = time.perf_counter() - started
        self.next = dict.fromkeys(range(1, GROUPS + 1), 1)
        self.replayed = 0
        for group, found in self.store.recovered.items():
            self.next[group] = found.next_index
            self.durable[group] = found.next_index - 1
            self.replayed += len(found.entries)
        self.store.recovered.clear()
        for group in self.next:
            self.store.configure(group, GroupSettings(memory_bytes_max=4 << 20))

    def log_durable(self, through: dict[int, int]) -> None:
        self.durable.update(through)

    def log_stopped(self, error: StoreStopped) -> None:
        raise error

    def log_room(self) -> None:
        """It looks by itself."""

    def snapshot(self, group: int) -> tuple[int, bytes]:
        return self.durable.get(group, 0), b""

    def append(self, size: int) -> None:
        """So many bytes, spread over the groups, all durable on return."""
        for number in range(max(size // len(BODY), 1)):
            group = number % GROUPS + 1
            index = self.next[group]
            self.next[group] = index + 1
            self.store.append(
                group,
                NewEntry(EntryKind.BATCH, 0, 0, 1, 1, index, index - 1, BODY_CRC, index, BODY),
            )
            self.store.flush()
            while not self.posted.empty() or self.store.congested:
                self.posted.get()()
        while any(self.durable.get(group, 0) < index - 1 for group, index in self.next.items()):
            self.store.flush()
            self.posted.get()()

    def close(self) -> None:
        self.store.close()
        self.executor.close()


def append_and_vanish(directory: str, size: int) -> None:
    """In a process of its own: append, and end as if killed."""
    host = Host(Path(directory))
    host.append(size)
    os._exit(0)


def drop_page_cache() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def measure(gigabytes: float, directory: Path) -> list[dict[str, Any]]:
    host = Host(directory)
    started = time.perf_counter()
    host.append(int(gigabytes * GIB))
    seconds = time.perf_counter() - started
    host.close()
    print(f"{gigabytes} GiB written in {seconds:.1f} s", file=sys.stderr)
    rows = [reopen(gigabytes, directory, "clean")]
    # A little less than makes a checkpoint due: as much as a WAL may hold that has to be replayed.
    size = LogSettings().checkpoint_bytes * 9 // 10
    child = get_context("spawn").Process(target=append_and_vanish, args=(str(directory), size))
    child.start()
    child.join()
    assert child.exitcode == 0, "the process that was to be cut off failed by itself"
    rows.append(reopen(gigabytes, directory, "killed"))
    return rows


def reopen(gigabytes: float, directory: Path, after: str) -> dict[str, Any]:
    cold = drop_page_cache()
    host = Host(directory)
    row = {
        "row": f"recovery of {gigabytes} GiB, {after}",
        "data_gib": gigabytes,
        "after": after,
        "seconds": round(host.open_seconds, 4),
        "wal_mib": round(host.replayed * len(BODY) / (1 << 20), 1),
        "page_cache": "dropped" if cold else "warm",
    }
    host.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="0.1,1,5", help="in GiB, with commas between them")
    parser.add_argument("--directory", help="on the disk to be measured; a temporary one if absent")
    parser.add_argument("--json", help="where the rows go, as JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in options.sizes.split(","):
        directory = Path(tempfile.mkdtemp(prefix="hocket-recovery-", dir=options.directory))
        try:
            rows += measure(float(size), directory)
        finally:
            shutil.rmtree(directory)
    print(f"{'data':>8} {'after':>8} {'replayed':>10} {'seconds':>9}  page cache")
    for row in rows:
        print(
            f"{row['data_gib']:>4} GiB {row['after']:>8} {row['wal_mib']:>6} MiB "
            f"{row['seconds']:>9.3f}  {row['page_cache']}"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
