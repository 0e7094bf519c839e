"""Mistakes planted in the broker, one at a time: damaged stores have to find every one.

Each names the cases that meet it: `found_by` is a text in their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hocket.log import checkpoint, replay, segment_reader, verify, wal_scan
from hocket.log import store as store_module
from hocket.log.group import GroupLog
from hocket.log.model import LogEnd
from hocket.log.replay import Replay
from hocket.log.segment import Points
from hocket.log.wal_scan import Found, WalEntry, WalScan
from hocket.wire.entry import HEADER, HEADER_BYTES, Header

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    plant: Plant
    found_by: tuple[str, ...]  # texts in the names of cases

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


def trust_headers(patch: pytest.MonkeyPatch) -> None:
    """Headers of entries in damaged envelopes are taken as they are."""

    def header_at(content: memoryview, position: int) -> Header | None:
        if position + HEADER_BYTES > len(content):
            return None
        header = Header._make(HEADER.unpack_from(content, position))
        fits = header.index and position + header.size <= len(content)
        return header if fits else None

    patch.setattr(wal_scan, "_header_at", header_at)


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
    patch.setattr(store_module, "_refuse_damaged_metadata", lambda *_: None)


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


def trust_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """The first copy is taken whether it matches its checksum or not."""
    patch.setattr(
        checkpoint, "_crc", lambda *_: checkpoint.HEAD_LAYOUT.struct.unpack_from(_image(patch))[2]
    )


def _image(_patch: pytest.MonkeyPatch) -> bytes:
    raise NotImplementedError


def trust_the_sparse_index(patch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes) -> Points | None:
        points = Points()
        count = (len(data) - 16) // 24
        for number, column in enumerate((points.offsets, points.positions, points.stamps)):
            column.frombytes(data[16 + number * 8 * count : 16 + (number + 1) * 8 * count])
        return points

    patch.setattr(Points, "decode", staticmethod(decode))


def verify_sees_nothing(patch: pytest.MonkeyPatch) -> None:
    def report(*_: Any) -> None:
        return None

    patch.setattr(verify, "_verify_group", report)
