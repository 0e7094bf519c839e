"""Counts and sums by key in windows of event time, published when a window is complete.

The event's time and amount are fields of the JSON value. A window is complete when the latest event
seen is LATE past its end; events that come later still are left out, as in every stream with a
watermark. Values that do not fit go to the side topic with the reason.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, struct, sum, to_json, window  # noqa: A004

from hocket.pipelines import broker, json_values

TOPIC = "@TOPIC@"
TO = "@TO@"
SCHEMA = "time timestamp not null, amount double"
WINDOW = "1 minute"
LATE = "10 seconds"


def messages() -> DataFrame:
    spark = SparkSession.active()
    return (
        spark.readStream.format("hocket")
        .options(**broker(), subscribe=TOPIC, startingOffsets="earliest")
        .load()
    )


values = json_values(messages, schema=SCHEMA, misfits=f"{TOPIC}.misfits")

dp.create_sink("result", "hocket", {**broker(), "topic": TO})


@dp.append_flow(target="result")
def aggregated() -> DataFrame:
    events = values.fitting().select("key", "json.*").withWatermark("time", LATE)
    each = events.groupBy(window("time", WINDOW), "key").agg(
        count("*").alias("count"), sum("amount").alias("sum")
    )
    result = struct(
        col("window.start").alias("from"), col("window.end").alias("until"), "count", "sum"
    )
    return each.select("key", to_json(result).alias("value"))
