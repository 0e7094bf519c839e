"""Where Spark finds the data source `hocket`: it looks into every package named `pyspark_...`.

It does so for every user of any Python data source, so this stays light.
"""

from hocket.spark.source import HocketDataSource as DefaultSource

__all__ = ["DefaultSource"]
