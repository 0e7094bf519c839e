"""Large orders of one topic, published to another."""

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

FORMAT = "kafka"
BROKER = {"kafka.bootstrap.servers": "kafka-1:9092,kafka-2:9092"}
CHECKPOINT = "checkpoints/large-orders"

spark = SparkSession.builder.appName("large orders").getOrCreate()

orders = (
    spark.readStream.format(FORMAT)
    .options(**BROKER)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 100_000)
    .option("failOnDataLoss", True)
    .option("includeHeaders", True)
    .load()
)
order = from_json(col("value").cast("string"), "customer string, amount long")
large = orders.where(order["amount"] >= 90).selectExpr("key", "value", "headers")

query = (
    large.writeStream.format(FORMAT)
    .options(**BROKER)
    .option("topic", "large-orders")
    .option("includeHeaders", True)
    .option("checkpointLocation", CHECKPOINT)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
