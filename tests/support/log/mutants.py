"""Mistakes planted in the store, one at a time: the simulated world has to find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hocket.log import checkpoint, envelope, recovery, vital, wal, wal_files
from hocket.log.checkpointer import Checkpointer
from hocket.log.group import GroupLog
from hocket.log.memory import MemoryTier
from hocket.sim.disk import SimDisk, SimFile

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    def write(file: Any, position: int, draft: Any, salt: int, form: Any) -> None:
        file.write(envelope.encode(draft, salt), position)

    patch.setattr(wal, "write", write)


def forget_to_sync_the_wal_directory(patch: pytest.MonkeyPatch) -> None:
    sync = SimDisk.sync_directory

    def forget(disk: SimDisk, path: str) -> None:
        if path != "wal":
            sync(disk, path)

    patch.setattr(SimDisk, "sync_directory", forget)


def forget_to_sync_the_directory_of_segments(patch: pytest.MonkeyPatch) -> None:
    sync = SimDisk.sync_directory

    def forget(disk: SimDisk, path: str) -> None:
        if not path.startswith("groups"):
            sync(disk, path)

    patch.setattr(SimDisk, "sync_directory", forget)


def free_the_wal_before_segments_are_synced(patch: pytest.MonkeyPatch) -> None:
    sync = SimFile.sync

    def forget(file: SimFile) -> None:
        if not file._path.startswith("groups"):
            sync(file)

    patch.setattr(SimFile, "sync", forget)


def free_the_wal_before_the_checkpoint_is_published(patch: pytest.MonkeyPatch) -> None:
    publish = Checkpointer._publish

    def hasty(self: Checkpointer, following: checkpoint.Checkpoint) -> None:
        self._wal.checkpointed(following.lsn, following.generation)
        publish(self, following)

    patch.setattr(Checkpointer, "_publish", hasty)


def publish_without_renaming_durably(patch: pytest.MonkeyPatch) -> None:
    sync = SimDisk.sync_directory

    def forget(disk: SimDisk, path: str) -> None:
        if path != "":
            sync(disk, path)

    patch.setattr(SimDisk, "sync_directory", forget)


def publish_a_snapshot_before_its_entries_are_durable(patch: pytest.MonkeyPatch) -> None:
    durable = Checkpointer.wal_is_durable

    def hasty(self: Checkpointer) -> None:
        kept = [(work.log, work.log.durable) for work in self._work or ()]
        for log, _ in kept:
            log.durable = log.end
        durable(self)
        for log, end in kept:
            log.durable = end

    patch.setattr(Checkpointer, "wal_is_durable", hasty)


def write_what_is_not_durable_to_segments(patch: pytest.MonkeyPatch) -> None:
    plan = GroupLog.slab_writes
    patch.setattr(GroupLog, "slab_writes", lambda log, last: plan(log, 1 << 40))


def take_what_recovery_found_for_durable(patch: pytest.MonkeyPatch) -> None:
    """Without syncing it: after a kill it may be in the page cache only."""
    scan = recovery._scan_files

    def lazy(disk: SimDisk, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(SimFile, "sync", lambda file: None)
            return scan(disk, *args)

    patch.setattr(recovery, "_scan_files", lazy)


def trust_a_checkpoint_whose_name_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """After a kill in the middle of publishing: its rename may be in the page cache only."""
    recover = recovery.recover

    def lazy(disk: SimDisk, *args: Any, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(SimDisk, "sync_directory", lambda disk, path: None)
            return recover(disk, *args, **more)

    def make_reserve(disk: SimDisk, size: int) -> None:
        with pytest.MonkeyPatch.context() as within:  # it would sync the checkpoint's name as well
            within.setattr(SimDisk, "sync_directory", lambda disk, path: None)
            create_reserve(disk, size)

    create_reserve = wal_files.create_reserve
    patch.setattr(wal_files, "create_reserve", make_reserve)
    patch.setattr(vital, "recover", lazy)


def go_on_in_a_file_that_was_torn(patch: pytest.MonkeyPatch) -> None:
    """Files keep their numbers, so what an older life left in them looks new."""

    def keep(*args: Any, needed: bool) -> wal_files.WalFile:
        _disk, _files, file, _number = args
        return wal_files.WalFile(file.number, file.file, file.size)

    patch.setattr(wal_files, "reuse", keep)


def let_go_what_is_not_written(patch: pytest.MonkeyPatch) -> None:
    evict = MemoryTier.evict

    def hasty(tier: MemoryTier, **limits: int) -> bool:
        for slab in tier.slabs:
            slab.written = slab.used
        return evict(tier, **limits)

    patch.setattr(MemoryTier, "evict", hasty)


def scan_the_wal_from_too_late(patch: pytest.MonkeyPatch) -> None:
    make = Checkpointer._checkpoint

    def late(self: Checkpointer) -> checkpoint.Checkpoint:
        made = make(self)
        made.lsn = self._wal.durable_lsn + 1
        return made

    patch.setattr(Checkpointer, "_checkpoint", late)


def forget_deletions(patch: pytest.MonkeyPatch) -> None:
    make = Checkpointer._checkpoint

    def forgetful(self: Checkpointer) -> checkpoint.Checkpoint:
        made = make(self)
        made.deleted = {}
        return made

    patch.setattr(Checkpointer, "_checkpoint", forgetful)


MUTANTS: list[Plant] = [
    acknowledge_before_sync,
    forget_to_sync_the_wal_directory,
    forget_to_sync_the_directory_of_segments,
    free_the_wal_before_segments_are_synced,
    free_the_wal_before_the_checkpoint_is_published,
    publish_without_renaming_durably,
    publish_a_snapshot_before_its_entries_are_durable,
    write_what_is_not_durable_to_segments,
    take_what_recovery_found_for_durable,
    trust_a_checkpoint_whose_name_is_not_durable,
    go_on_in_a_file_that_was_torn,
    let_go_what_is_not_written,
    scan_the_wal_from_too_late,
    forget_deletions,
]
