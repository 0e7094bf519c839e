"""A lake that `archive` made goes back to a topic, each record once, in the order of each key.

FROM and UNTIL bound the times of the records, as in "2026-11-16T08:00:00Z"; empty: no bound.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json

from hocket.pipelines import broker

LAKE = "@LAKE@"
TOPIC = "@TOPIC@"  # as the lake has it
TO = "@TO@"
FROM = ""
UNTIL = ""

dp.create_sink("result", "hocket", {**broker(), "topic": TO, "includeHeaders": "true"})


@dp.append_flow(target="result")
def replayed() -> DataFrame:
    spark = SparkSession.active()
    records = (
        spark.readStream.format("hocket")
        .options(archive=LAKE, subscribe=TOPIC, startingOffsets="earliest", includeHeaders="true")
        .load()
    )
    if FROM:
        records = records.where(f"timestamp >= timestamp'{FROM}'")
    if UNTIL:
        records = records.where(f"timestamp < timestamp'{UNTIL}'")
    # As text, headers pass through Spark faster; the topic has them as they were.
    return records.select("key", "value", to_json("headers").alias("headers"))
