"""The columns of a topic, named as in Spark's Kafka connector, with their Spark and Arrow types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hocket.errors import WrongType

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
STORED = ("key", "value", "timestamp", "headers")  # the others follow from a record's position

CREATE_TIME = 0  # timestampType in Kafka's numbering: the producer set the time


def spark_schema(columns: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    kinds = _spark_types()
    return StructType([StructField(name, kinds[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pyarrow.Schema:
    """The exact schema of a record batch with these columns; Spark compares it with its own."""
    return _arrow_schema(tuple(columns))


def check_user_schema(given: StructType, columns: Sequence[str]) -> None:
    """Raise WrongType for any other schema than ours: the columns of a topic are fixed."""
    ours = [(field.name, field.dataType) for field in spark_schema(columns).fields]
    if [(field.name, field.dataType) for field in given.fields] != ours:
        raise WrongType(
            f"the schema of a topic is fixed: {spark_schema(columns).simpleString()}, not "
            f"{given.simpleString()}. Leave out .schema(...); for fewer columns set the option "
            "columns, as in option('columns', 'key,value'), and for headers includeHeaders"
        )


@cache
def _spark_types() -> dict[str, DataType]:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }


@cache
def _arrow_schema(columns: tuple[str, ...]) -> Any:
    import pyarrow as pa

    from hocket.wire import arrow

    kinds = {field.name: field.type for field in arrow.arrow_schema(headers=True)}
    kinds["timestampType"] = pa.int32()
    return pa.schema([(name, kinds[name]) for name in columns])
