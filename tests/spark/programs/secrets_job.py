"""Reads and writes with a token, and keeps everything that Spark shows of it in files.

Arguments: the broker, the authority's certificate, a file with the token, a topic to read, a topic
to write, a directory.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from hocket.spark.session import session

VISIBLE = "an-option-that-anybody-may-see"  # shows that we look where Spark shows options
PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery")


def main(servers: str, authority: str, token_file: str, source: str, target: str, to: str) -> None:
    scratch = Path(to)
    token = Path(token_file).read_text().strip()
    (scratch / "events").mkdir()
    spark = session(
        "secrets",
        config={
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",  # else nothing would be found in it
            "spark.eventLog.dir": (scratch / "events").as_uri(),
            "spark.log.level": "DEBUG",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    options = {"servers": servers, "tlsCa": authority, "token": token, "visible": VISIBLE}

    def keep(name: str, text: str) -> None:
        (scratch / f"{name}.txt").write_text(text)

    rows = spark.read.format("hocket").options(**options, subscribe=source).load()
    keep("explained", explained(rows))
    rows.select("key", "value").write.format("hocket").options(**options, topic=target).mode(
        "append"
    ).save()
    keep("count", str(rows.count()))
    keep("streamed", stream(spark, options, source, target, scratch))
    keep("view", view(spark, {**options, "subscribe": source}))
    wrong = {**options, "token": token[:-6] + "wrong!"}
    keep("wrong-reading", failure(lambda: read(spark, wrong, source)))
    keep("wrong-writing", failure(lambda: write(spark, wrong, target)))
    for name, text in shown(spark).items():
        keep(f"ui-{name}", text)
    spark.stop()


def explained(rows: DataFrame) -> str:
    plan: Any = rows
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rows.explain(extended=True)
        rows.explain(mode="formatted")
        rows.explain(mode="cost")
        rows.printSchema()
    return said.getvalue() + plan._jdf.queryExecution().toString() + repr(rows)


def stream(
    spark: SparkSession, options: dict[str, str], source: str, target: str, scratch: Path
) -> str:
    rows = spark.readStream.format("hocket").options(
        **options, subscribe=source, startingOffsets="earliest"
    )
    query = (
        rows.load()
        .select("key", "value")
        .writeStream.format("hocket")
        .options(**options, topic=target, checkpointLocation=str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    handle: Any = query
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        query.explain(extended=True)
    return said.getvalue() + json.dumps([str(p) for p in query.recentProgress]) + str(handle.status)


def view(spark: SparkSession, options: dict[str, str]) -> str:
    """Statements are what Spark itself shows options of."""
    pairs = ", ".join(f"{name} '{value}'" for name, value in options.items())
    made: Any = spark.sql(f"CREATE TEMPORARY VIEW orders USING hocket OPTIONS ({pairs})")
    counted: Any = spark.sql("SELECT count(*) FROM orders")
    rows = counted.collect()
    return f"{rows}" + "".join(each._jdf.queryExecution().toString() for each in (made, counted))


def read(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    spark.read.format("hocket").options(**options, subscribe=topic).load().count()


def write(spark: SparkSession, options: dict[str, str], topic: str) -> None:
    rows = spark.range(2).selectExpr("cast(id as string) as value")
    rows.write.format("hocket").options(**options, topic=topic).mode("append").save()


def failure(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except Exception as error:
        return f"{error!r}\n{error}"
    raise AssertionError("a wrong token was accepted")


def shown(spark: SparkSession) -> dict[str, str]:
    """Every page of the UI, and every answer of its REST API, by name."""
    ui = spark.sparkContext.uiWebUrl
    assert ui is not None
    application = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
    found = {page: fetch(f"{ui}/{page}/") for page in PAGES}
    for what in ("jobs", "stages?details=true", "environment", "sql?details=true&length=100"):
        found[f"api-{what.partition('?')[0]}"] = fetch(f"{application}/{what}")
    for execution in json.loads(found["api-sql"]):
        number = execution["id"]
        found[f"execution-{number}"] = fetch(f"{ui}/SQL/execution/?id={number}")
    assert len(found) > len(PAGES) + 4
    return found


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
