"""Rows of Spark as messages: which columns mean what, and how they reach a transaction.

Rows come as Arrow batches and stay columns all the way. They are gathered into larger pieces, and
divided by topic and partition where these are columns. Types are checked once, when a query is
planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from hocket.errors import WrongType
from hocket.spark.headers import as_lists

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType

    Array: TypeAlias = Any  # pyarrow has no type hints

# Spark hands over 10,000 rows at a time, whatever their size. Rows with keys that are gathered to
# these sizes take a third less of the client's CPU (4 partitions, values of 100 bytes).
ROWS_MAX = 65_536
BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of each column in a row; None: there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    fixed_topic: str | None = None  # the option `topic`, which overrides the column


def layout_of(schema: StructType, topic: str | None) -> Layout:
    """Where a DataFrame has the columns to be written; others are ignored, as by Kafka's sink.

    Raises WrongType for columns that are missing or of another type.
    """
    from pyspark.sql.types import IntegerType, StringType

    found = {
        name: _find(schema, name) for name in ("value", "key", "headers", "topic", "partition")
    }
    if found["value"] is None:
        raise WrongType(f"Required attribute 'value' not found; the columns are {_names(schema)}")
    if topic is None and found["topic"] is None:
        raise WrongType(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic"
        )
    checks = {
        "value": (_is_text_or_binary, "a STRING or BINARY"),
        "key": (_is_text_or_binary, "a STRING or BINARY"),
        "headers": (
            _is_headers,
            "an ARRAY<STRUCT<key: STRING, value: BINARY>>, or the STRING that to_json makes of it",
        ),
        "topic": (lambda kind: isinstance(kind, StringType), "a STRING"),
        "partition": (lambda kind: isinstance(kind, IntegerType), "an INT"),
    }
    for name, (fits, wanted) in checks.items():
        at = found[name]
        if at is not None and not fits(schema[at].dataType):
            kind = schema[at].dataType.simpleString()
            raise WrongType(f"{name} attribute type must be {wanted}, not {kind}; cast it")
    return Layout(fixed_topic=topic, **found)  # type: ignore[arg-type]  # there is a value


def _find(schema: StructType, name: str) -> int | None:
    positions = [at for at, field in enumerate(schema.fields) if field.name == name]
    if len(positions) > 1:
        raise WrongType(
            f"there are {len(positions)} columns called {name!r}; drop or rename the others"
        )
    return positions[0] if positions else None


def _names(schema: StructType) -> str:
    return ", ".join(schema.fieldNames()) or "none"


def _is_text_or_binary(kind: DataType) -> bool:
    from pyspark.sql.types import BinaryType, StringType

    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    if isinstance(kind, StringType):
        return True
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair = kind.elementType
    return (
        pair.fieldNames() == ["key", "value"]
        and isinstance(pair["key"].dataType, StringType)
        and isinstance(pair["value"].dataType, BinaryType)
    )


class Sender(Protocol):
    """What rows are sent to: a transaction, or producers."""

    def send_arrow(
        self, topic: str, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None: ...


def send_rows(sender: Sender, layout: Layout, batches: Iterable[pyarrow.RecordBatch]) -> int:
    """Send all rows, and return how many there were."""
    rows = 0
    for piece in gathered(batches):
        rows += piece.num_rows
        for topic, partition, messages in messages_of(piece, layout):
            sender.send_arrow(topic, messages, partition)
    return rows


def gathered(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The same rows in the same order, in larger batches; no batch is empty."""
    waiting: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (rows + batch.num_rows > ROWS_MAX or size + batch.nbytes > BYTES_MAX):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def messages_of(
    rows: pyarrow.RecordBatch, layout: Layout
) -> Iterator[tuple[str, int | None, pyarrow.RecordBatch]]:
    """Topic, partition (None: by the keys) and their messages, in the order of the rows."""
    messages = _messages(rows, layout)
    by: dict[str, Array] = {}
    if layout.fixed_topic is None:
        by["topic"] = rows.column(layout.topic)
        if by["topic"].null_count:
            raise WrongType(
                "null topic present in the data. Use the topic option for setting a topic, "
                "or leave such rows out"
            )
    _refuse_null_values(messages.column("value"), by.get("topic"), layout)
    if layout.partition is not None:
        by["partition"] = rows.column(layout.partition)
    for found, numbers in _groups(by):
        chosen = messages if numbers is None else messages.take(numbers)
        topic: Any = found.get("topic", layout.fixed_topic)
        yield topic, found.get("partition"), chosen


def _messages(rows: pyarrow.RecordBatch, layout: Layout) -> pyarrow.RecordBatch:
    import pyarrow as pa

    positions = {"value": layout.value, "key": layout.key, "headers": layout.headers}
    columns = {name: rows.column(at) for name, at in positions.items() if at is not None}
    if "headers" in columns:
        columns["headers"] = as_lists(columns["headers"])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _refuse_null_values(values: Array, topics: Array | None, layout: Layout) -> None:
    if not values.null_count:
        return
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    row = pc.index(values.is_null(), True).as_py()
    topic = layout.fixed_topic if topics is None else topics[row].as_py()
    raise WrongType(
        f"a null value for {topic!r}: a message has a value, there are no tombstones; "
        "leave such rows out, or give them an empty value, as in coalesce(value, X'')"
    )


def _groups(columns: dict[str, Array]) -> Iterator[tuple[dict[str, Any], Array | None]]:
    """Groups of rows with equal values in all columns: the values, and the rows' numbers.

    None instead of the numbers means all rows, which is the usual case and costs no copy.
    """
    if not columns:
        yield {}, None
        return
    import numpy as np

    encoded = {
        name: column.dictionary_encode(null_encoding="encode") for name, column in columns.items()
    }
    codes: Any = 0
    for each in encoded.values():
        codes = codes * len(each.dictionary) + each.indices.to_numpy().astype(np.int64)
    order = np.argsort(codes, kind="stable")
    pieces = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    for numbers in pieces:
        first = int(numbers[0])
        values = {
            name: each.dictionary[each.indices[first].as_py()].as_py()
            for name, each in encoded.items()
        }
        yield values, None if len(pieces) == 1 else numbers
