"""The records that every contender reads and writes: 8 B keys, 100 B values, 4 partitions.

They are made once for each run, as Parquet files with the columns of a topic; the topics are
filled from those files. Keys and values are random bytes, so nobody gains by compressing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY_BYTES = 8
VALUE_BYTES = 100
PARTITIONS = 4
PARTS = 10  # files for each partition: a tenth of all records is one file of each
FIRST_TIMESTAMP_US = 1_700_000_000_000_000
TOPIC = "records"
TOPIC_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Data:
    """`records` records in `directory`, and the part of each partition that some of them are."""

    directory: Path
    records: int

    @property
    def per_part(self) -> int:
        return self.records // (PARTITIONS * PARTS)

    def files(self, count: int) -> list[str]:
        """The files that hold the first `count` records of all partitions together."""
        parts = max(1, round(count / (self.per_part * PARTITIONS)))
        return [
            str(self.directory / f"{partition}-{part}.parquet")
            for part in range(parts)
            for partition in range(PARTITIONS)
        ]

    def held(self, count: int) -> int:
        """How many records these files hold: `count`, but for what does not divide."""
        return len(self.files(count)) * self.per_part

    def write(self) -> None:
        self.directory.mkdir()
        random = np.random.default_rng(seed=5)
        for partition in range(PARTITIONS):
            for part in range(PARTS):
                first = part * self.per_part
                table = made(random, partition, first, self.per_part)
                pq.write_table(table, self.directory / f"{partition}-{part}.parquet")


def made(random: np.random.Generator, partition: int, first: int, count: int) -> pa.Table:
    offsets = np.arange(first, first + count, dtype=np.int64)
    columns = [
        noise(random, count, KEY_BYTES),
        noise(random, count, VALUE_BYTES),
        pa.array(np.full(count, TOPIC), pa.string()),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets),
        pa.array(FIRST_TIMESTAMP_US + offsets).view(pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(count, np.int32)),
    ]
    return pa.table(columns, names=list(TOPIC_COLUMNS))


def noise(random: np.random.Generator, count: int, size: int) -> pa.Array:
    """`count` values of `size` random bytes each."""
    ends = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(random.bytes(count * size))]
    )
