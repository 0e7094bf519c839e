"""A client of Spark Connect that reads a topic as a batch and as a stream, and writes both.

Arguments: the broker, the topic to read, the topic to write, a directory for the checkpoint.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from hocket.spark.session import prepare_environment, settings


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    prepare_environment()
    builder = SparkSession.builder
    for key, value in settings("local[2]").items():
        if key.startswith("spark.sql."):  # others cannot be set by a client
            builder = builder.config(key, value)
    spark = builder.remote("local[2]").getOrCreate()

    batch = spark.read.format("hocket").options(servers=servers, subscribe=source).load()
    found = {
        "connect": "connect" in type(spark).__module__,
        "count": batch.count(),
        "keys": sorted(bytes(row.key).decode() for row in batch.select("key").distinct().collect()),
    }
    batch.select("key", "value").write.format("hocket").options(servers=servers, topic=target).mode(
        "append"
    ).save()

    stream = spark.readStream.format("hocket").options(
        servers=servers, subscribe=source, startingOffsets="earliest"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("hocket")
        .options(servers=servers, topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
