"""The list of the WAL's files: which there are, how long each is, and which were written to.

    wal.files: twice the same block of 4096 bytes, each
    magic 8 | version of the list 8 | number of files 4 | CRC of the rest 4 | files, 24 each

Rule 1: a file is listed when it stands under its number, durably; not before.
Rule 2: a file that recovery might need is taken off the list before it loses its number.
Rule 3: a file is listed as used when its first envelope is durable; not before.

So a listed file that is gone, or is shorter than the list says, or was used and holds no envelope,
is damage, and never what a crash has left: a file that is being filled has no number yet. The
blocks are written one after the other, in place: that takes no space on a full disk, and leaves one
of them whole whatever happens. Only jobs of the worker `files`, which run one at a time, touch the
list of a running store.
"""

from __future__ import annotations

import errno

from crc32c import crc32c

from hocket.ports import Disk
from hocket.wire.layout import Layout

PATH = "wal.files"
BLOCK_BYTES = 4096
_MAGIC = b"HKTWALF1"
HEAD_LAYOUT = Layout("8sQII", ("magic", "version", "files", "crc"))
_HEAD = HEAD_LAYOUT.struct
FILE_LAYOUT = Layout("QQQ", ("number", "bytes", "is_used"))
_FILE = FILE_LAYOUT.struct
FILES_MAX = (BLOCK_BYTES - _HEAD.size) // _FILE.size  # the newest, should there ever be more


class WalList:
    def __init__(self, disk: Disk, salt: int) -> None:
        """Read the list. `is_damaged` says whether there was one that cannot be read."""
        self._disk = disk
        self._salt = salt
        self._version = 0
        self._older = 0  # the block that is written first: the other one may be all that is whole
        self.files: dict[int, int] = {}  # number -> bytes
        self.used: set[int] = set()
        self.is_damaged = False
        if disk.exists(PATH):
            self._read()

    def _read(self) -> None:
        file = self._disk.open(PATH)
        try:
            file.sync()  # after a crash of the process alone it may be in the page cache only
            data = file.read(2 * BLOCK_BYTES, 0)
        finally:
            file.close()
        found = [self._decode(data[at : at + BLOCK_BYTES]) for at in (0, BLOCK_BYTES)]
        whole = [each for each in found if each is not None]
        # A creation that was cut short leaves a short file, or zeros; nothing was listed yet.
        self.is_damaged = not whole and any(data) and len(data) >= BLOCK_BYTES
        newest = max(whole, key=lambda each: each[0], default=(0, []))
        self._version, rows = newest
        self.files = {number: size for number, size, _ in rows}
        self.used = {number for number, _, is_used in rows if is_used}
        self._older = 1 if found[0] == newest else 0

    def _decode(self, block: bytes) -> tuple[int, list[tuple[int, ...]]] | None:
        if len(block) < BLOCK_BYTES:
            return None
        magic, version, count, crc = _HEAD.unpack_from(block)
        if magic != _MAGIC or count > FILES_MAX:
            return None
        body = block[_HEAD.size : _HEAD.size + count * _FILE.size]
        if self._crc(version, body) != crc:
            return None
        return version, list(_FILE.iter_unpack(body))

    def _crc(self, version: int, body: bytes) -> int:
        return crc32c(body, crc32c(version.to_bytes(8, "little"), self._salt))

    # --- changes ---------------------------------------------------------------------------------

    def add(self, number: int, size: int) -> None:
        self.files[number] = size
        self._write_if_room()

    def use(self, number: int) -> None:
        """The first envelope in this file is durable."""
        if number in self.files:
            self.used.add(number)
            self._write_if_room()

    def drop(self, number: int) -> None:
        if number in self.files:
            self.forget(number)
            self._write()

    def clear(self) -> None:
        if self.files:
            self.files.clear()
            self.used.clear()
            self._write()

    def forget(self, number: int) -> None:
        """Take a file off with the next change: recovery does not look for it any more."""
        self.files.pop(number, None)
        self.used.discard(number)

    def _write_if_room(self) -> None:
        """Where the list has no room of its own yet, a full disk must not keep a file from use.

        A file that is not listed would not be missed; that is all.
        """
        try:
            self._write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _write(self) -> None:
        self._version += 1
        newest = sorted(self.files.items())[-FILES_MAX:]
        body = b"".join(_FILE.pack(each, size, each in self.used) for each, size in newest)
        head = _HEAD.pack(_MAGIC, self._version, len(newest), self._crc(self._version, body))
        block = (head + body).ljust(BLOCK_BYTES, b"\0")
        is_new = not self._disk.exists(PATH)
        file = self._disk.open(PATH, create=True)
        try:
            for number in (self._older, 1 - self._older):
                file.write([block], number * BLOCK_BYTES, sync=True)
        finally:
            file.close()
        if is_new:
            self._disk.sync_directory("")
