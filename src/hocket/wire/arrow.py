"""Record batches as Arrow's columns, with no Python work per record.

The columns of a batch are Arrow's own buffers, so reading wraps them where they lie. The types are
exactly those of Spark's Kafka source, all nullable; as there, a record without headers has null in
that column. The other direction is in `wire.from_arrow`.

pyarrow is an optional dependency: it is imported when one of these functions is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from hocket.errors import CorruptData, OutOfRange
from hocket.wire import columns as _columns
from hocket.wire.batch import Batch
from hocket.wire.columns import BinaryView, ColumnsView

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    Array: TypeAlias = Any  # pyarrow has no type hints; so at least their names are told apart

REPEATED_ROWS_MAX = 16 << 10  # a column of one repeated value is kept for batches of up to this


def libraries() -> tuple[Any, Any]:
    """pyarrow and numpy, or an ImportError that says how to get them."""
    try:
        import numpy
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"Arrow columns need {error.name}: pip install 'hocket[arrow]'", name=error.name
        ) from error
    return pyarrow, numpy


def arrow_schema(*, headers: bool = False, columns: Iterable[str] | None = None) -> pyarrow.Schema:
    """The schema of what `to_arrow` returns for these arguments."""
    pa, _ = libraries()
    return _schema(pa, _names(headers, columns))


def _names(headers: bool, columns: Iterable[str] | None) -> tuple[str, ...]:
    if columns is None:
        return ALL if headers else WITHOUT_HEADERS
    names = tuple(columns)
    wrong = [name for name in names if name not in ALL or names.count(name) > 1]
    if wrong or not names:
        raise OutOfRange(
            f"columns must be some of {', '.join(ALL)}, each once; got "
            f"{', '.join(map(str, names)) or 'none'}"
        )
    return names


@lru_cache(maxsize=64)
def _schema(pa: Any, names: tuple[str, ...]) -> pyarrow.Schema:
    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": _headers_type(pa),
    }
    return pa.schema([(name, kinds[name]) for name in names])


def _headers_type(pa: Any) -> Any:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.list_(pa.field("element", header))


def to_arrow(
    batch: Batch,
    topic: str,
    partition: int,
    *,
    skip: int = 0,
    headers: bool = False,
    columns: Iterable[str] | None = None,
) -> pyarrow.RecordBatch:
    """The columns of Spark's Kafka source, without the first `skip` records.

    `columns` names the columns that are wanted, in this order; `headers` then has no effect.
    Values, keys and timestamps are not copied unless they were compressed or do not lie on a
    multiple of 8 bytes: the result keeps the buffer in use, which must not change under it.
    """
    if not 0 <= skip <= batch.count:
        raise OutOfRange(f"records 0 to {skip} of a batch of {batch.count}")
    pa, np = libraries()
    names = _names(headers, columns)
    source = _Source(pa, np, batch, topic, partition)
    try:
        arrays = [_MAKERS[name](source) for name in names]
    except pa.ArrowInvalid as error:
        raise CorruptData(f"offsets {batch.base_offset} to {batch.end_offset}: {error}") from error
    rows = pa.RecordBatch.from_arrays(arrays, schema=_schema(pa, names))
    return rows.slice(skip) if skip else rows


class _Source:
    """A batch whose columns are made one by one."""

    def __init__(self, pa: Any, np: Any, batch: Batch, topic: str, partition: int) -> None:
        self.pa = pa
        self.np = np
        self.batch = batch
        self.count = batch.count
        self.topic_name = topic
        self.partition_number = partition

    @cached_property
    def stored(self) -> ColumnsView:
        """The columns stored in the batch, which is decompressed only if one of them is wanted."""
        view = self.batch.columns()
        if self.pa.py_buffer(view.raw).address % 8:  # Arrow computes on aligned buffers only
            raw = memoryview(bytes(view.raw))
            return _columns.open_columns(raw, self.count, self.batch.header.flags)
        return view

    def key(self) -> Array:
        return self.binary(self.stored.keys, self.count)

    def value(self) -> Array:
        return self.binary(self.stored.values, self.count)

    def topic(self) -> Array:
        return _repeated(self.pa, self.topic_name, "string", self.count)

    def partition(self) -> Array:
        return _repeated(self.pa, self.partition_number, "int32", self.count)

    def offset(self) -> Array:
        batch, np = self.batch, self.np
        numbers = np.arange(batch.base_offset, batch.end_offset, dtype=np.int64)
        return self.array(self.pa.int64(), numbers)

    def timestamp(self) -> Array:
        return self.array(self.pa.timestamp("us", tz="UTC"), self.stored.timestamps)

    def headers(self) -> Array:
        pa, np, view = self.pa, self.np, self.stored.headers
        kind = _headers_type(pa)
        if view is None:
            return pa.nulls(self.count, kind)
        total = view.lists[self.count]
        names = self.binary(view.names, total, pa.string())
        values = self.binary(view.values, total)
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        filled = np.diff(np.frombuffer(view.lists, dtype=np.int32)) > 0
        validity = pa.py_buffer(np.packbits(filled, bitorder="little"))
        buffers = [validity, pa.py_buffer(view.lists)]
        array = pa.Array.from_buffers(kind, self.count, buffers, children=[pairs])
        array.validate(full=True)
        return array

    def array(self, kind: Any, numbers: Any) -> Array:
        pa = self.pa
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(numbers)])

    def binary(self, column: BinaryView | None, count: int, kind: Any = None) -> Array:
        pa = self.pa
        kind = kind or pa.binary()
        if column is None:
            return pa.nulls(count, kind)
        validity = None if column.validity is None else pa.py_buffer(column.validity)
        buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        array = pa.Array.from_buffers(kind, count, buffers)
        array.validate(full=True)  # offsets and UTF-8 come from the producer, who is not trusted
        return array


_MAKERS: dict[str, Callable[[_Source], Any]] = {
    "key": _Source.key,
    "value": _Source.value,
    "topic": _Source.topic,
    "partition": _Source.partition,
    "offset": _Source.offset,
    "timestamp": _Source.timestamp,
    "headers": _Source.headers,
}
ALL = tuple(_MAKERS)
WITHOUT_HEADERS = ALL[:-1]


def _repeated(pa: Any, value: str | int, kind: str, count: int) -> Array:
    """A column that repeats one value: a slice of a long one, which is made once."""
    if count > REPEATED_ROWS_MAX:
        return pa.repeat(pa.scalar(value, kind), count)
    return _long_column(pa, value, kind).slice(0, count)


@lru_cache(maxsize=64)
def _long_column(pa: Any, value: str | int, kind: str) -> Array:
    return pa.repeat(pa.scalar(value, kind), REPEATED_ROWS_MAX)
