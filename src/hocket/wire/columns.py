"""The columns of a record batch: lists of Python values to Arrow-shaped buffers, and back.

Plain functions over lists and buffers; no entry, no checksum, no codec. All work that is done per
record happens here (and in `wire.from_arrow`), so this is the one place to speed up.

A binary column is n+1 offsets (int32, the first 0) and the data that they cut up. Where values may
be null, a validity bitmap (bit i, least significant first, is 1 where there is a value) stands
before them. Every buffer is padded with zeros to 8 bytes: so all of them stay aligned, and Arrow
can use them in place.

Rule: bytes that are read are not trusted. Every number is checked before it is used, where it is
used: the layout when the columns are opened, the offsets of a column when that column is read.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, islice, pairwise, repeat
from operator import is_
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex, TypeAlias

from xxhash import xxh3_64_intdigest

from hocket.errors import BadName, CorruptData, MessageTooLarge, OutOfRange, WrongType
from hocket.wire.entry import padded

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Piece: TypeAlias = bytes | memoryview  # of bytes
    Headers: TypeAlias = Mapping[str, Buffer | None] | Sequence[tuple[str, Buffer | None]] | None

FLAG_KEYS = 1
FLAG_KEY_NULLS = 2
FLAG_KEY_HASHES = 4  # set exactly when FLAG_KEYS is
FLAG_HEADERS = 8
FLAG_HEADER_NULLS = 16
FLAGS_VALID = frozenset(
    keys | headers
    for keys in (0, FLAG_KEYS | FLAG_KEY_HASHES, FLAG_KEYS | FLAG_KEY_HASHES | FLAG_KEY_NULLS)
    for headers in (0, FLAG_HEADERS, FLAG_HEADERS | FLAG_HEADER_NULLS)
)

OFFSET_MAX = 2**31 - 1  # of an int32 offset, so of the bytes in one column
TIMESTAMP_MAX = 2**63 - 1

_PADDING = tuple(bytes(-length % 8) for length in range(8))


# --- writing -----------------------------------------------------------------------------------


class Columns(NamedTuple):
    """The uncompressed columns of some records, in the order of the format."""

    records: int
    flags: int
    buffers: list[Piece]  # padding included
    key_hashes: Piece  # a u64 for each record; empty without keys
    max_timestamp: int


def encode_columns(
    values: Sequence[Buffer],
    timestamps: int | Sequence[int],
    keys: Sequence[Buffer | None] | None = None,
    headers: Sequence[Headers] | None = None,
    *,
    bytes_max: int = OFFSET_MAX,
) -> Columns:
    """A column's data may be `bytes_max` long; that is checked before the data is copied."""
    bytes_max = min(bytes_max, OFFSET_MAX)
    records = _length(values, "values")
    if not records:
        raise OutOfRange("a batch needs at least one value; there is none")
    stamps, max_timestamp = timestamp_column(timestamps, records)
    buffers: list[Piece] = [stamps, *_binary_column(values, "values", bytes_max)]
    flags, key_hashes = 0, b""
    if keys is not None:
        _check_length(keys, records, "keys")
        nulls = _null_count(keys)
        if nulls < records:
            flags, key_hashes, key_buffers = _key_columns(keys, bytes_max, nulls)
            buffers += key_buffers
    if headers is not None:
        _check_length(headers, records, "headers")
        if any(headers):
            header_flags, header_buffers = _header_columns(headers, bytes_max)
            flags |= header_flags
            buffers += header_buffers
    return Columns(records, flags, buffers, key_hashes, max_timestamp)


def pad(buffer: Piece) -> list[Piece]:
    padding = _PADDING[len(buffer) % 8]
    return [buffer, padding] if padding else [buffer]


def pack_int32(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def hash_keys(keys: Sequence[Buffer | None]) -> bytes:
    hashes = [0 if key is None else xxh3_64_intdigest(key) for key in keys]
    return struct.pack(f"<{len(hashes)}Q", *hashes)


def _hash_all(keys: Sequence[Buffer]) -> bytes:
    """`hash_keys` where no key is None: most batches, and a loop less."""
    return struct.pack(f"<{len(keys)}Q", *map(xxh3_64_intdigest, keys))


def _binary_column(
    items: Sequence[Buffer],
    what: str,
    bytes_max: int,
    name_of: Callable[[int], str] | None = None,
) -> list[Piece]:
    """Offsets and data: one pass for the lengths, one join. Types are checked only on failure."""
    try:
        ends = _ends(items)
        _check_total(ends[-1], what, bytes_max)
        data = b"".join(items)
    except MessageTooLarge:
        raise
    except (TypeError, ValueError, BufferError):
        data = None
    if data is None or len(data) != ends[-1]:  # the latter: views of items wider than a byte
        items = [_as_bytes(item, what, at, name_of) for at, item in enumerate(items)]
        ends = _ends(items)
        _check_total(ends[-1], what, bytes_max)
        data = b"".join(items)
    return [*pad(pack_int32(ends)), *pad(data)]


def _ends(items: Sequence[Buffer]) -> list[int]:
    return list(accumulate(map(len, items), initial=0))  # type: ignore[arg-type]


def _check_total(size: int, what: str, bytes_max: int) -> None:
    if size > bytes_max:
        raise MessageTooLarge(
            f"the {what} of this batch are {size} bytes, more than the {bytes_max} that a batch "
            "may hold; send fewer records at once"
        )


def _as_bytes(item: object, what: str, at: int, name_of: Callable[[int], str] | None) -> bytes:
    if type(item) is bytes:
        return item
    try:
        return memoryview(item).tobytes()  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        name = name_of(at) if name_of else f"{what}[{at}]"
        hint = "; encode it first, as in text.encode()" if isinstance(item, str) else ""
        raise WrongType(f"{name} must be bytes-like, not {type(item).__name__}{hint}") from error


def _length(items: object, what: str) -> int:
    if isinstance(items, str | bytes | bytearray | memoryview) or not hasattr(items, "__len__"):
        raise WrongType(
            f"{what} must be a sequence with one item for each record, not {type(items).__name__}"
        )
    return len(items)


def _check_length(items: object, records: int, what: str) -> None:
    length = _length(items, what)
    if length != records:
        raise OutOfRange(f"there are {length} {what} for {records} values; pass one for each")


def _null_count(items: Sequence[object]) -> int:
    return sum(map(is_, items, repeat(None)))


def timestamp_column(timestamps: int | Sequence[int], records: int) -> tuple[bytes, int]:
    """The column, and the latest of them. One int stands for all records."""
    alike = isinstance(timestamps, int)
    stamps: Sequence[int] = (timestamps,) if isinstance(timestamps, int) else timestamps
    if not alike:
        _check_length(stamps, records, "timestamps")
    try:
        column = struct.pack(f"<{len(stamps)}q", *stamps)
    except struct.error:
        raise _timestamp_error(stamps) from None
    if min(stamps) < 0:
        raise _timestamp_error(stamps)
    return column * records if alike else column, int(max(stamps))


def _timestamp_error(stamps: Sequence[object]) -> WrongType | OutOfRange:
    for at, stamp in enumerate(stamps):
        if not isinstance(stamp, SupportsIndex):
            return WrongType(
                f"timestamps[{at}] must be an int, microseconds since the epoch, "
                f"not {type(stamp).__name__}"
            )
        if not 0 <= stamp.__index__() <= TIMESTAMP_MAX:
            return OutOfRange(
                f"timestamps[{at}] must be microseconds since the epoch, from 0 to 2**63 - 1, "
                f"not {stamp}"
            )
    raise AssertionError("called for timestamps that are in order")


def _key_columns(
    keys: Sequence[Buffer | None], bytes_max: int, nulls: int
) -> tuple[int, bytes, list[Piece]]:
    validity, present = _without_nulls(keys, nulls)
    flags = FLAG_KEYS | FLAG_KEY_HASHES | (FLAG_KEY_NULLS if validity else 0)
    buffers = _binary_column(present, "keys", bytes_max)  # it has checked that all are bytes-like
    try:
        hashes = hash_keys(keys) if nulls else _hash_all(present)
    except (TypeError, BufferError, ValueError):  # a view that is not contiguous
        hashes = hash_keys([None if key is None else memoryview(key).tobytes() for key in keys])
    return flags, hashes, [*validity, *buffers]


def _without_nulls(
    items: Sequence[Buffer | None], nulls: int
) -> tuple[list[Piece], Sequence[Buffer]]:
    """The validity bitmap, if there are nulls, and the items with nothing in place of nulls."""
    if not nulls:
        return [], items  # type: ignore[return-value]
    # In base 2 Python turns digits into an int in linear time, whatever their number.
    digits = "".join(["0" if item is None else "1" for item in reversed(items)])
    bitmap = int(digits, 2).to_bytes((len(items) + 7) // 8, "little")
    return pad(bitmap), [b"" if item is None else item for item in items]


def _header_columns(headers: Sequence[Headers], bytes_max: int) -> tuple[int, list[Piece]]:
    names: list[str] = []
    values: list[Buffer | None] = []
    ends = [0]
    for at, each in enumerate(headers):
        if each:
            try:
                for name, value in each.items() if isinstance(each, Mapping) else each:
                    names.append(name)
                    values.append(value)
            except (TypeError, ValueError) as error:
                raise WrongType(
                    f"headers[{at}] must be a mapping or (name, value) pairs, not {each!r:.80}"
                ) from error
        ends.append(len(names))

    def name_of(at: int) -> str:
        return f"header {names[at]!r:.80} of record {bisect_right(ends, at) - 1}"

    encoded = _encoded_names(names, name_of)
    validity, present = _without_nulls(values, _null_count(values))
    flags = FLAG_HEADERS | (FLAG_HEADER_NULLS if validity else 0)
    return flags, [
        *pad(pack_int32(ends)),
        *_binary_column(encoded, "header names", bytes_max),
        *validity,
        *_binary_column(present, "header values", bytes_max, name_of),
    ]


def _encoded_names(names: list[str], name_of: Callable[[int], str]) -> list[bytes]:
    try:
        encoded = {name: name.encode() for name in set(names)}  # they repeat in every record
        return [encoded[name] for name in names]
    except (AttributeError, TypeError, UnicodeEncodeError):
        return [_encoded_name(name, at, name_of) for at, name in enumerate(names)]


def _encoded_name(name: object, at: int, name_of: Callable[[int], str]) -> bytes:
    if not isinstance(name, str):
        raise WrongType(f"the name of {name_of(at)} must be a str, not {type(name).__name__}")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"the name of {name_of(at)} cannot be written as UTF-8: {error}") from error


# --- reading -----------------------------------------------------------------------------------


class BinaryView(NamedTuple):
    """The buffers of one binary column, not copied."""

    validity: memoryview | None
    offsets: memoryview  # of int32
    data: memoryview


class HeadersView(NamedTuple):
    lists: memoryview  # of int32: record i has the headers lists[i] to lists[i + 1]
    names: BinaryView
    values: BinaryView


class ColumnsView(NamedTuple):
    """The columns of a batch, as views of `raw`."""

    raw: memoryview
    timestamps: memoryview  # of int64
    values: BinaryView
    keys: BinaryView | None
    headers: HeadersView | None


def raw_length_min(records: int, flags: int) -> int:
    """The least length that columns of this many records can have."""
    offsets = padded(4 * (records + 1))
    optional = bool(flags & FLAG_KEYS) + bool(flags & FLAG_HEADERS)
    return 8 * records + offsets * (1 + optional)


def open_columns(raw: memoryview, records: int, flags: int) -> ColumnsView:
    """Find the buffers. Only first and last offsets are read, so the cost is always the same."""
    plain = None if flags else _plain_columns(raw, records)
    return cut_columns(Cutter(raw), records, flags) if plain is None else plain


def _plain_columns(raw: memoryview, records: int) -> ColumnsView | None:
    """Timestamps and values alone, as most batches have them; None: look closer.

    Small batches are opened by the ten thousand, and this takes a third of the time.
    """
    stamps_end = 8 * records
    data_start = (stamps_end + 4 * records + 11) & ~7
    if data_start > len(raw):
        return None
    offsets = raw[stamps_end : stamps_end + 4 * records + 4].cast("i")
    last = offsets[records]
    if offsets[0] or last < 0 or data_start + padded(last) != len(raw):
        return None
    values = BinaryView(None, offsets, raw[data_start : data_start + last])
    return ColumnsView(raw, raw[:stamps_end].cast("q"), values, None, None)


def cut_columns(cut: Cutter, records: int, flags: int) -> ColumnsView:
    timestamps = cut.take(8 * records, "timestamps").cast("q")
    values = cut.binary(records, nullable=False, what="value")
    keys = headers = None
    if flags & FLAG_KEYS:
        keys = cut.binary(records, nullable=bool(flags & FLAG_KEY_NULLS), what="key")
    if flags & FLAG_HEADERS:
        lists = cut.offsets(records, "header list")
        total = lists[records]
        names = cut.binary(total, nullable=False, what="header name")
        nullable = bool(flags & FLAG_HEADER_NULLS)
        header_values = cut.binary(total, nullable=nullable, what="header value")
        headers = HeadersView(lists, names, header_values)
    cut.finish()
    return ColumnsView(cut.raw, timestamps, values, keys, headers)


class Cutter:
    """Takes one padded buffer after the other from the columns."""

    def __init__(self, raw: memoryview) -> None:
        self.raw = raw
        self.position = 0

    def take(self, size: int, what: str) -> memoryview:
        start = self.position
        end = start + padded(size)
        if end > len(self.raw):
            raise CorruptData(
                f"the {what} of a batch end at byte {end} of columns of {len(self.raw)} bytes"
            )
        self.position = end
        return self.raw[start : start + size]

    def offsets(self, items: int, what: str) -> memoryview:
        offsets = self.take(4 * (items + 1), f"{what} offsets").cast("i")
        if offsets[0] != 0 or offsets[items] < 0:
            raise CorruptData(
                f"the {what} offsets of a batch go from {offsets[0]} to {offsets[items]}; "
                "they must begin at 0 and not fall"
            )
        return offsets

    def binary(self, items: int, *, nullable: bool, what: str) -> BinaryView:
        validity = self.take((items + 7) // 8, f"{what} validity bits") if nullable else None
        offsets = self.offsets(items, what)
        return BinaryView(validity, offsets, self.take(offsets[items], f"{what} data"))

    def finish(self) -> None:
        if self.position != len(self.raw):
            raise CorruptData(f"a batch's columns end at byte {self.position} of {len(self.raw)}")


def read_values(column: BinaryView, start: int, end: int) -> list[bytes]:
    """Copies of the items from `start` to `end`; b"" in place of nulls."""
    offsets = _checked_offsets(column.offsets, start, end)
    first = offsets[0]
    data = bytes(column.data[first : offsets[-1]])
    if first:
        offsets = [offset - first for offset in offsets]
    return [data[begin:finish] for begin, finish in pairwise(offsets)]


def read_nullable(column: BinaryView, start: int, end: int) -> list[bytes | None]:
    values = read_values(column, start, end)
    if column.validity is None:
        return values  # type: ignore[return-value]
    bits = int.from_bytes(column.validity[start // 8 : (end + 7) // 8], "little") >> start % 8
    # A bit above the last one keeps leading zeros; the reversed string begins with record `start`.
    valid = bin(bits & (1 << end - start) - 1 | 1 << end - start)[:2:-1]
    return [value if bit == "1" else None for value, bit in zip(values, valid, strict=True)]


def read_headers(view: HeadersView, start: int, end: int) -> list[dict[str, bytes | None]]:
    """Records without headers share one empty dict; do not change it."""
    lists = _checked_offsets(view.lists, start, end)
    names = _read_names(view.names, lists[0], lists[-1])
    values = read_nullable(view.values, lists[0], lists[-1])
    pairs = zip(names, values, strict=True)
    none: dict[str, bytes | None] = {}
    lengths = (finish - begin for begin, finish in pairwise(lists))
    return [dict(islice(pairs, length)) if length else none for length in lengths]


def _read_names(column: BinaryView, start: int, end: int) -> list[str]:
    names = read_values(column, start, end)
    try:
        # Names repeat from record to record: each is decoded once, and kept in memory once.
        decoded = {name: name.decode() for name in set(names)}
    except UnicodeDecodeError as error:
        raise CorruptData(f"a header name of a batch is not UTF-8: {error}") from error
    return [decoded[name] for name in names]


def _checked_offsets(offsets: memoryview, start: int, end: int) -> list[int]:
    """The offsets, which must not fall nor exceed the column's last, which is in range."""
    if start == end:  # no item, as of records without headers: where it would lie is of no use
        return [0]
    part = offsets[start : end + 1].tolist()
    # Sorting a sorted list takes one comparison an item: that is the quickest check there is.
    if part != sorted(part) or part[0] < 0 or part[-1] > offsets[-1]:
        raise CorruptData(
            f"the offsets of items {start} to {end} of a batch's column are not in order"
        )
    return part


# --- records that cannot be read ---------------------------------------------------------------


def check_columns(raw: memoryview, records: int, flags: int, *, items_max: int) -> None:
    """Raises CorruptData for columns that `open_columns` would not open.

    And for a record that cannot be read, if there are no more records and headers than `items_max`.
    """
    view = open_columns(raw, records, flags)
    if records + (view.headers.lists[-1] if view.headers else 0) <= items_max:
        check_records(view, 0, records)


def are_in_order(offsets: memoryview) -> bool:
    """Whether these int32 offsets, given as bytes, never fall."""
    part = offsets.cast("i").tolist()
    return bool(part == sorted(part))


def check_records(view: ColumnsView, start: int, end: int) -> None:
    """Raises CorruptData unless every one of these records can be read. Copies no values."""
    _checked_offsets(view.values.offsets, start, end)
    if view.keys is not None:
        _checked_offsets(view.keys.offsets, start, end)
    if view.headers is not None:
        lists = _checked_offsets(view.headers.lists, start, end)
        _read_names(view.headers.names, lists[0], lists[-1])
        _checked_offsets(view.headers.values.offsets, lists[0], lists[-1])


def unreadable_records(view: ColumnsView, start: int, end: int) -> list[int]:
    """Which of these records cannot be read, each looked at by itself.

    Reading a range of records fails exactly if one of them is among these.
    """
    bad = set(_out_of_order(view.values.offsets, start, end))
    if view.keys is not None:
        bad.update(_out_of_order(view.keys.offsets, start, end))
    if view.headers is not None:
        headers, lists = view.headers, view.headers.lists
        bad.update(_out_of_order(lists, start, end))
        for record in range(start, end):
            if record not in bad and lists[record] < lists[record + 1]:
                first, last = lists[record], lists[record + 1]
                try:
                    _read_names(headers.names, first, last)
                    _checked_offsets(headers.values.offsets, first, last)
                except CorruptData:
                    bad.add(record)
    return sorted(bad)


def _out_of_order(offsets: memoryview, start: int, end: int) -> list[int]:
    part = offsets[start : end + 1].tolist()
    most = offsets[-1]
    return [
        at for at, (low, high) in enumerate(pairwise(part), start) if not 0 <= low <= high <= most
    ]


class Remains(NamedTuple):
    """What can be told of a record that cannot be read."""

    value: bytes
    key: bytes | None
    headers: dict[str, bytes | None]  # a name that is not UTF-8 is written with escapes


def remains_of(view: ColumnsView, record: int) -> Remains:
    value, key = _item(view.values, record) or b"", None
    if view.keys is not None:
        key = _item(view.keys, record)
    headers: dict[str, bytes | None] = {}
    if view.headers is not None and not _out_of_order(view.headers.lists, record, record + 1):
        lists = view.headers.lists
        for at in range(lists[record], lists[record + 1]):
            name = (_item(view.headers.names, at) or b"").decode(errors="backslashreplace")
            headers[name] = _item(view.headers.values, at)
    return Remains(value, key, headers)


def _item(column: BinaryView, at: int) -> bytes | None:
    """None for a null, and for an item whose offsets make no sense."""
    if _out_of_order(column.offsets, at, at + 1):
        return None
    return read_nullable(column, at, at + 1)[0]
