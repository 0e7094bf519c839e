"""The scene with Spark: a topic, an aggregate over it, and a topic with what came out.

Spark runs in a process of its own, which keeps its JVM, and what that says, out of the demo's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec

import hocket
from hocket.demo.outcome import Outcome, check
from hocket.demo.topics import PATIENCE_SECONDS, serving
from hocket.spark import java

READINGS = 200_000
SENSORS = 100
SPARK_SECONDS = 180  # far more than it takes


def what_is_missing() -> str | None:
    """One line on what to install for this scene, or None."""
    if find_spec("pyspark") is None:
        return "Spark for Python is missing: pip install 'hocket[spark]'"
    return java.problem()


def topic_to_topic(progress: Callable[[float], None]) -> Outcome:
    """Every reading is counted once, in the total of its sensor."""
    missing = what_is_missing()
    if missing is not None:
        return Outcome(0, 0, 0, f"left out. {missing}")
    with (
        tempfile.TemporaryDirectory(prefix="hocket-demo-") as directory,
        serving(directory, "127.0.0.1:0") as (servers, _),
        hocket.connect(servers) as client,
    ):
        client.create_topic("readings", partitions=2)
        client.create_topic("totals")
        with client.producer("readings") as producer:
            for number in range(READINGS):
                producer.send(b"%d" % number, b"sensor %d" % (number % SENSORS))
        progress(0.1)
        run_apart(servers)
        progress(0.9)
        with client.subscribe("totals") as totals:
            received = [totals.receive(timeout=PATIENCE_SECONDS) for _ in range(SENSORS)]
        found = {total.key: int(total.value) for total in received}
        published = client.describe("totals").partitions[0].end
    expected = {
        b"sensor %d" % sensor: sum(range(sensor, READINGS, SENSORS)) for sensor in range(SENSORS)
    }
    check(found == expected and published == SENSORS, "every reading is in one total, once")
    size = sum(len(b"%d" % number) for number in range(READINGS))
    return Outcome(1, READINGS + SENSORS, size, f"{SENSORS} totals, each reading counted once")


def run_apart(servers: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hocket.demo.spark", servers],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SPARK_SECONDS,
        check=False,
    )
    check(done.returncode == 0, f"Spark does its part; it said:\n{done.stderr[-2000:]}")


def add_up(servers: str) -> None:
    from hocket.spark.session import session

    # One short job: a compiler that is quick to begin counts for more than fast code.
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = session("hocket's demo", config=quick)
    messages = spark.read.format("hocket").options(
        servers=servers, subscribe="readings", columns="key,value"
    )
    readings = messages.load().selectExpr("key", "cast(cast(value as string) as long) as reading")
    totals = readings.groupBy("key").sum("reading").toDF("key", "total")
    totals.selectExpr("key", "cast(total as string) as value").write.format("hocket").options(
        servers=servers, topic="totals"
    ).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    add_up(*sys.argv[1:])
