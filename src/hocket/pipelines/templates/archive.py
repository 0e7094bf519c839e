"""A topic becomes a lake of Parquet files, by date, each record once; small files are merged.

The lake has the columns key, value, topic, partition, offset, timestamp and headers, in folders
date=YYYY-MM-DD (of the timestamp, UTC). Retention of the topic waits for the lake.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json

from hocket.pipelines import broker

TOPIC = "@TOPIC@"
LAKE = "@LAKE@"

dp.create_sink("lake", "hocket", {"archive": LAKE})


@dp.append_flow(target="lake")
def archived() -> DataFrame:
    spark = SparkSession.active()
    messages = spark.readStream.format("hocket").options(
        **broker(),
        subscribe=TOPIC,
        startingOffsets="earliest",
        includeHeaders="true",
        holdRetention="true",  # the broker keeps what is not in the lake yet
    )
    # As text, headers pass through Spark faster; the lake has them as they were.
    return messages.load().withColumn("headers", to_json("headers"))
