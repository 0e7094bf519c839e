"""Spark's daemon of Python workers, which has loaded what its workers load.

Spark starts a process of Python for each data source that is made, planned or written, and each of
them loads pyspark, pandas, PyArrow and Hocket: most of a second, many times in a test. Here they
are forked from one that has loaded all of it. `test_exactly_once.py` and the programs of the other
tests run with Spark's own daemon.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow
import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.commit_data_source_write
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.data_source_pushdown_filters
import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.python_streaming_sink_runner
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import hocket.spark.source  # noqa: F401

if __name__ == "__main__":
    manager()
