"""A directory of the machine's file system, as `ports.Disk`.

A synced write is one `pwritev` with RWF_DSYNC. That takes the interpreter's lock back once, where
write and fsync would take it twice. Where the system or the file system does not know the flag, or
there are more buffers than one call takes, one fdatasync follows the write.

macOS has neither. Its fsync leaves data in the drive's own cache, which a power failure empties;
F_FULLFSYNC is what fsync is elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from hocket.errors import DataDirectoryInUse

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFERS_MAX = 1024  # IOV_MAX of Linux
LOCK_NAME = "lock"
NOT_KNOWN = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOTTY)


class DirectoryFile:
    """The real `ports.File`."""

    def __init__(self, descriptor: int, disk: DirectoryDisk | None = None) -> None:
        self._descriptor = descriptor
        self._disk = disk
        # The flag for a write that is synced at once; 0: it is not known here.
        self._dsync: int = getattr(os, "RWF_DSYNC", 0) if hasattr(os, "pwritev") else 0

    def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        if not sync or self._disk is None or self._disk.on_sync is None:
            self._write(buffers, position, sync=sync)
            return
        began = perf_counter()
        self._write(buffers, position, sync=True)
        self._disk.on_sync(perf_counter() - began)

    def _write(self, buffers: Sequence[Buffer], position: int, *, sync: bool) -> None:
        views = [view for view in map(_as_bytes, buffers) if len(view)]
        at_once = sync and self._dsync and 0 < len(views) <= BUFFERS_MAX
        if at_once:
            try:
                whole = self._write_some(views, position, self._dsync)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
                self._dsync = 0
            else:
                if whole:
                    return  # the usual case: durable after one call
        self._write_all(views, position)
        if sync:
            _sync(self._descriptor)

    def _write_some(self, views: list[memoryview], position: int, flags: int) -> bool:
        return os.pwritev(self._descriptor, views, position, flags) == sum(map(len, views))

    def _write_all(self, views: list[memoryview], position: int) -> None:
        first = 0
        while first < len(views):
            some = views[first : first + BUFFERS_MAX]
            count = _write_first(self._descriptor, some, position)
            position += count
            for view in some:
                if count < len(view):
                    views[first] = view[count:]
                    break
                count -= len(view)
                first += 1

    def read(self, length: int, position: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = os.pread(self._descriptor, length, position)
            if not part:
                break
            parts.append(part)
            length -= len(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def sync(self) -> None:
        _sync(self._descriptor)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def drop_cache(self, position: int, length: int) -> None:
        advise = getattr(os, "posix_fadvise", None)
        if advise is not None:
            with suppress(OSError):  # advice only
                advise(self._descriptor, position, length, getattr(os, "POSIX_FADV_DONTNEED", 0))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class DirectoryDisk:
    """The real `ports.Disk`: everything below `root`, which `make_directory("")` creates."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._lock = -1
        # Told how long each synced write took, in seconds, on the thread that wrote.
        self.on_sync: Callable[[float], None] | None = None

    def open(self, path: str, *, create: bool = False) -> DirectoryFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DirectoryFile(os.open(self.root / path, flags, 0o640), self)

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        made: list[Path] = []
        directory = self.root / path
        while not directory.is_dir():
            made.append(directory)
            directory = directory.parent
        for directory in reversed(made):
            with suppress(FileExistsError):
                directory.mkdir(mode=0o750)
            _sync_directory(directory.parent)

    def rename(self, old: str, new: str) -> None:
        os.replace(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        os.remove(self.root / path)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self.root / path)

    def sync_directory(self, path: str) -> None:
        _sync_directory(self.root / path)

    def free_bytes(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def lock(self) -> None:
        descriptor = os.open(self.root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirectoryInUse(
                f"{self.root} is in use by another broker (process {holder}); stop that one, or "
                "give this one a directory of its own"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        with suppress(OSError):  # on a full disk nobody is told whose lock it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _as_bytes(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(descriptor, os.fsync)
    finally:
        os.close(descriptor)


def _sync(descriptor: int, otherwise: Callable[[int], None] | None = None) -> None:
    """Return when what was written to the file, and its length, outlives a power failure."""
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            if error.errno not in NOT_KNOWN:  # to a file system over the network, say
                raise
        else:
            return
    if otherwise is None:
        otherwise = getattr(os, "fdatasync", os.fsync)
    otherwise(descriptor)


def _write_first(descriptor: int, views: list[memoryview], position: int) -> int:
    """Write some of it, from the beginning on; returns how many bytes."""
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, views, position)
    return os.pwrite(descriptor, views[0], position)
