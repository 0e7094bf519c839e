"""A job of Spark's Kafka connector moves to Hocket by two changed lines."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hocket
from tests.support.processes.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BEFORE = (ROOT / "examples" / "from_kafka" / "kafka_job.py").read_text()
AFTER = (ROOT / "examples" / "from_kafka" / "hocket_job.py").read_text()


@pytest.mark.parametrize("document", ["README.md", "docs/guide/spark.md"])
def test_two_lines_differ_and_are_shown(document: str) -> None:
    changed = [
        line
        for line in difflib.unified_diff(BEFORE.splitlines(), AFTER.splitlines(), n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    assert [line[0] for line in changed] == ["-", "-", "+", "+"]
    shown = re.search(r"```diff\n(.*?)\n```", (ROOT / document).read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].splitlines() == changed


def test_the_moved_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as broker, hocket.connect(broker.address) as client:
        client.create_topic("orders", partitions=2)
        client.create_topic("large-orders")
        with client.producer("orders") as producer:
            for number in range(300):
                customer = f"customer-{number % 10}"
                value = json.dumps({"customer": customer, "amount": number % 100})
                headers = {"number": b"%d" % number}
                producer.send(value.encode(), key=customer.encode(), headers=headers)

        run(broker, tmp_path)
        run(broker, tmp_path)  # from its checkpoint: nothing is left to do

        expected = [number for number in range(300) if number % 100 >= 90]
        assert client.describe("large-orders").partitions[0].end == len(expected)
        with client.subscribe("large-orders") as published:
            found = [published.receive(timeout=10) for _ in expected]
    assert sorted(int(message.headers["number"] or 0) for message in found) == expected
    assert {json.loads(message.value)["amount"] for message in found} == set(range(90, 100))


def run(broker: ServerProcess, scratch: Path) -> None:
    """The job as it stands, but for the broker's address and the checkpoint's directory."""
    job = AFTER.replace("hocket-1:4150,hocket-2:4150", broker.address)
    job = job.replace("checkpoints/large-orders", str(scratch / "checkpoint"))
    assert job.count(broker.address) == job.count(str(scratch)) == 1
    exec(compile(job, "hocket_job.py", "exec"), {})
