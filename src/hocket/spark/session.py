"""A Spark session with the settings that Hocket's pipelines run well with.

This is only for convenience: `format("hocket")` works in every session. What matters most is that
the workers run this Python, and not the first `python3` of the PATH.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hocket.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

# Spark's default writes each log of a checkpoint through an interface that is slow on a local disk:
# about 100 ms more for each micro-batch. Elsewhere (HDFS, object stores) the default is right.
LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# To keep each batch for Python under 64 MiB, Spark measures what it has gathered after every row.
# For a column of lists it looks at all rows since the last one that is not null, as with `headers`
# that few records have: a batch of 10,000 rows, Spark's default, takes 50 million looks. With 2,000
# a million such records are written in seconds in place of minutes; smaller ones cost more again.
ROWS_PER_ARROW_BATCH = 2000


def session(
    name: str = "hocket",
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running session, or a new one; `config` overrides the settings made here.

    Raises NoJava where there is no Java 17 or newer.
    """
    java.require()
    prepare_environment(local=is_local(master))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings(master), **(config or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment(*, local: bool = True) -> None:
    """Tell Spark which Python its workers run, unless the environment says so already.

    Call this before the first session of a process.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:  # else Spark looks up the host's name, which may fail or give a dead address
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def settings(master: str) -> dict[str, str]:
    """The settings of a session at `master`, by Spark's names."""
    chosen = {
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_ARROW_BATCH),
    }
    if is_local(master):
        chosen |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": str(cores_of(master)),
            "spark.sql.streaming.checkpointFileManagerClass": LOCAL_CHECKPOINTS,
        }
    return chosen


def is_local(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is not None


def cores_of(master: str) -> int:
    """How many tasks a local master runs at once: 1 for `local`, 2 for `local[2]`."""
    found = re.match(r"local\[(\*|\d+)", master)
    if found is None:
        return 1
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1])
