"""A lake without Spark: what tasks stage, the driver puts in once, whatever breaks off."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.dataset as ds  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from hocket.errors import CorruptData, OutOfRange  # noqa: E402
from hocket.spark import lake as lakes, lake_files, lake_sink  # noqa: E402
from hocket.spark.columns import arrow_schema  # noqa: E402
from hocket.spark.lake import Lake, LakeConflict, LakeFull, Range, path_of  # noqa: E402

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
DAY = lake_sink.DAY_US
NOON = 20_000 * DAY + DAY // 2


def records(
    start: int, end: int, *, partition: int = 0, topic: str = "orders", at: Any = None
) -> Any:
    """Records whose values are their offsets; `at` gives the time of an offset."""
    offsets = list(range(start, end))
    columns: list[Any] = [
        [b"k%d" % (each % 7) for each in offsets],
        [b"%d" % each for each in offsets],
        [topic] * len(offsets),
        [partition] * len(offsets),
        offsets,
        [(at or (lambda _: NOON))(each) for each in offsets],
    ]
    schema = arrow_schema(COLUMNS)
    arrays = [pa.array(each, kind.type) for each, kind in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def archive(lake: Lake, *batches: Any) -> None:
    lake_sink.put_in(lake, [lake_sink.stage(lake, iter([batch])) for batch in batches])


def values(lake: Lake, start: int, end: int, partition: int = 0) -> list[int]:
    wanted = Range("orders", partition, start, end)
    found = lake_files.read_range(lake, wanted, ("value", "offset", "timestampType"))
    return [int(value) for batch in found for value in batch["value"].to_pylist()]


def all_files(lake: Lake) -> list[Path]:
    return sorted(lake.root.glob("date=*/*.parquet"))


@pytest.fixture(scope="module", autouse=True)
def arrow_s_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Arrow starts its threads when it first reads, and keeps them: no test is to blame."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    lake = Lake(tmp_path_factory.mktemp("first"))
    archive(lake, records(0, 10))
    ds.dataset(lake.root, format="parquet", partitioning="hive").to_table()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_records_lie_in_folders_by_date_and_come_out_in_order(lake: Lake) -> None:
    def in_turn(offset: int) -> int:
        return NOON + (offset % 3) * DAY  # three dates, in turn

    archive(lake, records(5, 1000, at=in_turn), records(0, 40, partition=1))
    archive(lake, records(1000, 2000, at=in_turn))
    assert {path.parent.name for path in all_files(lake)} == {
        "date=2024-10-04", "date=2024-10-05", "date=2024-10-06",
    }  # fmt: skip
    assert values(lake, 5, 2000) == list(range(5, 2000))
    assert values(lake, 700, 1300) == list(range(700, 1300))
    assert values(lake, 0, 40, partition=1) == list(range(40))
    assert lake.state().partitions == {"orders": {0: (5, 2000), 1: (0, 40)}}


def test_other_readers_of_parquet_find_the_same_records(lake: Lake) -> None:
    archive(lake, records(0, 100), records(0, 100, partition=1))
    table = ds.dataset(lake.root, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 200
    assert sorted(table["offset"].to_pylist()) == sorted([*range(100), *range(100)])
    assert set(table["date"].to_pylist()) == {"2024-10-04"}


def test_a_batch_that_comes_twice_is_there_once(lake: Lake) -> None:
    archive(lake, records(0, 100))
    archive(lake, records(0, 100))
    archive(lake, records(50, 150))  # planned otherwise, after the checkpoint was lost
    assert values(lake, 0, 150) == list(range(150))
    assert [path.name for path in lake.staged.iterdir()] == []


def test_a_gap_is_refused_by_its_offsets(lake: Lake) -> None:
    archive(lake, records(0, 100))
    with pytest.raises(LakeConflict, match=r"up to offset 100.*begins at 120: 20 records"):
        archive(lake, records(120, 130))
    assert values(lake, 0, 100) == list(range(100))


def test_other_records_at_the_same_offsets_are_refused(lake: Lake) -> None:
    archive(lake, records(0, 100))
    with pytest.raises(LakeConflict, match=r"offsets 0 to 99 of orders/0 .* with other records"):
        archive(lake, records(0, 120, at=lambda _: NOON + 1))
    assert values(lake, 0, 100) == list(range(100))


def test_records_that_were_filtered_are_refused(lake: Lake) -> None:
    some = records(0, 10).filter(pa.array([each % 2 == 0 for each in range(10)]))
    with pytest.raises(LakeConflict, match="missing, doubled or not in order"):
        archive(lake, some)
    assert all_files(lake) == []
    assert list(lake.staged.iterdir()) == []


def test_it_is_broken_off_at_every_step_and_each_record_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change to the disk in turn fails, the batch is done again, and all is well."""
    real: dict[str, Callable[..., Any]] = {"replace": os.replace, "fsync": os.fsync}
    steps = 0
    for broken_off_at in range(1, 200):
        lake = Lake(tmp_path / f"lake-{broken_off_at}")
        for start in range(0, 70, 10):  # seven small files: the next batch makes them eight
            archive(lake, records(start, start + 10))
        left = [broken_off_at]

        def step(name: str, *args: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt(f"broken off at {name}")
            return real[name](*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *args: step("replace", *args))
            patch.setattr(os, "fsync", lambda *args: step("fsync", *args))
            try:
                archive(lake, records(70, 90))
                done = True
            except KeyboardInterrupt:
                done = False
        before = lake.state().end("orders", 0)
        assert before in (70, 90)
        assert values(lake, 0, before) == list(range(before))  # whoever reads meanwhile
        archive(lake, records(70, 90))
        assert values(lake, 0, 90) == list(range(90))
        assert len(all_files(lake)) == 1, "merged"
        if done:
            steps = broken_off_at - 1
            break
    assert steps >= 12, "as many steps were looked at"


def test_small_files_are_merged_and_a_batch_planned_before_still_finds_them(lake: Lake) -> None:
    for start in range(0, 70, 10):
        archive(lake, records(start, start + 10))
    assert len(all_files(lake)) == 7
    wanted = Range("orders", 0, 0, 70)
    planned = lake_files.read_range(lake, wanted, ("offset",))
    first = next(planned)
    archive(lake, records(70, 80))
    assert [path.name for path in all_files(lake)] == [Range("orders", 0, 0, 80).file_name()]
    rest = [each for batch in planned for each in batch["offset"].to_pylist()]
    assert first["offset"].to_pylist() + rest == list(range(70))
    assert values(lake, 0, 80) == list(range(80))


def test_of_a_large_file_only_what_may_have_the_records_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_sink, "ROWS_PER_GROUP", 100)
    staged = lake_sink.stage(lake, (records(at, at + 100) for at in range(0, 1000, 100)))
    lake_sink.put_in(lake, [staged])
    (file,) = all_files(lake)
    metadata = pq.ParquetFile(file).metadata
    assert metadata.num_row_groups == 10
    assert lake_files._groups(metadata, Range("orders", 0, 450, 600)) == [4, 5]
    assert values(lake, 450, 600) == list(range(450, 600))


def test_a_full_disk_leaves_nothing_half_done(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(lake, records(0, 10))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LakeFull, match=r"the lake .* cannot be written: No space left"):
            archive(lake, records(10, 20))
    assert list(lake.staged.iterdir()) == []
    archive(lake, records(10, 20))
    assert values(lake, 0, 20) == list(range(20))


def test_a_file_that_is_gone_is_missed_by_its_offset(lake: Lake) -> None:
    archive(lake, records(0, 10))
    archive(lake, records(10, 20))
    all_files(lake)[0].unlink()
    with pytest.raises(CorruptData, match="lacks offset 0 of orders/0"):
        values(lake, 0, 20)


def test_topics_whose_names_look_alike_are_kept_apart(lake: Lake) -> None:
    archive(
        lake, records(0, 5, topic="a"), records(0, 7, topic="a-0"), records(0, 3, topic="a-0-0")
    )
    assert {name: ends[0] for name, ends in lake.state().partitions.items()} == {
        "a": (0, 5), "a-0": (0, 7), "a-0-0": (0, 3),
    }  # fmt: skip
    assert [file.range.end for file in lake.files("a", 0)] == [5]
    assert [file.range.end for file in lake.files("a-0", 0)] == [7]


@pytest.mark.parametrize("path", ["s3://bucket/lake", "lake", ""])
def test_a_path_that_tasks_could_not_find_is_refused(path: str) -> None:
    with pytest.raises(OutOfRange, match="archive must be"):
        path_of(path)


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfRange, match="there is no lake in"):
        Lake(tmp_path).state()
    lake = Lake(tmp_path / "lake")
    lake.make()
    (lake.inner / "state.json").write_text("{}")
    with pytest.raises(CorruptData, match="is no state of a lake"):
        lake.state()
    assert lakes.INNER == "_hocket"
