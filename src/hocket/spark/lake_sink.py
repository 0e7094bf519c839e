"""Writing records into a lake: tasks stage files, the driver puts them in, once.

What comes in must be a topic's records as they were read: with topic, partition and offset, none
left out, since the lake says of every offset whether it has it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from hocket.errors import WrongType
from hocket.spark.columns import ALL, arrow_schema
from hocket.spark.headers import as_lists
from hocket.spark.lake import Lake, LakeConflict, Range, State
from hocket.spark.lake_files import cut, merge_small, same_records

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

NEEDED = ("topic", "partition", "offset", "timestamp", "value")
COLUMNS = tuple(name for name in ALL if name != "timestampType")
ROWS_PER_GROUP = 131_072
BYTES_PER_GROUP = 32 << 20
DAY_US = 86_400_000_000


@dataclass(slots=True)
class Part:
    """The records of one range that a task has staged, a file for each date."""

    range: Range
    files: list[tuple[str, str]] = field(default_factory=list)  # date, name of the staged file


@dataclass(slots=True)
class StagedParts(WriterCommitMessage):
    parts: list[Part]


def check_schema(schema: StructType) -> None:
    names = set(schema.names)
    if lacking := [name for name in NEEDED if name not in names]:
        raise WrongType(
            f'a lake needs the columns {", ".join(NEEDED)}, as format("hocket") reads them; '
            f"{', '.join(lacking)} is missing"
        )


class LakeStreamSink(DataSourceStreamArrowWriter):
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return stage(Lake(self.path), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        put_in(Lake(self.path), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        drop(Lake(self.path), messages)


class LakeBatchSink(DataSourceArrowWriter):
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return stage(Lake(self.path), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        put_in(Lake(self.path), messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(Lake(self.path), messages)


# --- in tasks ------------------------------------------------------------------------------------


def stage(lake: Lake, batches: Iterator[pyarrow.RecordBatch]) -> StagedParts:
    """Write what comes into staged files; what was written is removed again if that fails."""
    staging = _Staging(lake.staged)
    try:
        with lake.room():
            lake.make()
            for batch in batches:
                for piece in _by_partition(batch):
                    staging.add(piece)
            return StagedParts(staging.close())
    except BaseException:
        staging.remove()
        raise


class _Staging:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[tuple[str, int], Part] = {}
        self._open: dict[tuple[str, int, str], _OpenFile] = {}
        self._made: list[Path] = []

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Add records of one partition."""
        topic, partition = batch["topic"][0].as_py(), batch["partition"][0].as_py()
        first, last = batch["offset"][0].as_py(), batch["offset"][-1].as_py()
        part = self._parts.get((topic, partition))
        expected = first if part is None else part.range.end
        if first != expected or last - first + 1 != batch.num_rows:
            raise LakeConflict(
                f"records of {topic}/{partition} are missing, doubled or not in order after offset "
                f"{expected - 1}: a lake takes a topic as it was read. Do not filter or shuffle "
                "before it"
            )
        if part is None:
            part = Part(Range(topic, partition, first, first))
            self._parts[topic, partition] = part
        part.range = Range(topic, partition, part.range.start, last + 1)
        for date, piece in _by_date(batch):
            file = self._open.get((topic, partition, date))
            if file is None:
                path = self._folder / f"{uuid.uuid4().hex}.parquet"
                self._made.append(path)
                part.files.append((date, path.name))
                file = self._open[topic, partition, date] = _OpenFile(path)
            file.add(piece)

    def close(self) -> list[Part]:
        for file in self._open.values():
            file.close()
        return list(self._parts.values())

    def remove(self) -> None:
        for path in self._made:
            path.unlink(missing_ok=True)


class _OpenFile:
    """A Parquet file that grows by row groups of a good size."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        self._path = path
        self._schema = arrow_schema(COLUMNS)
        self._writer = pq.ParquetWriter(path, self._schema, compression="snappy")
        self._held: list[pyarrow.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pyarrow.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROWS_PER_GROUP or self._bytes >= BYTES_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
            self._held, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _by_partition(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """The batch in the lake's columns, cut where the topic or the partition changes."""
    import pyarrow as pa

    if not batch.num_rows:
        return
    schema = arrow_schema(COLUMNS)
    columns = [
        (as_lists(batch[name]) if name == "headers" else batch[name]).cast(kind.type)
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, kind.type)
        for name, kind in zip(COLUMNS, schema, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    yield from _cut_where_different(whole, ("topic", "partition"))


def _by_date(batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """The batch by the date of its records; each keeps its order."""
    import numpy as np
    import pyarrow as pa

    days = np.asarray(batch["timestamp"].cast(pa.int64())) // DAY_US
    for day in np.unique(days):
        date = str(np.datetime64(int(day), "D"))
        whole = bool((days == day).all())
        yield date, batch if whole else batch.filter(pa.array(days == day))


def _cut_where_different(
    batch: pyarrow.RecordBatch, names: Sequence[str]
) -> Iterator[pyarrow.RecordBatch]:
    import numpy as np

    changes = np.zeros(max(0, batch.num_rows - 1), dtype=bool)
    for name in names:
        values: Any = batch[name].to_numpy(zero_copy_only=False)
        changes |= values[1:] != values[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(edges):
        yield batch.slice(start, end - start)


# --- in the driver -------------------------------------------------------------------------------


def put_in(lake: Lake, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make the staged parts part of the lake, those of them that are not there yet."""
    parts = sorted(_parts(messages), key=lambda part: part.range)
    with lake.room(), lake.locked():
        state = lake.state()
        moves: list[tuple[Path, Path]] = []
        for part in parts:
            new = _new_of(lake, state, part)
            if new is None:
                continue
            state.grow(new.range)
            for date, name in new.files:
                target = lake.root / f"date={date}" / new.range.file_name()
                moves.append((lake.staged / name, target))
        if moves:
            lake.change(moves, [], state)
        _remove(lake, parts)
        merge_small(lake)


def _new_of(lake: Lake, state: State, part: Part) -> Part | None:
    """What of the part is not in the lake; None: all of it is. Raises LakeConflict for a gap."""
    where = part.range
    name = f"{where.topic}/{where.partition}"
    end = state.end(where.topic, where.partition)
    if end is None or end == where.start:
        return part
    if where.start > end:
        raise LakeConflict(
            f"the lake {lake.root} has {name} up to offset {end}, and what comes now begins at "
            f"{where.start}: {where.start - end} records would be missing. Were they removed by "
            "retention, or was the checkpoint lost?"
        )
    begin = state.partitions[where.topic][where.partition][0]
    known = Range(where.topic, where.partition, max(where.start, begin), min(where.end, end))
    staged = [lake.staged / file for _, file in part.files]
    if where.start < begin or not same_records(lake, known, staged):
        raise LakeConflict(
            f"offsets {known.start} to {known.end - 1} of {name} are in the lake {lake.root} with "
            "other records: the topic was made anew, or is another cluster's. Give it a lake of "
            "its own"
        )
    if where.end <= end:
        return None
    rest = Part(Range(where.topic, where.partition, end, where.end))
    for date, name in part.files:
        if cut(lake.staged / name, end):
            rest.files.append((date, name))
    return rest


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [part for each in messages if isinstance(each, StagedParts) for part in each.parts]


def _remove(lake: Lake, parts: list[Part]) -> None:
    for part in parts:
        for _, name in part.files:
            (lake.staged / name).unlink(missing_ok=True)


def drop(lake: Lake, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove what was staged, unless an intent has it already: then it is part of the lake."""
    with lake.locked():
        _remove(lake, _parts(messages))
