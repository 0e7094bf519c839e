"""One topic to several: each record goes to every topic whose predicate is true of it, once.

Predicates are SQL over the fields of the JSON value (as `json.amount`), and over key, value,
timestamp and headers. All topics get their records of a batch together, or none does. Values that
do not fit the schema go to the side topic with the reason.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, array_compact, explode, expr, lit, when

from hocket.pipelines import broker, json_values

TOPIC = "@TOPIC@"
SCHEMA = "amount double"
ROUTES = {
    "@TO@.large": "json.amount >= 100",
    "@TO@.small": "json.amount < 100",
}


def messages() -> DataFrame:
    spark = SparkSession.active()
    return (
        spark.readStream.format("hocket")
        .options(**broker(), subscribe=TOPIC, startingOffsets="earliest")
        .load()
    )


values = json_values(messages, schema=SCHEMA, misfits=f"{TOPIC}.misfits")

dp.create_sink("routes", "hocket", broker())


@dp.append_flow(target="routes")
def routed() -> DataFrame:
    chosen = array(*(when(expr(test), lit(topic)) for topic, test in ROUTES.items()))
    each = values.fitting().withColumn("topic", explode(array_compact(chosen)))
    return each.select("topic", "key", "value")
