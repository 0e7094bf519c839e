"""Small disks of their own for data directories, which can be filled up and freed again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_BYTES = 128 << 20  # of memory, as far as it is used
CHUNK_BYTES = 1 << 20


class SmallDisk:
    def __init__(self, directory: Path) -> None:
        self._filler = directory / "filler"

    def fill(self) -> None:
        """To the last byte."""
        with self._filler.open("wb", buffering=0) as file:
            size = CHUNK_BYTES
            while size:
                try:
                    if file.write(bytes(size)) < size:
                        size //= 2
                except OSError:  # no space is left for so much
                    size //= 2

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    directory.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, capture_output=True)


def has_mounts(scratch: Path) -> bool:
    """Whether this user may mount."""
    if os.geteuid() != 0:
        return False
    try:
        with small_disk(scratch / "probe"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
