"""Writes segment files: what a checkpoint plans on the node's thread, and the jobs that do it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.log.directory import RESERVE
from hocket.log.group import GroupLog, SlabWrite
from hocket.log.model import LogEnd
from hocket.log.segment import Segment, group_directory, index_path
from hocket.log.tier.stub import names_beside
from hocket.ports import Disk


@dataclass(slots=True)
class FileWrite:
    """Views of slabs that are written to one segment file, back to back."""

    path: str
    position: int
    views: list[memoryview]
    cut: bool  # bytes behind `position` are left over from an earlier run
    is_new: bool  # the file is created, so its name has to be made durable
    index: bytes | None = None  # the sparse index, if the segment is full with this


@dataclass(slots=True)
class GroupWork:
    """What one group brings into a checkpoint."""

    log: GroupLog
    snapshot_index: int
    snapshot: bytes
    end: LogEnd
    writes: list[SlabWrite]
    files: list[FileWrite] = field(default_factory=list)
    indexed: list[Segment] = field(default_factory=list)  # their sparse indexes are written too
    # The files that belong in the group's directory: others are removed. None: leave them.
    names: frozenset[str] | None = None


def add_write(work: GroupWork, write: SlabWrite) -> None:
    segment = write.slab.segment
    path = segment.path
    if work.files and work.files[-1].path == path:
        work.files[-1].views.append(write.view)
        return
    position = write.slab.start + write.slab.written
    work.files.append(
        FileWrite(path, position, [write.view], not segment.file_is_clean, is_new=position == 0)
    )


def add_indexes(work: GroupWork) -> None:
    """Add the sparse indexes of the segments that are full and, with this, wholly written."""
    for segment in reversed(work.log.segments):
        if segment.index_is_written:
            break  # and so are those of all segments before it
        if not segment.full or segment.end_index > work.end.next_index:
            continue
        work.indexed.append(segment)
        if segment.points is None:
            continue  # a reader that needs it rebuilds it
        index = segment.points.encode()
        for file in work.files:
            if file.path == segment.path:
                file.index = index
                break
        else:
            work.files.append(
                FileWrite(segment.path, segment.size, [], cut=False, is_new=False, index=index)
            )


# --- jobs: no state but what they are given ------------------------------------------------------


def write_segments(disk: Disk, groups: list[GroupWork]) -> None:
    for work in groups:
        directory = group_directory(work.log.id)
        if work.names is not None:
            disk.make_directory(directory)
            for name in disk.list(directory):
                if name not in work.names:
                    disk.remove(f"{directory}/{name}")
        for write in work.files:
            _write_file(disk, write)
        if any(write.is_new for write in work.files):
            disk.sync_directory(directory)


def _write_file(disk: Disk, write: FileWrite) -> None:
    if write.views:
        file = disk.open(write.path, create=True)
        try:
            if write.cut:
                file.truncate(write.position)
            file.write(write.views, write.position)
            file.sync()
            file.drop_cache(write.position, sum(map(len, write.views)))
        finally:
            file.close()
    if write.index is not None:
        # Not synced: the index has a checksum, and is rebuilt if it does not match that.
        beside = disk.open(index_path(write.path), create=True)
        try:
            beside.truncate(0)
            beside.write([write.index], 0)
        finally:
            beside.close()


def tidy(disk: Disk, paths: list[str], groups: list[int], reserve_bytes: int) -> None:
    """Remove segments and whole groups; then set space aside again."""
    for path in paths:
        for each in names_beside(path):
            if disk.exists(each):
                disk.remove(each)
    for group in groups:
        disk.remove_tree(group_directory(group))
    if reserve_bytes:
        _make_reserve(disk, reserve_bytes)


def _make_reserve(disk: Disk, size: int) -> None:
    file = disk.open(RESERVE, create=True)
    try:
        if file.size() < size:
            file.write([bytes(size)], 0)
            file.sync()
    finally:
        file.close()
