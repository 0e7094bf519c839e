"""What is measured: a DataFrame's way to somewhere, in rows per second.

Every measurement checks that all rows arrived, outside the time that counts. Before each one the
disk is synced, so that nobody pays for pages that another left to be written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.functions import to_date

from benchmarks.runner import Contender, Sample, percentile
from benchmarks.spark.data import VALUE_BYTES, Data
from benchmarks.spark.latency import of_the_broker_alone, through_spark
from benchmarks.spark.sides import Broker

PER_RECORD_MAX = 1_000_000  # of the path that takes ten times as long; rates are compared


class WrongResult(AssertionError):
    """A measurement lost rows or made some up: its time means nothing."""


def check(found: int, expected: int, where: str) -> None:
    if found != expected:
        raise WrongResult(f"{found:,} rows {where}, {expected:,} were expected")


def timed(work: Callable[[], object]) -> float:
    os.sync()
    start = perf_counter()
    work()
    return perf_counter() - start


class Cases:
    def __init__(self, data: Data, scratch: Path) -> None:
        self.data, self.scratch = data, scratch

    def rate(self, name: str, seconds: Callable[[int], float], most: int = 1 << 60) -> Contender:
        """`seconds(count)` moves so many rows; `count` is made to fit the files of Parquet."""

        def measure(wanted: int) -> Sample:
            count = self.data.held(min(wanted, most))
            return {"rate": count / seconds(count)}

        return Contender(name, measure)

    def to_noop(self, frame: DataFrame, _count: int) -> float:
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def to_aggregate(self, frame: DataFrame, count: int) -> float:
        found: list[int] = []

        def aggregate() -> None:
            found.extend(frame.selectExpr("sum(length(value))", "max(offset)").collect()[0])

        seconds = timed(aggregate)
        check(found[0] // VALUE_BYTES, count, "were aggregated")
        return seconds

    def to_parquet(self, frame: DataFrame, count: int) -> float:
        path = tempfile.mkdtemp(dir=self.scratch)
        try:
            seconds = timed(lambda: frame.write.mode("overwrite").parquet(path))
            files = Path(path).glob("*.parquet")
            check(sum(pq.read_metadata(file).num_rows for file in files), count, "in Parquet")
        finally:
            shutil.rmtree(path)
        return seconds

    def to_dated_parquet(self, frame: DataFrame, count: int) -> float:
        path = tempfile.mkdtemp(dir=self.scratch)
        dated = frame.withColumn("date", to_date("timestamp"))
        try:
            seconds = timed(lambda: dated.write.mode("overwrite").partitionBy("date").parquet(path))
            check(rows_in(path), count, "in Parquet by date")
        finally:
            shutil.rmtree(path)
        return seconds

    def to_lake(self, frame: DataFrame, count: int) -> float:
        path = tempfile.mkdtemp(dir=self.scratch)
        try:
            seconds = timed(lambda: archive(frame, path))
            check(rows_in(path), count, "in the lake")
        finally:
            shutil.rmtree(path)
        return seconds

    def lake_of(self, frame: DataFrame) -> str:
        """A lake that stays until the run ends."""
        path = tempfile.mkdtemp(dir=self.scratch)
        archive(frame, path)
        return path

    def to_topic(self, frame: DataFrame, broker: Broker, count: int) -> float:
        topic = broker.new_topic()
        seconds = timed(lambda: broker.write(frame, topic))
        check(broker.size(topic), count, f"in a topic of {broker.name}")
        broker.delete(topic)
        return seconds

    def caught_up(self, broker: Broker, count: int) -> float:
        """A new query, from where so many records lie before it until it has done them all."""
        frame = broker.catch_up(count)
        with tempfile.TemporaryDirectory(dir=self.scratch) as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            rows: list[int] = []

            def run() -> None:
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                rows.extend(progress.numInputRows for progress in query.recentProgress)

            seconds = timed(run)
        check(sum(rows), count, f"were read by a stream of {broker.name}")
        return seconds

    def latency(self, broker: Broker) -> Contender:
        return Contender(broker.name, lambda count: median_ms(through_spark(broker, count)))

    def echo(self, broker: Broker) -> Contender:
        name = f"{broker.name} without Spark"
        return Contender(name, lambda count: median_ms(of_the_broker_alone(broker, count)))


def archive(frame: DataFrame, path: str) -> None:
    frame.write.format("hocket").option("archive", path).mode("append").save()


def rows_in(path: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in Path(path).glob("date=*/*.parquet"))


def median_ms(seconds: list[float]) -> Sample:
    return {f"p{part}": percentile(seconds, part) * 1e3 for part in (50, 90)}
