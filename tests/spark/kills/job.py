"""A Spark program from topic to topic, in one of several shapes, run by the harness.

python -m tests.spark.kills.job CONFIG.json
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as f

from hocket.spark.session import session
from tests.spark.kills.control import Control
from tests.spark.kills.probe import ProbeSource
from tests.support.java import java_options

FORMAT = "hocket-probe"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",  # so that a task has several
    "spark.sql.streaming.minBatchesToRetain": "100000",  # the checker reads all of the logs
    "spark.sql.shuffle.partitions": "2",
}


def main(path: str) -> None:
    config = json.loads(Path(path).read_text())
    control = Control.here()
    spark = session(
        "kills",
        master=config.get("master", "local[2,4]"),
        config={**SETTINGS, **for_executors(), **config.get("settings", {})},
    )
    wait_for_executors(spark, config.get("executors", 0))
    spark.dataSource.register(ProbeSource)
    query = SHAPES[config["shape"]](spark, config).start()
    while not control.is_finished():
        query.awaitTermination(0.1)  # raises what the query has failed with
    query.processAllAvailable()
    query.stop()
    spark.stop()


def for_executors() -> dict[str, str]:
    """Processes that are not children of this one learn the same."""
    names = ["PYTHONPATH", *(name for name in os.environ if name.startswith("HOCKET_PROBE"))]
    return {f"spark.executorEnv.{name}": os.environ[name] for name in names}


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """The driver counts as one of them."""
    while count and spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= count:
        time.sleep(0.1)


def read(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    return (
        spark.readStream.format(FORMAT)
        .option("servers", config["servers"])
        .option("subscribe", config["input"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", config["rows_per_batch"])
        .load()
        .selectExpr("cast(key as string) as key", "cast(value as string) as value")
    )


def write(frame: DataFrame, config: dict[str, Any]) -> Any:
    return (
        frame.writeStream.format(FORMAT)
        .option("servers", config["servers"])
        .option("topic", config["output"])
        .option("checkpointLocation", config["checkpoint"])
    )


def mapped(spark: SparkSession, config: dict[str, Any]) -> Any:
    return write(read(spark, config).selectExpr("key", "'out ' || value as value"), config)


def shuffled(spark: SparkSession, config: dict[str, Any]) -> Any:
    """All rows of a key come from one task, in order, and a shuffle leaves it that way."""
    rows = read(spark, config).repartition(3, "key")
    return write(rows.selectExpr("key", "'out ' || value as value"), config)


def counted(spark: SparkSession, config: dict[str, Any]) -> Any:
    """State over batches; the whole result is written after each of them."""
    return write(counts(read(spark, config)), config).outputMode("complete")


def updated(spark: SparkSession, config: dict[str, Any]) -> Any:
    """State over batches; what has changed is written, by a write in foreachBatch."""

    def write_batch(frame: DataFrame, number: int) -> None:
        (
            frame.write.format(FORMAT)
            .mode("append")
            .option("servers", config["servers"])
            .option("topic", config["output"])
            .option("transactionId", "updated")
            .option("transactionNumber", number)
            .save()
        )

    return (
        counts(read(spark, config))
        .writeStream.outputMode("update")
        .foreachBatch(write_batch)
        .option("checkpointLocation", config["checkpoint"])
    )


def counts(rows: DataFrame) -> DataFrame:
    value = f.concat(f.lit("count "), f.col("count").cast("string"))
    return rows.groupBy("key").count().select("key", value.alias("value"))


SHAPES: dict[str, Callable[[SparkSession, dict[str, Any]], Any]] = {
    "map": mapped,
    "shuffle": shuffled,
    "stateful": counted,
    "update": updated,
}

if __name__ == "__main__":
    main(sys.argv[1])
