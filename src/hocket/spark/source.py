"""The data source `hocket`: what Spark asks of `format("hocket")`, each handed to its own file.

An instance is pickled and sent about, and is made for every use, so it holds nothing but options.
Imports that cost something (pyarrow, the client) wait until there is something to read or write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from hocket.errors import HocketError
from hocket.spark.columns import check_user_schema, spark_schema
from hocket.spark.options import ReadOptions, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


class HocketDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hocket"

    def schema(self) -> StructType:
        """The columns that the options ask for; Spark asks before it knows what it will do."""
        return spark_schema(_some_read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        _require_arrow()
        from hocket.spark.batch_reader import FilteringBatchReader, HocketBatchReader

        options = ReadOptions.parse(self.options, streaming=False)
        check_user_schema(schema, options.columns)
        return FilteringBatchReader(options) if options.push_filters else HocketBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        _require_arrow()
        from hocket.spark.stream_reader import HocketStreamReader

        options = ReadOptions.parse(self.options, streaming=True)
        check_user_schema(schema, options.columns)
        return HocketStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from hocket.spark.sink import batch_sink

        options = WriteOptions.parse(self.options, streaming=False)
        return batch_sink(schema, options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - complete mode says it, and means rows as any other
    ) -> DataSourceStreamWriter:
        from hocket.spark.sink import stream_sink

        options = WriteOptions.parse(self.options, streaming=True)
        return stream_sink(schema, options, self.options.get("checkpointlocation"))


def _require_arrow() -> None:
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the data source hocket needs {error.name}: pip install 'hocket[spark]'",
            name=error.name,
        ) from error


def _some_read_options(options: Mapping[str, str]) -> ReadOptions:
    """As of a stream or, failing that, of a batch: what is wrong with both is told at once."""
    try:
        return ReadOptions.parse(options, streaming=True)
    except HocketError:
        return ReadOptions.parse(options, streaming=False)
