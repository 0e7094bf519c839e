"""One damage to one place of a store: which there are, what each changes, what it may cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple
from zlib import crc32

from crc32c import crc32c

from hocket.log import checkpoint as checkpoints
from hocket.log.directory import ACCEPTED, WAL, salt_of
from hocket.log.envelope import ALIGNMENT, HEADER_COPIES, HEADER_LAYOUT, MAGIC
from hocket.log.model import VITAL
from hocket.log.wal_files import number_of
from hocket.model import EntryKind
from tests.support.damage.places import Files, Mapped, Place, Stored
from tests.support.damage.store import Partition, Store

_NUMBER_BYTES = 8  # one flipped bit of a number is as bad as another
Action = Literal["flip", "flip the end", "zero", "fill", "cut", "remove", "foreign"]


class Case(NamedTuple):
    place: Place
    action: Action

    @property
    def name(self) -> str:
        return f"{self.place}: {self.action}"

    @property
    def sort(self) -> str:
        return f"{self.place.sort}: {self.action}"

    def damaged(self, files: Files) -> dict[str, bytes] | None:
        """The files with this damage; None if it changes nothing."""
        path, _, start, end = self.place
        data = bytearray(files[path])
        changed = dict(files)
        if self.action == "remove":
            del changed[path]
            return changed
        if self.action == "flip":
            data[start] ^= 1 << crc32(self.name.encode()) % 8
        elif self.action == "flip the end":
            data[end - 1] ^= 1 << crc32(self.name.encode()) % 8
        elif self.action in ("zero", "fill"):
            data[start:end] = (b"\0" if self.action == "zero" else b"\xff") * (end - start)
        elif self.action == "foreign":
            data[:] = _of_another_store(path, bytes(data))
        else:
            del data[start:]
        changed[path] = bytes(data)
        return changed if changed[path] != files[path] else None


@dataclass
class Harm:
    """What a case may cost, at most."""

    records: dict[Partition, set[int]]  # that are in what is damaged
    torn: bool  # nothing proves that they were durable: they may be taken for a torn write
    groups: set[int]  # with entries in it
    tells_nothing: bool  # what else was there is not known: any log may have gone on
    may_refuse: bool  # the broker may refuse to start
    keeps: str = ""  # the file that must be kept as it is, under whichever name


def cases_of(found: Mapped, files: Files) -> Iterator[Case]:
    """Every case that changes something."""
    for place in found.leaves:
        yield from _changing(place, files, ("flip",))
        if place.end - place.start > _NUMBER_BYTES:
            yield from _changing(place, files, ("flip the end",))
        yield from _changing(place, files, ("zero", "fill"))
        yield from _changing(place, files, ("cut",))
    for place in found.wholes:
        yield from _changing(place, files, ("zero", "fill"))
        if place.name == "all":
            yield from _changing(place, files, ("remove",))
            if _is_wal(place.path):
                yield from _changing(place, files, ("foreign",))


def _changing(place: Place, files: Files, actions: tuple[Action, ...]) -> Iterator[Case]:
    """The first of these that changes something."""
    for action in actions:
        case = Case(place, action)
        if case.damaged(files) is not None:
            yield case
            return


def _is_wal(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == WAL and number_of(name) is not None


def _of_another_store(path: str, data: bytes) -> bytes:
    """The same file, as a store with another id would have written it."""
    number = number_of(path.rpartition("/")[2])
    assert number is not None
    changed = bytearray(data)
    size = HEADER_LAYOUT.struct.size
    for position in range(0, len(data), ALIGNMENT):
        for start in range(position, position + HEADER_COPIES * size, size):
            if data.startswith(MAGIC, start):
                crc = crc32c(data[start : start + size - 4], salt_of("another store"))
                changed[start + size - 4 : start + size] = crc.to_bytes(4, "little")
    return bytes(changed)


def harm_of(case: Case, store: Store, found: Mapped) -> Harm:
    path, _, start, end = case.place
    size = len(store.files[path])
    if case.action == "cut":
        end = size
    records: dict[Partition, set[int]] = {}
    groups: set[int] = set()
    for entry in found.entries:
        if not entry.is_needed or not entry.overlaps(path, start, end):
            continue
        groups.add(entry.group)
        at = store.known.partition_of(entry.group)
        if entry.header.kind == EntryKind.BATCH and at is not None:
            offsets = range(entry.header.base_offset, entry.header.end_offset)
            records.setdefault(at, set()).update(offsets)
    is_wal = path.startswith(f"{WAL}/")
    whole_file = case.action in ("cut", "remove", "foreign") or case.place.name == "all"
    tells_nothing = is_wal and whole_file
    # Every other vital file has a copy, or lies twice in itself.
    no_checkpoint = path == checkpoints.PATH and whole_file and start < size // 2
    if path == ACCEPTED:  # what was accepted counts as damage again
        groups = set(store.known.groups.values())
    may_refuse = not groups.isdisjoint(VITAL) or tells_nothing or no_checkpoint
    last = max((each for each in found.entries if each.is_needed), key=_place_of, default=None)
    torn = not store.settled and last is not None and last.overlaps(path, start, end)
    keeps = path if case.action == "foreign" else ""
    return Harm(records, torn, groups, tells_nothing, may_refuse, keeps)


def _place_of(entry: Stored) -> tuple[bool, str, int]:
    return _is_wal(entry.path), entry.path, entry.start
