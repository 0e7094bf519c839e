"""The record batch: the body of an entry of kind BATCH, made once and never changed.

A producer encodes a batch as a whole entry. The broker checks its checksum and its prelude, stamps
the entry's header, and stores and forwards the same bytes. A consumer opens it. The byte layout
is in docs/internals/log_format.md. In short, behind the entry's header:

    prelude, 40 bytes    which producer sent it, and its sequence there, to recognise a repetition
    key hashes           a u64 for each record, where there are keys; never compressed
    columns              timestamps, values, keys, headers (see `wire.columns`), as one unit
                         compressed by the header's codec

`whole_batches` and `check_content` are the broker's view, `parse` the consumer's. Neither trusts
the bytes, and both raise CorruptData for everything that is wrong. What the broker looks at costs a
few microseconds a batch, however many records it has: what lies beyond CHECKED_ITEMS_MAX and
OPENED_BYTES_MAX is found by the consumer.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from crc32c import crc32c

from hocket.errors import CorruptData, MessageTooLarge, OutOfRange
from hocket.model import BATCH_BYTES_MAX, EntryKind
from hocket.wire import codec as codecs, columns as _columns
from hocket.wire.columns import FLAG_KEY_HASHES, FLAGS_VALID, TIMESTAMP_MAX, Columns
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, padded, unpack_header
from hocket.wire.layout import Layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.wire.columns import ColumnsView, Headers, Remains

T = TypeVar("T")
V = TypeVar("V")

PRELUDE_LAYOUT = Layout("16sIIQQ", ("producer_id", "epoch", "raw_length", "sequence", "reserved"))
PRELUDE = PRELUDE_LAYOUT.struct
PRELUDE_BYTES = PRELUDE.size
assert PRELUDE_BYTES == 40

_INT32 = struct.Struct("<i")
PRODUCER_ID_BYTES = 16
NO_PRODUCER = bytes(PRODUCER_ID_BYTES)
_LOOKED_AT_ONCE = 1_000  # records, in search of those that cannot be read
_BATCH = int(EntryKind.BATCH)
PLAIN_RECORDS_MAX = 64
_PLAIN_LAYOUTS = [  # by records: the prelude's raw length and reserved word, timestamps, offsets
    struct.Struct(f"<20xI8xQ{count}q{count + 1}i") for count in range(PLAIN_RECORDS_MAX + 1)
]
_OFFSET_MAX = 2**63 - 1  # offsets are int64 wherever columns are used

# Of the columns before compression. Writer, broker and reader share this limit: what one of them
# lets in, the next must be able to open.
RAW_BYTES_MAX = BATCH_BYTES_MAX

# How far the broker looks into a batch before it stores it. Both bounds cost some 5 us; without
# them a batch would cost the more the more is in it.
CHECKED_ITEMS_MAX = 128  # records and headers whose offsets are looked at
OPENED_BYTES_MAX = 4 << 10  # of columns that are decompressed to be looked at


class BatchInfo(NamedTuple):
    """What the broker needs to know about a batch."""

    header: Header
    producer_id: bytes
    epoch: int
    sequence: int
    position: int  # of the entry in the buffer that was checked
    size: int  # of the entry, padding included
    raw_length: int  # of the columns before compression, as the producer says
    reserved: int  # the rest of the prelude: 0, or nobody knows what it means


# --- writing -----------------------------------------------------------------------------------


def encode(
    values: Sequence[Buffer],
    *,
    timestamps: int | Sequence[int],
    keys: Sequence[Buffer | None] | None = None,
    headers: Sequence[Headers] | None = None,
    codec: str = "none",
    producer_id: bytes = NO_PRODUCER,
    epoch: int = 0,
    sequence: int = 0,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> bytes:
    """A whole entry, ready to be pushed; term, index, base offset and previous CRC are 0.

    One int as `timestamps` is for all records. Keys that are all None are the same as no keys,
    and empty headers the same as none. Raises WrongType naming the record, OutOfRange if the
    numbers of items differ or a number does not fit, MessageTooLarge beyond `raw_bytes_max`.
    """
    columns = _columns.encode_columns(values, timestamps, keys, headers, bytes_max=raw_bytes_max)
    return assemble(
        columns,
        codec=codec,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        raw_bytes_max=raw_bytes_max,
    )


def assemble(
    columns: Columns,
    *,
    codec: str,
    producer_id: bytes,
    epoch: int,
    sequence: int,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> bytes:
    """The entry around columns that are already there."""
    buffers = columns.buffers
    raw_length = sum(map(len, buffers))
    if raw_length > raw_bytes_max:
        raise MessageTooLarge(
            f"the columns of this batch are {raw_length} bytes, more than {raw_bytes_max}; "
            "send fewer records at once"
        )
    number = codecs.NONE
    if (compressor := codecs.by_name(codec)) is not None:
        raw = b"".join(buffers)
        packed = compressor.compress(raw)
        if len(packed) < len(raw):  # else store it as it is, and nobody has to decompress it
            number, buffers = compressor.number, [packed]
    body = [_prelude(producer_id, epoch, raw_length, sequence), columns.key_hashes, *buffers]
    body_crc = 0
    for buffer in body:
        body_crc = crc32c(buffer, body_crc)
    length = sum(map(len, body))
    header = pack_header(
        length=length,
        kind=EntryKind.BATCH,
        codec=number,
        flags=columns.flags,
        count=columns.records,
        body_crc=body_crc,
        max_timestamp=columns.max_timestamp,
    )
    return b"".join([header, *body, bytes(padded(length) - length)])


def _prelude(producer_id: bytes, epoch: int, raw_length: int, sequence: int) -> bytes:
    if len(producer_id) != PRODUCER_ID_BYTES:
        raise OutOfRange(
            f"a producer id has {PRODUCER_ID_BYTES} bytes, not {len(producer_id)}: {producer_id!r}"
        )
    try:
        return PRELUDE.pack(producer_id, epoch, raw_length, sequence, 0)
    except struct.error:
        raise OutOfRange(
            "a producer's epoch must be from 0 to 2**32 - 1 and its sequence from 0 to 2**64 - 1, "
            f"not {epoch!r} and {sequence!r}"
        ) from None


# --- looking at entries ------------------------------------------------------------------------


def iterate_entries(buffer: Buffer) -> Iterator[tuple[int, Header]]:
    """Position and header of each of the entries, of any kind, that fill the buffer.

    Raises CorruptData at a header that does not match its CRC, or an entry that is cut short.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position < end:
        header = unpack_header(view, position)
        size = header.size
        if position + size > end:
            raise CorruptData(
                f"an entry of {size} bytes at {position} is cut short: {end - position} are there"
            )
        yield position, header
        position += size


def whole_batches(buffer: Buffer, *, verify: bool = True) -> list[BatchInfo]:
    """The batches that fill the buffer, as they were sent: what they say is not looked at.

    With `verify`, bodies are compared with their CRC. Raises CorruptData for the first wrong one.
    """
    view = _bytes_of(buffer)
    return [
        _whole_batch(view, position, header, verify=verify)
        for position, header in iterate_entries(view)
    ]


def check_entries(
    buffer: Buffer, *, verify: bool = True, raw_bytes_max: int = RAW_BYTES_MAX
) -> list[BatchInfo]:
    """The batches that fill the buffer, each checked, but for the content of its columns.

    With `verify`, bodies are compared with their CRC. Raises CorruptData for the first wrong one.
    """
    view = _bytes_of(buffer)
    infos = []
    for position, header in iterate_entries(view):
        info = _whole_batch(view, position, header, verify=False)
        _check_fields(info, raw_bytes_max)
        if verify:
            _check_crc(view, info)
        infos.append(info)
    return infos


def check_content(buffer: Buffer, info: BatchInfo) -> None:
    """Raises CorruptData if no reader could open this batch, as far as a cheap look can tell.

    The layout of columns that are not compressed is always looked at; each record and header of
    them if there are CHECKED_ITEMS_MAX of them or fewer. Compressed columns are opened up to
    OPENED_BYTES_MAX; of larger ones only what the codec itself says is compared.
    """
    view = _bytes_of(buffer)
    header = info.header
    if not header.codec and not header.flags and _is_plain(view, info):
        return
    _check_fields(info, RAW_BYTES_MAX)
    start = info.position + HEADER_BYTES + _fixed_length(header)
    stored = view[start : info.position + HEADER_BYTES + header.length]
    try:
        if header.codec != codecs.NONE:
            codecs.check_admitted(header.codec, stored)
            if info.raw_length > OPENED_BYTES_MAX:
                codecs.check(header.codec, stored, info.raw_length)
                return
            stored = memoryview(codecs.decompress(header.codec, stored, info.raw_length))
        _columns.check_columns(stored, header.count, header.flags, items_max=CHECKED_ITEMS_MAX)
    except CorruptData as error:
        raise _wrong(info.position, header, str(error)) from error


def _is_plain(view: memoryview, info: BatchInfo) -> bool:
    """Whether nothing is wrong with a batch of timestamps and values that is not compressed.

    Most batches are such, and this costs a microsecond, a third of the other way. False: look
    closer, and say what is wrong, if anything is.
    """
    header, raw_length = info.header, info.raw_length
    count = header.count
    fixed = (12 * count + 11) & ~7  # timestamps and offsets, padded
    if (
        not count
        or info.reserved
        or fixed > raw_length
        or raw_length != header.length - PRELUDE_BYTES
        or raw_length > RAW_BYTES_MAX
        or header.max_timestamp > TIMESTAMP_MAX
        or header.base_offset + count > _OFFSET_MAX
    ):
        return False
    start = info.position + HEADER_BYTES + PRELUDE_BYTES + 8 * count
    (first,) = _INT32.unpack_from(view, start)
    (last,) = _INT32.unpack_from(view, start + 4 * count)
    if first or last < 0 or fixed + padded(last) != raw_length:
        return False
    if 1 < count <= CHECKED_ITEMS_MAX:
        return _columns.are_in_order(view[start : start + 4 * count + 4])
    return True


def timestamps_of(header: Header, body: memoryview) -> array[int]:
    """The timestamps of the records of a batch, which was checked when it was stored."""
    stored = body[_fixed_length(header) :]
    if header.codec != codecs.NONE:
        raw_length = PRELUDE.unpack_from(body)[2]
        stored = memoryview(codecs.decompress(header.codec, stored, raw_length))
    found = array("q")
    found.frombytes(stored[: 8 * header.count])
    return found


def first_key_hash(buffer: Buffer, info: BatchInfo) -> int | None:
    """The hash of the key of the batch's first record; None if it has no key."""
    if not info.header.flags & FLAG_KEY_HASHES:
        return None
    start = info.position + HEADER_BYTES + PRELUDE_BYTES
    return int.from_bytes(memoryview(buffer)[start : start + 8], "little") or None


def _bytes_of(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _whole_batch(view: memoryview, position: int, header: Header, *, verify: bool) -> BatchInfo:
    """The entry is known to lie within the view."""
    if header.kind != EntryKind.BATCH:
        raise _wrong(position, header, f"it is of kind {header.kind}, not a batch")
    if header.length < PRELUDE_BYTES:
        raise _wrong(position, header, f"{header.length} bytes cannot hold {header.count} records")
    prelude = PRELUDE.unpack_from(view, position + HEADER_BYTES)
    producer_id, epoch, raw_length, sequence, reserved = prelude
    info = BatchInfo(
        header, producer_id, epoch, sequence, position, header.size, raw_length, reserved
    )
    if verify:
        _check_crc(view, info)
    return info


def _check_crc(view: memoryview, info: BatchInfo) -> None:
    start = info.position + HEADER_BYTES
    if crc32c(view[start : start + info.header.length]) != info.header.body_crc:
        raise _wrong(info.position, info.header, "its body does not match its checksum")


def _fixed_length(header: Header) -> int:
    """How many bytes of the body come before the columns."""
    return PRELUDE_BYTES + (8 * header.count if header.flags & FLAG_KEY_HASHES else 0)


def _check_fields(info: BatchInfo, raw_bytes_max: int) -> None:
    """Raises CorruptData for what header and prelude cannot say of a batch."""
    header, position, raw_length = info.header, info.position, info.raw_length
    count, flags = header.count, header.flags
    if header.codec not in codecs.NUMBERS or flags not in FLAGS_VALID:
        raise _wrong(position, header, f"codec {header.codec} or flags {flags:#x} are not known")
    if not count or header.max_timestamp > TIMESTAMP_MAX or header.end_offset > _OFFSET_MAX:
        raise _wrong(position, header, f"{count} records, latest at {header.max_timestamp} us")
    stored_length = header.length - _fixed_length(header)
    if stored_length < 0:
        raise _wrong(position, header, f"{header.length} bytes cannot hold {count} records")
    if raw_length > raw_bytes_max:
        raise _wrong(position, header, f"columns of {raw_length} bytes, over {raw_bytes_max}")
    if (
        info.reserved
        or raw_length < _columns.raw_length_min(count, flags)
        or (header.codec == codecs.NONE and raw_length != stored_length)
    ):
        raise _wrong(position, header, f"columns of {raw_length} bytes for {count} records")


def _wrong(position: int, header: Header, what: str) -> CorruptData:
    return CorruptData(
        f"the batch at byte {position}, offsets {header.base_offset} to {header.end_offset}: {what}"
    )


# --- reading -----------------------------------------------------------------------------------


def parse(
    buffer: Buffer,
    position: int = 0,
    *,
    header: Header | None = None,
    verify: bool = True,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> Batch:
    """The batch whose entry begins at `position`; it keeps a view of the buffer.

    Whoever knows the entry by `iterate_entries` gives its header, which is then not read again.

    With `verify`, the body is compared with its CRC. Compressed columns are opened when one of them
    is first read, so reading a column may raise CorruptData too. It also does for nonsense that the
    producer itself wrote, under a right CRC.
    """
    view = _bytes_of(buffer)
    if header is None:
        header = unpack_header(view, position)
        size = header.size
        if position + size > len(view):
            raise _wrong(position, header, f"cut short: {len(view) - position} of {size} bytes")
    info = _whole_batch(view, position, header, verify=False)
    _check_fields(info, raw_bytes_max)
    if verify:
        _check_crc(view, info)
    return Batch(view, info)


PlainRecords = tuple[list[bytes], tuple[int, ...]]  # values, timestamps


def plain_records(view: memoryview, position: int, header: Header) -> PlainRecords | None:
    """Values and timestamps of a small batch that has nothing else; None: `parse` has to look.

    The entry is one of `iterate_entries`. A consumer that is up to date gets batches of a few
    records, and opening them is most of what it does; this takes a third of the time. Whatever is
    wrong with a batch is for `parse` to say.
    """
    count = header.count
    if header.codec or header.flags or header.kind != _BATCH:
        return None
    if not 0 < count <= PLAIN_RECORDS_MAX:
        return None
    layout = _PLAIN_LAYOUTS[count]
    start = position + HEADER_BYTES
    length = header.length
    body = view[start : start + length]
    if length < layout.size or crc32c(body) != header.body_crc:
        return None
    raw_length, reserved, *numbers = layout.unpack_from(body)
    offsets = numbers[count:]
    last = offsets[-1]
    data_start = PRELUDE_BYTES + ((12 * count + 11) & ~7)
    if (
        reserved
        or raw_length != length - PRELUDE_BYTES
        or offsets[0]
        or offsets != sorted(offsets)
        or data_start + padded(last) != length
        or header.max_timestamp > TIMESTAMP_MAX
        or header.base_offset + count > _OFFSET_MAX
    ):
        return None
    data = body[data_start : data_start + last].tobytes()
    return [data[begin:end] for begin, end in pairwise(offsets)], tuple(numbers[:count])


class Batch:
    """One batch, opened for reading. Ranges of records are counted within it, from 0 to `count`."""

    __slots__ = (
        "_opened", "_raw_length", "_stored",
        "base_offset", "count", "end_offset", "entry", "epoch", "header", "key_hashes",
        "producer_id", "sequence",
    )  # fmt: skip

    def __init__(self, view: memoryview, info: BatchInfo) -> None:
        """Called by `parse`, which has checked the arguments."""
        header = self.header = info.header
        self.entry = view[info.position : info.position + info.size]  # as it is stored
        self.producer_id = info.producer_id
        self.epoch = info.epoch
        self.sequence = info.sequence
        self.base_offset = header.base_offset
        self.count = header.count
        self.end_offset = header.end_offset
        start = info.position + HEADER_BYTES + PRELUDE_BYTES
        end = info.position + HEADER_BYTES + header.length
        self.key_hashes: memoryview | None = None  # of u64, 0 for a record without a key
        if header.flags & FLAG_KEY_HASHES:
            hashes_end = start + 8 * self.count
            self.key_hashes = view[start:hashes_end].cast("Q")
            start = hashes_end
        self._stored = view[start:end]
        self._raw_length = info.raw_length
        self._opened: ColumnsView | None = None
        if header.codec == codecs.NONE:
            self.columns()

    def __repr__(self) -> str:
        return f"<Batch of offsets {self.base_offset} to {self.end_offset}>"

    @property
    def codec(self) -> str:
        """The name of the codec that its columns are compressed by, or "none"."""
        return codecs.name_of(self.header.codec, self._stored)

    def values(self, start: int = 0, end: int | None = None) -> list[bytes]:
        return self._read(_columns.read_values, self.columns().values, start, end)

    def keys(self, start: int = 0, end: int | None = None) -> list[bytes | None]:
        column = self.columns().keys
        if column is None:
            return [None] * (self._end(start, end) - start)
        return self._read(_columns.read_nullable, column, start, end)

    def timestamps(self, start: int = 0, end: int | None = None) -> list[int]:
        """Microseconds since the epoch."""
        return self.columns().timestamps[start : self._end(start, end)].tolist()

    def headers(self, start: int = 0, end: int | None = None) -> list[dict[str, bytes | None]]:
        """Of a name given twice, the last counts. Records without headers share one empty dict."""
        column = self.columns().headers
        if column is None:
            return [{}] * (self._end(start, end) - start)
        return self._read(_columns.read_headers, column, start, end)

    def columns(self) -> ColumnsView:
        """The buffers where they lie, their layout checked, decompressed if need be."""
        if self._opened is None:
            try:
                raw = self._stored
                if self.header.codec != codecs.NONE:
                    raw = memoryview(codecs.decompress(self.header.codec, raw, self._raw_length))
                self._opened = _columns.open_columns(raw, self.count, self.header.flags)
            except CorruptData as error:
                raise self._named(error) from error
        return self._opened

    def check(self, start: int, end: int) -> None:
        """Raises CorruptData unless all of these records can be read."""
        try:
            _columns.check_records(self.columns(), start, self._end(start, end))
        except CorruptData as error:
            raise self._named(error) from error

    def unreadable(self, start: int, end: int) -> list[int]:
        """Which of these records cannot be read; all of them if the columns cannot be opened."""
        try:
            columns = self.columns()
        except CorruptData:
            return list(range(start, end))
        return _columns.unreadable_records(columns, start, self._end(start, end))

    def unreadable_run(self, start: int) -> int:
        """The end of the run of records from `start` on that cannot be read; `start`: it can be."""
        try:
            columns = self.columns()
        except CorruptData:
            return self.count
        at = start
        while at < self.count:
            end = min(at + _LOOKED_AT_ONCE, self.count)
            bad = _columns.unreadable_records(columns, at, end)
            run = sum(1 for number, record in enumerate(bad, at) if record == number)
            at += run
            if at < end:
                break
        return at

    def remains(self, record: int) -> Remains:
        """What can be told of a record that cannot be read. The columns must open."""
        return _columns.remains_of(self.columns(), record)

    def _read(
        self, read: Callable[[V, int, int], list[T]], column: V, start: int, end: int | None
    ) -> list[T]:
        try:
            return read(column, start, self._end(start, end))
        except CorruptData as error:
            raise self._named(error) from error

    def _named(self, error: CorruptData) -> CorruptData:
        return CorruptData(f"offsets {self.base_offset} to {self.end_offset}: {error}")

    def _end(self, start: int, end: int | None) -> int:
        if end is None:
            end = self.count
        if not 0 <= start <= end <= self.count:
            raise OutOfRange(f"records {start} to {end} of a batch of {self.count}")
        return end
