"""Mistakes planted in the broker, one at a time: damaged stores have to find every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hocket.log import (
    checkpoint,
    recovery,
    replay,
    segment_reader,
    store as store_module,
    verify,
    vital,
)
from hocket.log.group import GroupLog
from hocket.log.model import LogEnd
from hocket.log.replay import Replay
from hocket.log.segment import Points
from hocket.log.wal_list import WalList
from hocket.log.wal_scan import Found, WalEntry, WalScan
from hocket.node import recovery as node_recovery
from hocket.node.running import partitions

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    plant: Plant
    found_by: tuple[str, ...]  # which cases meet it: these texts are in their names

    @property
    def name(self) -> str:
        return self.plant.__name__


def trust_bodies_in_the_wal(patch: pytest.MonkeyPatch) -> None:
    """The checksum of a body is not compared when the write-ahead log is replayed."""
    entry = Replay.entry

    def trusting(self: Replay, found: WalEntry, lsn: int) -> None:
        patch.setattr(replay, "crc32c", lambda _body: found.header.body_crc)
        entry(self, found, lsn)

    patch.setattr(Replay, "entry", trusting)


def trust_bodies_in_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment_reader, "_body_is_whole", lambda *_: True)


def cut_at_damage(patch: pytest.MonkeyPatch) -> None:
    """What is not whole is the end of the log, whatever proves that it was durable."""

    def feed(self: WalScan, found: Found) -> None:
        if self._held is not None or found.content is None:
            self._held = found
            return
        real(self, found)

    real = WalScan.feed
    patch.setattr(WalScan, "feed", feed)


def ignore_the_table_of_the_next_envelope(patch: pytest.MonkeyPatch) -> None:
    def table(self: Replay, rows: list[tuple[int, LogEnd]], lsn: int, *, complete: bool) -> None:
        if complete:
            self._unknown_from = 0

    patch.setattr(Replay, "table", table)


def serve_damaged_metadata(patch: pytest.MonkeyPatch) -> None:
    """Rights as they were before the entries that are lost are in force again."""
    for module in (store_module, vital):
        patch.setattr(module, "refuse_damaged", lambda *_: None)


def forget_damage_at_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupLog, "lasting_damage", property(lambda _: ()))


def skip_damage_in_silence(patch: pytest.MonkeyPatch) -> None:
    """Readers are led around damage as if it had been accepted."""

    def readable_from(self: GroupLog, offset: int) -> int:
        for damage in self.damage:
            if damage.end is not None and damage.start <= offset < damage.end:
                offset = damage.end
        return offset

    patch.setattr(GroupLog, "readable_from", readable_from)


class _EqualsAll(int):
    """A checksum that matches any other."""

    __hash__ = int.__hash__

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False


def trust_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """The first copy is taken, whether it matches its checksum or not."""
    patch.setattr(checkpoint, "_crc", lambda *_: _EqualsAll())


def trust_the_sparse_index(patch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes) -> Points | None:
        points = Points()
        count = (len(data) - 16) // 24
        for number, column in enumerate((points.offsets, points.positions, points.stamps)):
            column.frombytes(data[16 + number * 8 * count : 16 + (number + 1) * 8 * count])
        return points

    patch.setattr(Points, "decode", staticmethod(decode))


def verify_sees_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verify, "_verify_group", lambda *_: None)


def accept_nothing(patch: pytest.MonkeyPatch) -> None:
    """`accept-loss` says that it was done, and writes nothing down."""
    patch.setattr(verify, "write_checked", lambda *_: None)


def miss_no_file(patch: pytest.MonkeyPatch) -> None:
    """A file of the write-ahead log that is gone or cut short is taken for the end of the log."""
    patch.setattr(WalScan, "missing", lambda *_: None)


def reuse_foreign_files(patch: pytest.MonkeyPatch) -> None:
    """A file with envelopes of another store counts as one that was never used."""
    read = WalList._read

    def forgetful(self: WalList) -> None:
        read(self)
        self.used.clear()

    patch.setattr(WalList, "_read", forgetful)
    patch.setattr(recovery, "is_foreign", lambda *_: False)


def forget_which_files_were_used(patch: pytest.MonkeyPatch) -> None:
    """A file of the write-ahead log in which nothing is left counts as one that was never used."""
    patch.setattr(WalList, "used", property(lambda _: set(), lambda *_: None), raising=False)


def write_behind_an_unknown_end(patch: pytest.MonkeyPatch) -> None:
    """Offsets that may have been given are given again."""
    patch.setattr(GroupLog, "tail_damage", property(lambda _: None))


def say_nothing_at_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node_recovery.log, "warning", lambda *_: None)


def tell_no_core_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Cores go on behind the last entry that they have seen, not behind the last that there was."""
    replay_one = partitions.replay

    def untold(core: Any, recovered: Any, now_us: int) -> None:
        recovered.losses.clear()
        replay_one(core, recovered, now_us)

    patch.setattr(partitions, "replay", untold)


MUTANTS = (
    Mutant(trust_bodies_in_the_wal, (".wal:", "batch", "body/value data: flip")),
    Mutant(trust_bodies_in_segments, ("groups/1/", "body/value data: flip")),
    Mutant(cut_at_damage, (".wal:", "batch", "body/value data: flip")),
    Mutant(ignore_the_table_of_the_next_envelope, ("young/", ".wal:", "batch", "header/index")),
    Mutant(serve_damaged_metadata, (".wal:", "access", "body/value 1: flip")),
    Mutant(forget_damage_at_the_checkpoint, (".wal:", "batch", "body/value data: zero")),
    Mutant(skip_damage_in_silence, (".wal:", "batch", "body/value data: zero")),
    Mutant(trust_the_checkpoint, ("full/checkpoint:image 0", "lsn: flip")),
    Mutant(trust_the_sparse_index, ("groups/1/", ".index:positions: flip")),
    Mutant(verify_sees_nothing, ("groups/1/", "body/value data: flip")),
    Mutant(accept_nothing, (".wal:", "batch", "body/value data: flip")),
    Mutant(miss_no_file, (".wal:", "batch", "body/value data: cut")),
    Mutant(forget_which_files_were_used, ("young/", ".wal:all: zero")),
    Mutant(reuse_foreign_files, (".wal:all: foreign",)),
    Mutant(write_behind_an_unknown_end, ("full/wal", ":all: remove")),
    Mutant(say_nothing_at_the_start, (".wal:", "batch", "body/value data: flip")),
    Mutant(tell_no_core_what_is_lost, ("young/", "batch 0 of log 1/body/value data: flip")),
)
