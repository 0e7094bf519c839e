"""The Parquet files of a lake: read by offset, compared, cut, and merged when they are small."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.errors import CorruptData
from hocket.spark.columns import ALL, CREATE_TIME, arrow_schema

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.lake import Lake, LakeFile, Range

ROWS_AT_ONCE = 16_384
MERGE_FILES = 8  # as many small neighbours become one
MERGE_BYTES = (1 << 20, 8 << 20, 64 << 20)  # what counts as small, in turn
STALE_SECONDS = 24 * 3600  # staged files that nobody has named for so long are removed
OLD_SECONDS = 3600  # files that were merged are kept so long, for batches that were planned before


def read_range(lake: Lake, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """The records of the range in the order of their offsets, in these columns."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    at = wanted.start
    for batch in _in_order(lake, wanted, columns):
        found = {name: batch[name] for name in batch.schema.names}
        if "timestampType" in columns:
            kind = pa.array([CREATE_TIME], pa.int32()).take(pa.array([0] * len(batch)))
            found["timestampType"] = kind
        first, last = found["offset"][0].as_py(), found["offset"][-1].as_py()
        if first != at or last - first + 1 != batch.num_rows:
            raise CorruptData(
                f"the lake {lake.root} lacks offset {at} of {wanted.topic}/{wanted.partition}: one "
                "of its files is gone, or was changed"
            )
        at = last + 1
        yield pa.RecordBatch.from_arrays([found[name] for name in columns], schema=schema)
    if at != wanted.end:
        raise CorruptData(
            f"the lake {lake.root} has {wanted.topic}/{wanted.partition} only up to offset {at}, "
            f"not to {wanted.end}: one of its files is gone"
        )


def _in_order(lake: Lake, wanted: Range, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """All records of the range, in these columns and `offset`.

    Files of different dates may have offsets in turn: they are merged.
    """
    stored = [name for name in ALL if name == "offset" or name in columns]
    files = [
        file
        for file in lake.files(wanted.topic, wanted.partition)
        if file.range.start < wanted.end and file.range.end > wanted.start
    ]
    for clump in _clumps(files):
        yield from _merged([_batches(lake, file, wanted, stored) for file in clump])


def _clumps(files: list[LakeFile]) -> Iterator[list[LakeFile]]:
    """Files in groups: the offsets of two groups do not overlap."""
    clump: list[LakeFile] = []
    end = 0
    for file in files:
        if clump and file.range.start >= end:
            yield clump
            clump = []
        clump.append(file)
        end = max(end, file.range.end)
    if clump:
        yield clump


def _merged(streams: list[Iterator[pyarrow.RecordBatch]]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    if len(streams) == 1:
        yield from streams[0]
        return
    heads: list[pyarrow.RecordBatch | None] = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        bound = min(head["offset"][-1].as_py() for head in heads if head is not None)
        pieces = []
        for at, head in enumerate(heads):
            if head is None:
                continue
            count = pc.sum(pc.less_equal(head["offset"], bound)).as_py()
            pieces.append(head.slice(0, count))
            rest = head.slice(count)
            heads[at] = rest if rest.num_rows else next(streams[at], None)
        table = pa.Table.from_batches([piece for piece in pieces if piece.num_rows])
        yield from table.sort_by("offset").combine_chunks().to_batches()


def _batches(
    lake: Lake, file: LakeFile, wanted: Range, columns: Sequence[str]
) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow.compute as pc

    whole = wanted.start <= file.range.start and file.range.end <= wanted.end
    opened = _opened(lake, file.path)
    groups = None if whole else _groups(opened.metadata, wanted)
    for batch in opened.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=columns):
        if whole:
            yield batch
            continue
        offsets = batch["offset"]
        inside = pc.and_(pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.end))
        chosen = batch.filter(inside)
        if chosen.num_rows:
            yield chosen


def _groups(metadata: Any, wanted: Range) -> list[int]:
    """The row groups that may have records of the range: a merged file has many."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stored = (group.column(at) for at in range(group.num_columns))
        (offset,) = (each for each in stored if each.path_in_schema == "offset")
        known = offset.statistics
        if known is None or (known.min < wanted.end and known.max >= wanted.start):
            found.append(number)
    return found


def _opened(lake: Lake, path: Path) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:  # merged since the batch was planned
        return pq.ParquetFile(lake.old / path.name)


def same_records(lake: Lake, known: Range, staged: list[Path]) -> bool:
    """Whether the staged files have the records that the lake has in this range, by their times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["offset", "timestamp"]
    there = pa.Table.from_batches(
        [batch.select(names) for batch in _in_order(lake, known, names)], arrow_schema(names)
    )
    tables = [pq.read_table(path, columns=names) for path in staged]
    new = pa.concat_tables(tables).sort_by("offset").cast(there.schema)
    begin = known.start - new["offset"][0].as_py()
    return bool(there.equals(new.slice(begin, known.end - known.start)))


def cut(path: Path, start: int) -> bool:
    """Take the records before this offset out of the file; False: none is left."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rest = table.filter(pc.greater_equal(table["offset"], start))
    if rest.num_rows:
        pq.write_table(rest, path)
        _sync(path)
    return bool(rest.num_rows)


def merge_small(lake: Lake) -> int:
    """Merge small neighbours; call it under the lake's lock. Returns how many files it has made."""
    made = 0
    for topic, numbers in lake.state().partitions.items():
        for partition in numbers:
            files = lake.files(topic, partition)
            by_date = sorted(files, key=lambda file: (file.date, file.range))
            for _, of_date in groupby(by_date, key=lambda file: file.date):
                made += _merge_of_one_date(lake, list(of_date))
    _remove_stale(lake.staged, STALE_SECONDS)
    _remove_stale(lake.old, OLD_SECONDS)
    return made


def _merge_of_one_date(lake: Lake, files: list[LakeFile]) -> int:
    for limit in MERGE_BYTES:
        run: list[LakeFile] = []
        for file in [*files, None]:
            if file is not None and file.path.stat().st_size < limit:
                run.append(file)
                continue
            if len(run) >= MERGE_FILES:
                _merge(lake, run)
                return 1
            run = []
    return 0


def _merge(lake: Lake, files: list[LakeFile]) -> None:
    import pyarrow.parquet as pq

    from hocket.spark.lake import Range

    first, last = files[0].range, files[-1].range
    merged = Range(first.topic, first.partition, first.start, last.end)
    staged = lake.staged / f"{uuid.uuid4().hex}.parquet"
    schema = pq.ParquetFile(files[0].path).schema_arrow
    with pq.ParquetWriter(staged, schema, compression="snappy") as writer:
        for file in files:
            for batch in pq.ParquetFile(file.path).iter_batches(131_072):
                writer.write_batch(batch)
    _sync(staged)
    target = files[0].path.with_name(merged.file_name())
    lake.change([(staged, target)], [file.path for file in files], lake.state())


def _remove_stale(folder: Path, seconds: float) -> None:
    before = time.time() - seconds
    for path in folder.iterdir():
        try:
            if path.stat().st_ctime < before:  # which a move changes too
                path.unlink()
        except FileNotFoundError:
            continue


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
