"""Old segments go to any place that fsspec knows: a directory, a bucket, a server.

Each segment is one file below the URL, `STORE/LOG/OFFSET-INDEX.log`. What the place does wrong is
seen by the node, which compares what is handed out with what it gave; here is only the way there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from hocket.plugins import TierRules, hook

CHUNK_BYTES = 1 << 20
DAY_SECONDS = 86_400


class ColdTier:
    api = 1
    policy = "closed"

    @dataclass
    class Settings:
        url: str  # such as file://./archive, s3://bucket/hocket
        after_days: float | None = 7.0  # since the latest message of a segment
        local_bytes: int | None = None  # of a partition: older segments beyond this go, too
        cache_bytes: int = 1 << 30
        deadline_seconds: float = 30.0
        options: dict[str, str] = field(default_factory=dict)  # of the file system, for fsspec

    def __init__(self, settings: Settings) -> None:
        self._files: Any
        self._files, root = url_to_fs(settings.url, **settings.options)
        self._root = root.rstrip("/")
        after = settings.after_days
        self.rules = TierRules(
            after=None if after is None else after * DAY_SECONDS,
            local_bytes=settings.local_bytes,
            cache_bytes=settings.cache_bytes,
            deadline=settings.deadline_seconds,
        )

    @hook
    def storage_tier(self) -> ColdTier:
        return self

    def store(self, key: str, source: BinaryIO) -> None:
        path = self._path(key)
        if isinstance(self._files, LocalFileSystem) and not os.path.isdir(self._root):
            # It may be on a disk that is not mounted: made anew it would fill another one.
            raise NotADirectoryError(f"there is no directory {self._root}")
        self._files.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        with self._files.open(path, "wb") as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)
            if isinstance(self._files, LocalFileSystem):
                file.flush()
                os.fsync(file.fileno())
        if isinstance(self._files, LocalFileSystem):
            self._sync_names(PurePosixPath(path))

    def fetch(self, key: str, target: BinaryIO) -> None:
        with self._files.open(self._path(key), "rb") as file:
            shutil.copyfileobj(file, target, CHUNK_BYTES)

    def remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def keys(self, prefix: str) -> Iterator[str]:
        self._files.invalidate_cache()  # some keep listings, which others have outdated since
        below = self._path(prefix)
        for path in self._files.find(below):
            yield path.removeprefix(f"{self._root}/")

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    def _sync_names(self, path: PurePosixPath) -> None:
        """The name of the file, and those of the directories that were made for it, are durable."""
        for directory in path.parents:
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if str(directory) == self._root:
                return
