"""The command behind `make bench-spark`: one Spark session, reading and writing the same records.

Beside the runner's own flags: --records N (10,000,000 by default), --without-kafka.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pyspark
from tqdm import tqdm

from benchmarks import runner
from benchmarks.broker.ours import serving
from benchmarks.spark import jars, kafka, session
from benchmarks.spark.cases import Cases
from benchmarks.spark.data import PARTITIONS, PARTS, Data
from benchmarks.spark.jars import NoKafka
from benchmarks.spark.sides import Hocket, Kafka, Parquet, PerRecord
from benchmarks.spark.suite import Suite

RECORDS = 10_000_000
RECORDS_QUICK = 40_000
ROUNDS = 3
SUITE = "spark"


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--records", type=int)
    parser.add_argument("--without-kafka", action="store_true")
    chosen, others = parser.parse_known_args()
    quick = runner.parse_arguments(SUITE, others, ROUNDS).quick
    records = chosen.records or (RECORDS_QUICK if quick else RECORDS)
    if records < PARTITIONS * PARTS or records % (PARTITIONS * PARTS):
        parser.error(f"--records has to be a multiple of {PARTITIONS * PARTS}, not {records}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the brokers end with us
    about = {"Spark": f"{pyspark.__version__}, one session, local[2], 2 GiB"}
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        )
        data = Data(scratch / "data", records)
        steps = stack.enter_context(tqdm(total=4, desc="records", unit="step", leave=False))

        def next_step(name: str) -> None:
            steps.update()
            steps.set_description(name)

        data.write()
        next_step("brokers")
        url = stack.enter_context(serving(scratch))
        address = ""
        connector: list[Path] = []
        try:
            if chosen.without_kafka:
                raise NoKafka("not wanted in this run")
            connector, version = jars.connector_jars()
            address = stack.enter_context(kafka.serving(scratch))
            about["peers"] = (
                f"Kafka {jars.BROKER}, one node; Spark's Kafka connector {version}; Parquet"
            )
        except NoKafka as error:
            about["peers"] = f"Parquet; Kafka is not measured: {error}"
        next_step("Spark")
        spark = stack.enter_context(session.opened(connector, scratch))
        ours, rival = Hocket(spark, data, url), None
        next_step("filling topics")
        ours.fill()
        if address:
            rival = Kafka(spark, data, address)
            stack.callback(rival.close)
            rival.fill()
        next_step("ready")
        steps.close()
        suite = Suite(
            Cases(data, scratch), ours, Parquet(spark, data), PerRecord(spark, url), rival,
            quick=quick,
        )  # fmt: skip
        return runner.main(
            SUITE,
            "Spark: topics, files and Kafka",
            suite.contests(),
            others,
            rounds=ROUNDS,
            about=about,
        )


if __name__ == "__main__":
    sys.exit(main())
