"""Record batches from Arrow's columns, with no Python work per record.

A batch takes the columns over as they are, with offsets moved to begin at 0. They are copied once,
into the entry. The other direction is in `wire.arrow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hocket.errors import MessageTooLarge, OutOfRange, WrongType
from hocket.wire import columns as _columns
from hocket.wire.arrow import libraries
from hocket.wire.batch import NO_PRODUCER, RAW_BYTES_MAX, assemble
from hocket.wire.columns import (
    FLAG_HEADER_NULLS,
    FLAG_HEADERS,
    FLAG_KEY_HASHES,
    FLAG_KEY_NULLS,
    FLAG_KEYS,
    Columns,
    pad,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow  # type: ignore[import-untyped]
    from numpy.typing import NDArray

    from hocket.wire.columns import Piece

    Array: TypeAlias = Any  # pyarrow has no type hints; so at least their names are told apart

COLUMNS = ("value", "key", "timestamp", "headers")
_NOTHING: Piece = b""


def encode_from_arrow(
    record_batch: pyarrow.RecordBatch,
    *,
    timestamp: int | None = None,
    key_hashes: NDArray[np.uint64] | None = None,
    codec: str = "none",
    producer_id: bytes = NO_PRODUCER,
    epoch: int = 0,
    sequence: int = 0,
    raw_bytes_max: int = RAW_BYTES_MAX,
) -> bytes:
    """`batch.encode` for columns: `value`, and where wanted `key`, `timestamp` and `headers`.

    Values and keys are binary or text of any Arrow kind; timestamps are timestamp[us] or int64
    microseconds; headers are list<struct<key: string, value: binary>>, null for none. Without the
    column `timestamp`, the argument of that name is for all records. `key_hashes` are those that
    `checked_rows` returned for these rows. Raises WrongType for other columns and types, and for
    nulls where none may be, naming the row.
    """
    reader = _Reader(raw_bytes_max)
    return assemble(
        reader.columns(record_batch, timestamp, key_hashes),
        codec=codec,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        raw_bytes_max=raw_bytes_max,
    )


def checked_rows(
    record_batch: pyarrow.RecordBatch,
) -> tuple[pyarrow.RecordBatch, NDArray[np.uint64] | None]:
    """The same rows, all checked, so that they can be encoded in parts; and the keys' hashes.

    Without keys the hashes are None. Raises what `encode_from_arrow` would raise for these rows,
    except for sizes and for a missing timestamp.
    """
    return _Reader(RAW_BYTES_MAX).checked(record_batch)


class _Reader:
    """Takes over the columns of one RecordBatch, which may be slices of larger arrays."""

    def __init__(self, bytes_max: int) -> None:
        self.pa, self.np = libraries()
        self.bytes_max = bytes_max

    def columns(
        self,
        record_batch: pyarrow.RecordBatch,
        timestamp: int | None,
        key_hashes: NDArray[np.uint64] | None,
    ) -> Columns:
        found = self.named_columns(record_batch)
        records = record_batch.num_rows
        if not records:
            raise OutOfRange("a batch needs at least one value; the RecordBatch has no rows")
        stamps, max_timestamp = self.timestamps(found.get("timestamp"), timestamp, records)
        buffers: list[Piece] = [stamps, *self.binary_buffers(self.values(found), "value")]
        flags, hashes = 0, _NOTHING
        keys = found.get("key")
        if keys is not None and keys.null_count < records:
            flags, hashes, key_buffers = self.keys(self.binary(keys, "key"), key_hashes)
            buffers += key_buffers
        headers = found.get("headers")
        if headers is not None and headers.null_count < records:
            header_flags, header_buffers = self.headers(headers)
            flags |= header_flags
            buffers += header_buffers
        return Columns(records, flags, buffers, hashes, max_timestamp)

    def checked(
        self, record_batch: pyarrow.RecordBatch
    ) -> tuple[pyarrow.RecordBatch, NDArray[np.uint64] | None]:
        found = self.named_columns(record_batch)
        found["value"] = self.values(found)
        hashes = None
        if (keys := found.get("key")) is not None and keys.null_count == len(keys):
            del found["key"]  # of whatever type: no row has a key
        elif keys is not None:
            found["key"] = self.binary(keys, "key")
            hashes = hashes_of(found["key"])
        if (stamps := found.get("timestamp")) is not None and len(stamps):
            self.checked_timestamps(stamps)
        if (headers := found.get("headers")) is not None and headers.null_count < len(headers):
            found["headers"] = self.plain_headers(headers)
        return self.pa.RecordBatch.from_arrays(list(found.values()), names=list(found)), hashes

    def named_columns(self, record_batch: pyarrow.RecordBatch) -> dict[str, Array]:
        if not isinstance(record_batch, self.pa.RecordBatch):
            raise WrongType(
                f"a pyarrow.RecordBatch is needed, not {type(record_batch).__name__}; "
                "of a Table, pass each of to_batches()"
            )
        names = record_batch.schema.names
        wrong = [name for name in names if name not in COLUMNS or names.count(name) > 1]
        if wrong or "value" not in names:
            raise WrongType(
                f"the columns must be value and, where wanted, key, timestamp and headers, each "
                f"once; got {', '.join(names) or 'none'}"
            )
        return dict(zip(names, record_batch.columns, strict=True))

    def refuse_nulls(self, column: Array, what: str, ends: Any = None) -> None:
        """`ends` says where the rows end, for a column that has several items in a row."""
        if column.null_count:
            row = column.is_null().index(True).as_py()
            if ends is not None:
                row = int(self.np.searchsorted(ends, row, side="right")) - 1
            raise WrongType(f"the column {what} may not have nulls; row {row} has one")

    def values(self, found: dict[str, Array]) -> Array:
        values = self.binary(found["value"], "value")
        self.refuse_nulls(values, "value")
        return values

    def timestamps(
        self, column: Array | None, timestamp: int | None, records: int
    ) -> tuple[Piece, int]:
        if column is None:
            if timestamp is None:
                raise WrongType("without a column timestamp, pass timestamp= for all records")
            return _columns.timestamp_column(timestamp, records)
        stamps = self.checked_timestamps(column)
        return _bytes_of(stamps), int(stamps.max())

    def checked_timestamps(self, column: Array) -> NDArray[np.int64]:
        if column.type != self.pa.int64() and not (
            self.pa.types.is_timestamp(column.type) and column.type.unit == "us"
        ):
            raise WrongType(
                f"the column timestamp must be timestamp[us] or int64, not {column.type}; cast it"
            )
        self.refuse_nulls(column, "timestamp")
        stamps: NDArray[np.int64] = self.np.frombuffer(
            column.buffers()[1], self.np.int64, len(column), 8 * column.offset
        )
        if stamps.min() < 0:
            row = int(stamps.argmin())
            raise OutOfRange(
                f"a timestamp must be microseconds since the epoch, 0 or more; row {row} has "
                f"{stamps[row]}"
            )
        return stamps

    def binary(self, column: Array, what: str, *, text: bool = False) -> Array:
        """The column as type binary, with 32-bit offsets; copied only if it has other offsets."""
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

    def binary_buffers(self, column: Array, what: str) -> list[Piece]:
        if column.null_count:
            column = column.fill_null(b"")  # the bytes under a null must not be sent
        _, offsets_buffer, data_buffer = column.buffers()
        offsets = self.np.frombuffer(
            offsets_buffer, self.np.int32, len(column) + 1, 4 * column.offset
        )
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first > self.bytes_max:
            raise MessageTooLarge(
                f"the column {what} holds {last - first} bytes, more than the {self.bytes_max} "
                "that a batch may hold; send fewer rows at once"
            )
        data = memoryview(data_buffer)[first:last].cast("B") if last > first else _NOTHING
        return [*pad(_bytes_of(offsets - offsets[0])), *pad(data)]

    def validity(self, column: Array) -> list[Piece]:
        """The bitmap, if there are nulls. It is made anew: that of a slice begins within a byte."""
        if not column.null_count:
            return []
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return pad(self.np.packbits(valid, bitorder="little").tobytes())

    def keys(
        self, column: Array, hashes: NDArray[np.uint64] | None
    ) -> tuple[int, Piece, list[Piece]]:
        buffers = self.binary_buffers(column, "key")
        validity = self.validity(column)
        flags = FLAG_KEYS | FLAG_KEY_HASHES | (FLAG_KEY_NULLS if validity else 0)
        if hashes is None:
            hashes = hashes_of(column)
        return flags, _bytes_of(hashes), [*validity, *buffers]

    def headers(self, column: Array) -> tuple[int, list[Piece]]:
        ends, names, values = self.header_parts(column)
        if not len(names):
            return 0, []
        validity = self.validity(values)
        return FLAG_HEADERS | (FLAG_HEADER_NULLS if validity else 0), [
            *pad(_bytes_of(ends)),
            *self.binary_buffers(names, "headers.key"),
            *validity,
            *self.binary_buffers(values, "headers.value"),
        ]

    def plain_headers(self, column: Array) -> Array:
        """The headers as list<struct<key: string, value: binary>>, of these rows only.

        A slice of the result then takes no more memory than its rows need.
        """
        ends, names, values = self.header_parts(column)
        parts = [names.cast(self.pa.string()), values]
        pairs = self.pa.StructArray.from_arrays(parts, names=["key", "value"])
        return self.pa.ListArray.from_arrays(self.pa.array(ends), pairs)

    def header_parts(self, column: Array) -> tuple[NDArray[np.int32], Array, Array]:
        """Where the headers of each row end, and the names and values of all rows."""
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
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ends: NDArray[np.int32] = self.np.zeros(len(column) + 1, dtype=self.np.int32)
        self.np.cumsum(lengths, out=ends[1:])
        self.refuse_nulls(pairs, "headers.element", ends)
        parts = dict(zip([field.name for field in pairs.type], pairs.flatten(), strict=True))
        names = self.binary(parts["key"], "headers.key", text=True)
        self.refuse_nulls(names, "headers.key", ends)
        try:
            names.cast(self.pa.string())  # this checks UTF-8, which an Arrow array need not be
        except self.pa.ArrowInvalid as error:
            raise WrongType("the column headers.key must be text in UTF-8") from error
        return ends, names, self.binary(parts["value"], "headers.value")


def hashes_of(column: Array) -> NDArray[np.uint64]:
    from hocket.wire.key_hashes import key_hashes  # which needs numpy

    return key_hashes(column)


def _bytes_of(numbers: NDArray[Any]) -> memoryview:
    return numbers.data.cast("B")
