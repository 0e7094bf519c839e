"""A disk in memory that forgets, after a crash, what was not synced.

Files are written in sectors of 512 bytes. At a crash every sector written since the last sync
survives or not, each by its own chance, so writes are torn in every way; and of the changes to
names that were not synced only the first few survive, how many is chance. That is what POSIX allows
and what file systems do on a bad day; it is harsher than any one of them.

Faults are planted from outside: `capacity_bytes` (then ENOSPC), `flip` (a bad bit), `before` (a
call before every operation that changes something, which may raise an OSError, or `PowerLoss`), and
`lie`: some sectors that are synced are written nowhere, or over others. What a disk lies about is
seen after a power failure: until then the machine's memory has it right.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from hocket.errors import DataDirectoryInUse

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR = 512


class PowerLoss(BaseException):
    """The power fails now. Not an Exception: no code under test may catch it."""


@dataclass(slots=True)
class Lies:
    """How a disk lies: a share of the sectors that are synced is lost, or lands elsewhere."""

    chance: Random
    share: float
    misdirects: bool = False
    told: int = 0

    def strike(self) -> bool:
        if self.chance.random() >= self.share:
            return False
        self.told += 1
        return True


@dataclass(slots=True, eq=False)
class _Content:
    """What a file holds: as the running system sees it, and as it is stored durably."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)  # sectors where the two may differ
    lies: Lies | None = None

    def write(self, buffer: Buffer, position: int) -> int:
        view = memoryview(buffer).cast("B")
        if not view:
            return 0  # an empty write does not make the file longer
        end = position + len(view)
        if end > len(self.data):
            self.touch(len(self.data), end)
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = view
        self.touch(position, end)
        return len(view)

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR, (end + SECTOR - 1) // SECTOR))

    def sync(self) -> None:
        if self.lies is not None:
            sectors, size = sorted(self.dirty), len(self.data)
            self.durable[size:] = bytes(max(size - len(self.durable), 0))
            for sector in sectors:
                self._sync_sector(sector)
            return
        self.durable[:] = self.data
        self.dirty.clear()

    def sync_range(self, start: int, end: int) -> None:
        """Make durable the sectors of these bytes, and the length that makes them reachable."""
        if end > len(self.durable):
            self.durable.extend(bytes(end - len(self.durable)))
        for sector in range(start // SECTOR, (end + SECTOR - 1) // SECTOR):
            self._sync_sector(sector)

    def _sync_sector(self, sector: int) -> None:
        start = sector * SECTOR
        end = min(start + SECTOR, len(self.data), len(self.durable))
        self.dirty.discard(sector)
        if self.lies is not None and self.lies.strike():
            if self.lies.misdirects:
                goal = self.lies.chance.randrange(len(self.durable) // SECTOR + 1) * SECTOR
                room = max(min(end - start, len(self.durable) - goal), 0)
                self.durable[goal : goal + room] = self.data[start : start + room]
            return
        self.durable[start:end] = self.data[start:end]

    def crash(self, random: Random) -> None:
        if len(self.data) != len(self.durable) and random.random() < 0.5:
            length = len(self.data)
            self.durable[length:] = bytes(max(length - len(self.durable), 0))
        for sector in sorted(self.dirty):
            if random.random() < 0.5 and sector * SECTOR < len(self.durable):
                self._sync_sector(sector)
        self.data[:] = self.durable
        self.dirty.clear()


@dataclass(slots=True)
class _NameChange:
    """A name now refers to this content; None: the name was removed."""

    names: dict[str, _Content | None]

    def touches(self, directory: str) -> bool:
        return any(_parent(name) == directory for name in self.names)

    def apply(self, names: dict[str, _Content]) -> None:
        for name, content in self.names.items():
            if content is None:
                names.pop(name, None)
            else:
                names[name] = content


class SimFile:
    """The simulated `ports.File`."""

    def __init__(self, disk: SimDisk, path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._life = disk.crashes

    def write(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> None:
        self._check("write")
        end = position
        for buffer in buffers:
            self._disk.take_space(self._content, end + memoryview(buffer).nbytes)
            end += self._content.write(buffer, end)
        if sync:
            self._disk.before("sync", self._path)
            self._content.sync_range(position, end)

    def read(self, length: int, position: int) -> bytes:
        assert self._life == self._disk.crashes, f"{self._path}: opened before the crash"
        return bytes(self._content.data[position : position + length])

    def sync(self) -> None:
        self._check("sync")
        self._content.sync()

    def truncate(self, length: int) -> None:
        self._check("truncate")
        data = self._content.data
        if length > len(data):
            self._disk.take_space(self._content, length)
        self._content.touch(min(length, len(data)), max(length, len(data)))
        data[length:] = bytes(max(length - len(data), 0))

    def size(self) -> int:
        return len(self._content.data)

    def drop_cache(self, position: int, length: int) -> None:
        """There is none."""

    def close(self) -> None:
        """Closing writes nothing."""

    def _check(self, operation: str) -> None:
        assert self._life == self._disk.crashes, f"{self._path}: opened before the crash"
        self._disk.before(operation, self._path)


class SimDisk:
    """The simulated `ports.Disk`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.before: Callable[[str, str], None] = _allow
        self.crashes = 0
        self._names: dict[str, _Content] = {}  # as the running system sees them
        self._durable_names: dict[str, _Content] = {}
        self._changes: list[_NameChange] = []  # not yet durable, in order
        self._directories: set[str] = {""}
        self._locked = False
        self._lies: Lies | None = None

    # --- ports.Disk --------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        content = self._names.get(path)
        if content is None:
            if not create or _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.before("create", path)
            content = _Content(lies=self._lies)
            self._change({path: content})
        return SimFile(self, path, content)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def list(self, path: str) -> list[str]:
        everything = [*self._names, *self._directories - {""}]
        return sorted(name.rpartition("/")[2] for name in everything if _parent(name) == path)

    def make_directory(self, path: str) -> None:
        while path:
            self._directories.add(path)
            path = _parent(path)

    def rename(self, old: str, new: str) -> None:
        self.before("rename", new)
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._change({old: None, new: self._names[old]})

    def remove(self, path: str) -> None:
        self.before("remove", path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._change({path: None})

    def remove_tree(self, path: str) -> None:
        for name in sorted(self._names):
            if name.startswith(f"{path}/"):
                self.remove(name)
        within = {name for name in self._directories if f"{name}/".startswith(f"{path}/")}
        self._directories -= within

    def sync_directory(self, path: str) -> None:
        self.before("sync_directory", path)
        for change in [change for change in self._changes if change.touches(path)]:
            change.apply(self._durable_names)
            self._changes.remove(change)

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(self.capacity_bytes - self._used_bytes(), 0)

    def lock(self) -> None:
        if self._locked:
            raise DataDirectoryInUse("this simulated disk is in use by another broker")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    # --- faults ------------------------------------------------------------------------------

    def crash(self, random: Random) -> None:
        """The power is lost, and comes back."""
        survive = random.randint(0, len(self._changes))
        for change in self._changes[:survive]:
            change.apply(self._durable_names)
        self._changes.clear()
        self._names = dict(self._durable_names)
        for name in sorted(self._names):
            self._names[name].crash(random)
        for name in self._names:
            self.make_directory(_parent(name))
        self.before = _allow
        self._locked = False
        self.crashes += 1

    def kill(self) -> None:
        """The process ends and the machine goes on: nothing is lost, and nothing is synced."""
        self.before = _allow
        self._locked = False
        self.crashes += 1

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Flip bits of a byte, as a bad medium does."""
        content = self._names[path]
        content.data[position] ^= mask
        if position < len(content.durable):
            content.durable[position] ^= mask

    def lie(self, lies: Lies | None) -> None:
        """From now on; None: tell the truth again."""
        self._lies = lies
        for content in self._names.values():
            content.lies = lies

    def behave(self) -> None:
        """Have room, and neither fail nor lie any more. What was damaged stays so."""
        self.capacity_bytes = None
        self.before = _allow
        self.lie(None)

    def files(self) -> dict[str, int]:
        """The sizes of all files."""
        return {name: len(content.data) for name, content in sorted(self._names.items())}

    def take_space(self, content: _Content, end: int) -> None:
        if self.capacity_bytes is None or end <= len(content.data):
            return
        if self._used_bytes() + end - len(content.data) > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")

    def _used_bytes(self) -> int:
        return sum(len(content.data) for content in self._names.values())

    def _change(self, names: dict[str, _Content | None]) -> None:
        change = _NameChange(names)
        change.apply(self._names)
        self._changes.append(change)


def _allow(_operation: str, _path: str) -> None:
    """The operation may go on."""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
