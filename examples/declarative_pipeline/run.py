"""Publishes some orders, runs the pipeline, and checks what came out. Run it again: it goes on.

    python run.py                                  # with a broker of its own
    python run.py --servers hocket://host:4150     # with yours

Everything it keeps (the broker's data, tables, checkpoints) is in the directory `work`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyspark

import hocket
from hocket.spark import java
from hocket.spark.session import LOCAL_CHECKPOINTS, prepare_environment

HERE = Path(__file__).resolve().parent
READY_SECONDS = 30
TABLES = "spark-warehouse"  # where Spark puts them, in the directory that it is started in


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--servers", help="a running broker; without it one is started")
    options.add_argument("--work", type=Path, default=HERE / "work", help="where data is kept")
    options.add_argument("--orders", type=int, default=1000, help="how many are published first")
    given = options.parse_args()
    if problem := java.problem():
        raise SystemExit(problem)
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if given.servers:
        go(given.servers, work, given.orders)
    else:
        with broker_of_its_own(work / "broker") as servers:
            go(servers, work, given.orders)


def go(servers: str, work: Path, new: int) -> None:
    with hocket.connect(servers) as client:
        client.create_topic("orders", partitions=2, exist_ok=True)
        client.create_topic("large-orders", exist_ok=True)
        known = count(client, "orders")
        with client.producer("orders") as producer:
            for number in range(known, known + new):
                producer.send(order(number), key=b"customer-%d" % (number % 10))
        print(f"topic orders: {known + new:,} messages, {new:,} of them new", flush=True)

        rows_before, large_before = rows(work, "orders"), count(client, "large-orders")
        run_pipeline(servers, work)
        rows_after, large_after = rows(work, "orders"), count(client, "large-orders")

    print(f"table orders: {rows_after:,} rows, {rows_after - rows_before:,} of them new")
    print(f"view revenue: {rows(work, 'revenue'):,} customers, {revenue(work):,} in all")
    print(
        f"topic large-orders: {large_after:,} messages, {large_after - large_before:,} of them new"
    )
    everything = range(known + new)
    expected = (known + new, large(everything), sum(amount(number) for number in everything))
    found = (rows_after, large_after, revenue(work))
    if found != expected:
        raise SystemExit(f"not what was published: expected {expected}, found {found}")


def amount(number: int) -> int:
    return number * 7 % 100


def order(number: int) -> bytes:
    fields = {"number": number, "customer": f"customer-{number % 10}", "amount": amount(number)}
    return json.dumps(fields).encode()


def large(numbers: range) -> int:
    return sum(amount(number) >= 90 for number in numbers)


def count(client: hocket.Client, topic: str) -> int:
    return sum(partition.end for partition in client.describe(topic).partitions)


def run_pipeline(servers: str, work: Path) -> None:
    project = work / "project"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(HERE / "transformations", project / "transformations")
    lines = (HERE / "spark-pipeline.yml").read_text().splitlines()
    storage = (work / "storage").as_uri()
    spec = [f"storage: {storage}" if line.startswith("storage:") else line for line in lines]
    (project / "spark-pipeline.yml").write_text("\n".join(spec) + "\n")

    prepare_environment()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointFileManagerClass": LOCAL_CHECKPOINTS,
        # A catalogue that outlives the session: with Spark's default one a second run finds the
        # tables' files and does not know the tables.
        "spark.sql.catalogImplementation": "hive",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run"]
    command += ["--remote", "local[2]"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--spec", str(project / "spark-pipeline.yml")]
    log = work / "spark-pipelines.log"
    print(f"spark-pipelines run (its log: {log})", flush=True)
    with log.open("a") as output:
        code = subprocess.call(
            command,
            cwd=work,
            env={**os.environ, "HOCKET_SERVERS": servers},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if code:
        raise SystemExit(f"spark-pipelines failed with {code}; its last words are in {log}")


def rows(work: Path, table: str) -> int:
    files = work / TABLES / table
    return int(ds.dataset(files, format="parquet").count_rows()) if files.exists() else 0


def revenue(work: Path) -> int:
    table = ds.dataset(work / TABLES / "revenue", format="parquet").to_table()
    return sum(table["amount"].to_pylist())


@contextmanager
def broker_of_its_own(data: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "hocket.cli", "serve"]
    command += ["--listen", "127.0.0.1:0", "--data", str(data)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            raise SystemExit("the broker did not start")
        try:
            yield ready.split()[-1]
        finally:
            process.terminate()
            process.wait(READY_SECONDS)


if __name__ == "__main__":
    main()
