"""What threads do for a storage tier: no state but what they are given.

Nothing of this holds the interpreter for long: bytes are carried in chunks of CHUNK_BYTES. A job
that the store has not waited for when it closed must write no more, since the directory may be
another process's by then: `Gate`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, cast

from crc32c import crc32c

from hocket.log.directory import Format
from hocket.log.tier.place import AwayError, StorageTier
from hocket.log.tier.stub import Stub, read_stub, write_stub
from hocket.ports import Disk, File

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK_BYTES = 1 << 20
KEYS_MAX = 1_000_000  # that a place lists: at 64 MiB a segment that is 64 TB of one store
FETCHED = "fetched"  # the directory of segments that were fetched; emptied at every start
FORMAT_WITH_STUBS = 3  # an older version would take a segment that is away for lost


class Gate:
    """Closed when the store closes: what comes later does not touch the disk."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_closed:
            self._lock.release()
            raise AwayError("the store is closed")

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


class Source(io.RawIOBase):
    """The first `size` bytes of a file of the disk, to be read once, from the front."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._left = size
        self.position = 0
        self.crc = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(min(len(view), self._left, CHUNK_BYTES), self.position)
        view[: len(data)] = data
        self.crc = crc32c(data, self.crc)
        self.position += len(data)
        self._left -= len(data)
        return len(data)


class Target(io.RawIOBase):
    """Takes what a place hands out: into a file, or only to compare it."""

    def __init__(self, size_max: int, file: File | None = None, gate: Gate | None = None) -> None:
        self._size_max = size_max
        self._file = file
        self._gate = gate
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        if self.size + len(view) > self._size_max:
            raise AwayError(f"it hands out more than the {self._size_max} bytes of the segment")
        if self._file is not None:
            assert self._gate is not None
            with self._gate:
                self._file.write([view], self.size)
        self.crc = crc32c(view, self.crc)
        self.size += len(view)
        return len(view)


def copy(disk: Disk, place: StorageTier, path: str, key: str, size: int) -> int:
    """Have the place keep the segment, and hand it out again. Returns the CRC of the whole."""
    file = disk.open(path)
    try:
        source = Source(file, size)
        place.store(key, cast(BinaryIO, io.BufferedReader(source, CHUNK_BYTES)))
        file.drop_cache(0, size)
    finally:
        file.close()
    if source.position != size:
        raise AwayError(f"it took {source.position} of {size} bytes")
    back = Target(size)
    place.fetch(key, cast(BinaryIO, back))
    if (back.size, back.crc) != (size, source.crc):
        raise AwayError(f"of {size} bytes it hands out {back.size}, or others than it was given")
    return source.crc


def record(disk: Disk, form: Format, path: str, stub: Stub) -> None:
    form.need(FORMAT_WITH_STUBS)
    write_stub(disk, path, stub)


def fetch(
    disk: Disk, place: StorageTier, gate: Gate, *, path: str, key: str, into: str, size: int
) -> None:
    """Write the segment to the file `into`, and compare it with the stub."""
    stub = read_stub(disk, path)
    with gate:
        file = disk.open(into, create=True)
        file.truncate(0)
    try:
        target = Target(size, file, gate)
        place.fetch(key, cast(BinaryIO, target))
        file.drop_cache(0, size)
    finally:
        file.close()
    if target.size != size:
        raise AwayError(f"it hands out {target.size} of {size} bytes")
    if stub is not None and target.crc != stub.crc:
        raise AwayError("what it hands out is not what was stored: the checksum is another")


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        if disk.exists(path):
            disk.remove(path)


def remove(place: StorageTier, keys: Sequence[str], prefixes: Sequence[str]) -> None:
    for prefix in prefixes:
        keys = [*keys, *keys_of(place, prefix)]
    for key in keys:
        place.remove(key)


def keys_of(place: StorageTier, prefix: str) -> frozenset[str]:
    """Those alone that begin so: a place that lists others as well must not have them removed.

    One that lists the same page again and again would otherwise never end, or take all memory.
    """
    found = set()
    for count, key in enumerate(place.keys(prefix)):
        if count == KEYS_MAX:
            raise AwayError(f"it lists more than {KEYS_MAX:,} keys")
        if key.startswith(prefix):
            found.add(key)
    return frozenset(found)
