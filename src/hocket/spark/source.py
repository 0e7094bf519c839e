"""The data source `hocket`: it answers what Spark asks of `format("hocket")`.

Each answer is made in a module of its own. Spark makes an instance for every use, pickles it and
sends it about, so an instance holds nothing but options. Slow imports (pyarrow, the client) wait
until there is something to read or write.
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
from hocket.spark.lake import path_of
from hocket.spark.options import ReadOptions, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


class HocketDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "hocket"

    def schema(self) -> StructType:
        """The columns that the options ask for. Spark does not yet say whether it will stream."""
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
        if options.archive is not None:
            from hocket.spark.lake_sink import LakeBatchSink, check_schema

            check_schema(schema)
            return LakeBatchSink(path_of(options.archive))
        return batch_sink(schema, options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - complete mode sets it; its rows are appended all the same
    ) -> DataSourceStreamWriter:
        from hocket.spark.sink import stream_sink

        options = WriteOptions.parse(self.options, streaming=True)
        if options.archive is not None:
            from hocket.spark.lake_sink import LakeStreamSink, check_schema

            check_schema(schema)
            return LakeStreamSink(path_of(options.archive))
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
    """Parse the options for a stream or else for a batch; raises only if both are wrong."""
    try:
        return ReadOptions.parse(options, streaming=True)
    except HocketError:
        return ReadOptions.parse(options, streaming=False)
