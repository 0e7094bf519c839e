"""The one Spark session of a run: 2 tasks at a time, 2 GiB, the same for every contender."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import hocket.spark.session

ROOT = Path(__file__).parents[2]


@contextmanager
def opened(jars: Sequence[Path], scratch: Path) -> Iterator[SparkSession]:
    # The workers import the benchmark's own data source.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    spark = hocket.spark.session.session(
        "benchmark",
        config={
            "spark.driver.memory": "2g",
            "spark.jars": ",".join(map(str, jars)),
            "spark.local.dir": str(scratch / "spark"),
            "spark.ui.showConsoleProgress": "false",
        },
    )
    try:
        yield spark
    finally:
        spark.stop()
