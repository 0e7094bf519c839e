"""Every value of one topic arrives in another, once. Change `passed_on` to make it your own."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from hocket.pipelines import broker

TOPIC = "@TOPIC@"
TO = "@TO@"

dp.create_sink("result", "hocket", {**broker(), "topic": TO})


@dp.append_flow(target="result")
def passed_on() -> DataFrame:
    spark = SparkSession.active()
    messages = spark.readStream.format("hocket").options(
        **broker(), subscribe=TOPIC, startingOffsets="earliest"
    )
    return messages.load().select("key", "value")
