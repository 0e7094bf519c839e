"""Record batches from Arrow's columns and to them, with no Python work per record (but key hashes).

The columns of a batch are Arrow's own buffers, so reading wraps them where they lie, and writing
takes them over as they are, offsets moved to begin at 0. The types read are exactly those of
Spark's Kafka source, all nullable; in headers, as there, a record without any has null.

pyarrow is an optional part of the package: it is imported when one of these functions is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hocket.errors import CorruptData, MessageTooLarge, OutOfRange, WrongType
from hocket.wire import columns as _columns
from hocket.wire.batch import NO_PRODUCER, RAW_BYTES_MAX, Batch, assemble
from hocket.wire.columns import (
    FLAG_HEADER_NULLS,
    FLAG_HEADERS,
    FLAG_KEY_HASHES,
    FLAG_KEY_NULLS,
    FLAG_KEYS,
    BinaryView,
    Columns,
    HeadersView,
    pad,
)

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    Array: TypeAlias = Any  # pyarrow has no type hints; so at least their names are told apart

COLUMNS = ("value", "key", "timestamp", "headers")


def _libraries() -> tuple[Any, Any]:
    try:
        import numpy
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"Arrow columns need {error.name}: pip install 'hocket[arrow]'", name=error.name
        ) from error
    return pyarrow, numpy


def arrow_schema(*, headers: bool = False) -> pyarrow.Schema:
    """What `to_arrow` returns."""
    pa, _ = _libraries()
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
    if headers:
        fields.append(("headers", _headers_type(pa)))
    return pa.schema(fields)


def _headers_type(pa: Any) -> Any:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.list_(pa.field("element", header))


# --- reading -----------------------------------------------------------------------------------


def to_arrow(
    batch: Batch, topic: str, partition: int, *, skip: int = 0, headers: bool = False
) -> pyarrow.RecordBatch:
    """See `Batch.to_arrow`."""
    pa, np = _libraries()
    count = batch.count
    columns = batch.columns()
    if pa.py_buffer(columns.raw).address % 8:  # Arrow computes on aligned buffers only
        raw = memoryview(bytes(columns.raw))
        columns = _columns.open_columns(raw, count, batch.header.flags)
    stamps = [None, pa.py_buffer(columns.timestamps)]
    try:
        arrays = [
            _binary_array(pa, columns.keys, count),
            _binary_array(pa, columns.values, count),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(np.arange(batch.base_offset, batch.end_offset, dtype=np.int64)),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, stamps),
        ]
        if headers:
            arrays.append(_headers_array(pa, np, columns.headers, count))
    except pa.ArrowInvalid as error:
        raise CorruptData(f"offsets {batch.base_offset} to {batch.end_offset}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(headers=headers)).slice(skip)


def _binary_array(pa: Any, column: BinaryView | None, count: int, kind: Any = None) -> Array:
    kind = kind or pa.binary()
    if column is None:
        return pa.nulls(count, kind)
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(kind, count, buffers)
    array.validate(full=True)  # of its offsets, and that text is UTF-8
    return array


def _headers_array(pa: Any, np: Any, view: HeadersView | None, count: int) -> Array:
    kind = _headers_type(pa)
    if view is None:
        return pa.nulls(count, kind)
    total = view.lists[count]
    names = _binary_array(pa, view.names, total, pa.string())
    values = _binary_array(pa, view.values, total)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    filled = np.diff(np.frombuffer(view.lists, dtype=np.int32)) > 0
    validity = pa.py_buffer(np.packbits(filled, bitorder="little"))
    buffers = [validity, pa.py_buffer(view.lists)]
    array = pa.Array.from_buffers(kind, count, buffers, children=[pairs])
    array.validate(full=True)
    return array


# --- writing -----------------------------------------------------------------------------------


def encode_from_arrow(
    record_batch: pyarrow.RecordBatch,
    *,
    timestamp: int | None = None,
    codec: str = "none",
    producer_id: bytes = NO_PRODUCER,
    epoch: int = 0,
    sequence: int = 0,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> bytes:
    """`batch.encode` for columns: `value`, and where wanted `key`, `timestamp` and `headers`.

    Values and keys are binary or text of any Arrow kind; timestamps are timestamp[us] or int64
    microseconds; headers are list<struct<key: string, value: binary>>, null for none. Without the
    column `timestamp`, the argument is that of all records. Raises WrongType for columns and types
    other than these, and, with the row, for nulls where none may be.
    """
    pa, np = _libraries()
    if not isinstance(record_batch, pa.RecordBatch):
        raise WrongType(
            f"a pyarrow.RecordBatch is needed, not {type(record_batch).__name__}; "
            "of a Table, pass each of to_batches()"
        )
    reader = _Reader(pa, np, raw_bytes_max)
    return assemble(
        reader.columns(record_batch, timestamp),
        codec=codec,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        raw_bytes_max=raw_bytes_max,
    )


class _Reader:
    """Takes over the columns of one RecordBatch, which may be slices of larger arrays."""

    def __init__(self, pa: Any, np: Any, bytes_max: int) -> None:
        self.pa = pa
        self.np = np
        self.bytes_max = bytes_max

    def columns(self, record_batch: pyarrow.RecordBatch, timestamp: int | None) -> Columns:
        found = self.named_columns(record_batch)
        records = record_batch.num_rows
        if not records:
            raise OutOfRange("a batch needs at least one value; the RecordBatch has no rows")
        stamps, max_timestamp = self.timestamps(found.get("timestamp"), timestamp, records)
        values = self.binary(found["value"], "value")
        self.refuse_nulls(values, "value")
        buffers = [stamps, *self.binary_buffers(values, "value")]
        flags, key_hashes = 0, b""
        keys = found.get("key")
        if keys is not None and keys.null_count < records:
            flags, key_hashes, key_buffers = self.keys(self.binary(keys, "key"))
            buffers += key_buffers
        headers = found.get("headers")
        if headers is not None and headers.null_count < records:
            header_flags, header_buffers = self.headers(headers)
            flags |= header_flags
            buffers += header_buffers
        return Columns(records, flags, buffers, key_hashes, max_timestamp)

    def named_columns(self, record_batch: pyarrow.RecordBatch) -> dict[str, Array]:
        names = record_batch.schema.names
        wrong = [name for name in names if name not in COLUMNS or names.count(name) > 1]
        if wrong or "value" not in names:
            raise WrongType(
                f"the columns must be value and, where wanted, key, timestamp and headers, each "
                f"once; got {', '.join(names) or 'none'}"
            )
        return dict(zip(names, record_batch.columns, strict=True))

    def refuse_nulls(self, column: Array, what: str, ends: Any = None) -> None:
        """`ends`: where the rows end, for a column that has several items in a row."""
        if column.null_count:
            row = column.is_null().index(True).as_py()
            if ends is not None:
                row = int(self.np.searchsorted(ends, row, side="right")) - 1
            raise WrongType(f"the column {what} may not have nulls; row {row} has one")

    def timestamps(
        self, column: Array | None, timestamp: int | None, records: int
    ) -> tuple[bytes, int]:
        if column is None:
            if timestamp is None:
                raise WrongType("without a column timestamp, pass timestamp= for all records")
            return _columns.timestamp_column(timestamp, records)
        if column.type != self.pa.int64() and not (
            self.pa.types.is_timestamp(column.type) and column.type.unit == "us"
        ):
            raise WrongType(
                f"the column timestamp must be timestamp[us] or int64, not {column.type}; cast it"
            )
        self.refuse_nulls(column, "timestamp")
        stamps = self.np.frombuffer(
            column.buffers()[1], dtype=self.np.int64, count=records, offset=8 * column.offset
        )
        if stamps.min() < 0:
            row = int(stamps.argmin())
            raise OutOfRange(
                f"a timestamp must be microseconds since the epoch, 0 or more; row {row} has "
                f"{stamps[row]}"
            )
        return stamps.tobytes(), int(stamps.max())

    def binary(self, column: Array, what: str, *, text: bool = False) -> Array:
        """As an array of type binary: with 32-bit offsets, copied only if it has others."""
        types = self.pa.types
        texts = (types.is_string, types.is_large_string, types.is_string_view)
        binaries = (
            types.is_binary, types.is_large_binary, types.is_binary_view,
            types.is_fixed_size_binary,
        )  # fmt: skip
        if not any(is_kind(column.type) for is_kind in (texts if text else texts + binaries)):
            wanted = "string" if text else "binary or string"
            raise WrongType(f"the column {what} must be of type {wanted}, not {column.type}")
        try:
            return column.cast(self.pa.binary())
        except self.pa.ArrowInvalid as error:  # offsets beyond 32 bits are all that can fail here
            raise MessageTooLarge(
                f"the column {what} is more than a batch may hold: {error}"
            ) from error

    def binary_buffers(self, column: Array, what: str) -> list[bytes]:
        if column.null_count:
            column = column.fill_null(b"")  # what lies under a null is nobody's to send
        _, offsets_buffer, data_buffer = column.buffers()
        offsets = self.np.frombuffer(
            offsets_buffer, dtype=self.np.int32, count=len(column) + 1, offset=4 * column.offset
        )
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first > self.bytes_max:
            raise MessageTooLarge(
                f"the column {what} holds {last - first} bytes, more than the {self.bytes_max} "
                "that a batch may hold; send fewer rows at once"
            )
        data = memoryview(data_buffer)[first:last].tobytes() if last > first else b""
        return [*pad((offsets - offsets[0]).tobytes()), *pad(data)]

    def validity(self, column: Array) -> list[bytes]:
        """The bitmap, if there are nulls; made anew, as that of a slice begins within a byte."""
        if not column.null_count:
            return []
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return pad(self.np.packbits(valid, bitorder="little").tobytes())

    def keys(self, column: Array) -> tuple[int, bytes, list[bytes]]:
        buffers = self.binary_buffers(column, "key")
        validity = self.validity(column)
        flags = FLAG_KEYS | FLAG_KEY_HASHES | (FLAG_KEY_NULLS if validity else 0)
        return flags, _columns.hash_keys(column.to_pylist()), [*validity, *buffers]

    def headers(self, column: Array) -> tuple[int, list[bytes]]:
        types, kind = self.pa.types, column.type
        if (
            not (types.is_list(kind) or types.is_large_list(kind))
            or not types.is_struct(kind.value_type)
            or sorted(field.name for field in kind.value_type) != ["key", "value"]
        ):
            raise WrongType(
                "the column headers must be of type list<struct<key: string, value: binary>>, "
                f"not {kind}"
            )
        pairs = column.flatten()  # of the rows in this slice that are not null
        if not len(pairs):
            return 0, []
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ends = self.np.zeros(len(column) + 1, dtype=self.np.int32)
        self.np.cumsum(lengths, out=ends[1:])
        self.refuse_nulls(pairs, "headers.element", ends)
        parts = dict(zip([field.name for field in pairs.type], pairs.flatten(), strict=True))
        names = self.binary(parts["key"], "headers.key", text=True)
        self.refuse_nulls(names, "headers.key", ends)
        values = self.binary(parts["value"], "headers.value")
        validity = self.validity(values)
        return FLAG_HEADERS | (FLAG_HEADER_NULLS if validity else 0), [
            *pad(ends.tobytes()),
            *self.binary_buffers(names, "headers.key"),
            *validity,
            *self.binary_buffers(values, "headers.value"),
        ]
