"""Hocket as a data source of Apache Spark: `format("hocket")` for `read`, `readStream`, `write`
and `writeStream`.

Spark finds the data source by itself (through the package `pyspark_hocket`), so most programs never
import this package. It needs the extra `hocket[spark]`; every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hocket.spark import java, session
    from hocket.spark.missing import DataLoss
    from hocket.spark.source import HocketDataSource

__all__ = ["DataLoss", "HocketDataSource", "java", "register", "session"]

_MODULES = ("java", "session")
_NAMES = {"DataLoss": "hocket.spark.missing", "HocketDataSource": "hocket.spark.source"}


def register(spark: SparkSession) -> None:
    """Make `format("hocket")` known to a session that does not find it by itself.

    A session finds it where the package is installed for the Python of its workers.
    """
    spark.dataSource.register(_found("HocketDataSource"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"hocket.spark.{name}")
    if name in _NAMES:
        return _found(name)
    raise AttributeError(f"module 'hocket.spark' has no attribute {name!r}")


def _found(name: str) -> Any:
    try:
        return getattr(import_module(_NAMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise ImportError(
            f"hocket.spark needs {error.name}: pip install 'hocket[spark]'", name=error.name
        ) from error
