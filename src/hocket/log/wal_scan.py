"""Reads a WAL back: which of its envelopes are whole, which were torn, which are damaged.

Every envelope proves that the one before it was durable, since it was written only afterwards. So:

- an envelope that is not whole, and that nothing proves to have been durable, is a torn write: the
  end of the log;
- an envelope that is not whole, or missing, although a later one proves that it was durable, is
  damage.

After a torn write the next run goes on with the same LSN in a new file. So an envelope that is not
whole at the end of one file, and whose LSN comes again at the beginning of the next file, was torn
and not damaged.

A file that is gone, or shorter than it was (`wal_list`), may have held more. If the envelopes of
later files go on where those before it end, it did not. Otherwise nothing is known of what followed
in any group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hocket.errors import CorruptData
from hocket.log.envelope import (
    ALIGNMENT,
    SECTION_BYTES,
    EnvelopeHeader,
    content_of,
    decode_header,
    decode_section,
    decode_table,
    next_header,
)
from hocket.log.model import HardState, LogEnd, Truncation
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header


class Found(NamedTuple):
    """An envelope with a whole header."""

    number: int  # of its file
    position: int
    header: EnvelopeHeader
    data: memoryview  # all of it
    content: memoryview | None  # None if it does not match its CRC

    @property
    def lsn(self) -> int:
        return self.header.lsn


class WalEntry(NamedTuple):
    group: int | None  # None: the head of its section is damaged
    header: Header
    packed: memoryview  # the header's bytes
    body: memoryview


class ScanTarget(Protocol):
    """Rebuilds the groups from what the scan finds, in the order of the log."""

    def table(self, rows: list[tuple[int, LogEnd]], lsn: int, *, complete: bool) -> None:
        """How these groups ended when everything up to `lsn` was durable."""

    def note(self, group: int, note: HardState | Truncation) -> None: ...

    def entry(self, entry: WalEntry, lsn: int, *, salvaged: bool = False) -> None:
        """`salvaged`: its envelope is damaged, and may have held more of its group behind it."""

    def lost(self, first_lsn: int) -> None:
        """Envelopes that were durable are missing or damaged, from this LSN on."""

    def notes_lost(self) -> None:
        """Both envelopes that a note stood in may be lost, or the last one, where it stood once."""

    def cut(self, why: str) -> None:
        """The end of the log is missing, if it went on: the end of no group is known."""


def envelopes(data: bytes, number: int, salt: int) -> Iterator[Found]:
    """The envelopes of one file in order, with those behind a bad spot."""
    view = memoryview(data)
    position = 0
    while position >= 0:
        header = decode_header(view, position, generation=number, salt=salt)
        if header is None:
            position = next_header(data, position + ALIGNMENT, generation=number, salt=salt)
            continue
        envelope = view[position : position + header.size]
        yield Found(number, position, header, envelope, content_of(envelope, header))
        position += header.size


@dataclass(slots=True)
class WalScan:
    """Feeds envelopes to a target, in order; decides what is torn and what is damaged."""

    target: ScanTarget
    next_lsn: int
    damaged: set[int]  # numbers of files with damage in them
    _held: Found | None = None  # not whole; the next envelope will tell whether it was torn
    _last: int = 0  # number of the file of the last envelope
    _doubt: str = ""  # why envelopes may be missing behind the last one; the next one will tell
    _doubtful: set[int] = field(default_factory=set)  # the numbers of the files to blame for it
    _unread: int = 0  # how many envelopes in a row, up to the last one, have notes nobody can read

    def missing(self, number: int, why: str) -> None:
        """This file is gone or cut short, and may have held envelopes behind those fed so far."""
        self._doubt = self._doubt or why
        self._doubtful.add(number)

    def feed(self, found: Found) -> None:
        held, self._held = self._held, None
        if held is not None and self._proves(found, held):
            self._salvage(held)
        if found.lsn < self.next_lsn:
            self._last = found.number
            return
        if found.lsn > self.next_lsn:
            self._lost(found.lsn - 1, found.number)
        self._doubt = ""
        self._doubtful.clear()
        table = decode_table(found.data, found.header)
        if table is None and found.content is not None:
            self._miss_notes(1)
        if table is not None:
            self._unread = 0
            rows, notes = table
            for group, note in notes:
                self.target.note(group, note)
            self.target.table(
                rows, found.header.durable_through, complete=found.header.table_is_complete
            )
        self._last = found.number
        if found.content is None:
            self._held = found
            return
        for entry in entries(found.content):
            self.target.entry(entry, found.lsn)
        self.next_lsn = found.lsn + 1

    def end(self, durable_through: int) -> None:
        """There are no more envelopes. The checkpoint knows what was durable at least."""
        held, self._held = self._held, None
        is_damaged = bool(self._doubt) or self.next_lsn <= durable_through
        if held is not None and held.lsn == self.next_lsn and is_damaged:
            self._salvage(held)
        if self.next_lsn <= durable_through:
            self._lost(durable_through, self._last)
        if self._unread and self.next_lsn == durable_through + 1:
            self.target.notes_lost()
        if self._doubt:
            self.damaged |= self._doubtful
            self.target.cut(self._doubt)

    def _proves(self, found: Found, held: Found) -> bool:
        """Whether `found` proves that `held` was durable, and no torn write of an older run."""
        same_run = found.number == held.number or found.position == 0
        return found.lsn > held.lsn and same_run and self.next_lsn == held.lsn

    def _salvage(self, held: Found) -> None:
        """Take the whole entries from a damaged envelope."""
        self.damaged.add(held.number)
        self.target.lost(held.lsn)
        if decode_table(held.data, held.header) is None:
            self._miss_notes(1)
        content = held.data[held.header.content_start :][: held.header.content_bytes]
        for entry in salvaged(content):
            self.target.entry(entry, held.lsn, salvaged=True)
        self.next_lsn = held.lsn + 1

    def _lost(self, last_lsn: int, number: int) -> None:
        self.damaged.update((self._last or number, number), self._doubtful)
        self.target.lost(self.next_lsn)
        self._miss_notes(last_lsn + 1 - self.next_lsn)
        self.next_lsn = last_lsn + 1

    def _miss_notes(self, count: int) -> None:
        self._unread += count
        if self._unread > 1:
            self.target.notes_lost()


def entries(content: memoryview) -> Iterator[WalEntry]:
    """The entries of a whole envelope."""
    position = 0
    while position < len(content):
        section = decode_section(content, position)
        assert section is not None, f"a section at {position} of a whole envelope"
        group, length = section
        position += SECTION_BYTES
        section_end = position + length
        while position < section_end:
            header = unpack_header(content, position)
            yield _entry(group, header, content, position)
            position += header.size


def salvaged(content: memoryview) -> Iterator[WalEntry]:
    """The entries of a damaged envelope whose headers are whole; their bodies need not be.

    Sections and entries lie at multiples of 8; behind a bad spot, more are looked for there.
    """
    position = section_end = 0
    group: int | None = None
    while position + SECTION_BYTES <= len(content):
        if position >= section_end:
            group = None
        section = decode_section(content, position)
        if section is not None:
            group, length = section
            position += SECTION_BYTES
            section_end = position + length
            continue
        header = _header_at(content, position)
        if header is None:
            position += 8
            continue
        yield _entry(group, header, content, position)
        position += header.size


def _header_at(content: memoryview, position: int) -> Header | None:
    try:
        header = unpack_header(content, position)
    except CorruptData:
        return None
    return header if position + header.size <= len(content) else None


def _entry(group: int | None, header: Header, content: memoryview, position: int) -> WalEntry:
    start = position + HEADER_BYTES
    return WalEntry(group, header, content[position:start], content[start : start + header.length])
