"""A topic becomes a streaming table, and the large orders of that table go to another topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

SERVERS = os.environ["HOCKET_SERVERS"]
ORDER = "number long, customer string, amount long"


@dp.table
def orders() -> DataFrame:
    """Every message of the topic `orders`, once: each run goes on where the last one ended."""
    messages = (
        SparkSession.active()
        .readStream.format("hocket")
        .option("servers", SERVERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("columns", "value,timestamp")
        .load()
    )
    order = from_json(col("value").cast("string"), ORDER)
    return messages.select(order.alias("order"), "timestamp").select("order.*", "timestamp")


dp.create_sink("large_orders", "hocket", {"servers": SERVERS, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def publish_large_orders() -> DataFrame:
    """Each large order is published once, whatever fails and is tried again."""
    large = SparkSession.active().readStream.table("orders").where("amount >= 90")
    return large.select(
        col("customer").alias("key"), to_json(struct("number", "amount")).alias("value")
    )
