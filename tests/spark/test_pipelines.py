"""Spark Declarative Pipelines with Hocket as source and as sink: the example, run twice.

Two runs take a minute or two and a JVM each, so they are part of `make test-spark-long`. By default
it is only checked that the example declares what it says, which needs no Java.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.spark import java
from tests.support.threads import LONG

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
RUN_SECONDS = 240


class Declared:
    """A registry that only takes notes."""

    def __init__(self) -> None:
        self.outputs: dict[str, Any] = {}
        self.flows: dict[str, str] = {}

    def register_output(self, output: Any) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Any) -> None:
        self.flows[flow.name] = flow.target

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError("not used")


def test_the_example_declares_a_table_and_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    registering = pytest.importorskip("pyspark.pipelines.graph_element_registry")
    monkeypatch.setenv("HOCKET_SERVERS", "hocket://127.0.0.1:1")
    spec = importlib.util.spec_from_file_location(
        "orders", EXAMPLE / "transformations" / "orders.py"
    )
    assert spec is not None
    assert spec.loader is not None
    declared = Declared()
    with registering.graph_element_registration_context(declared):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert declared.flows == {"orders": "orders", "publish_large_orders": "large_orders"}
    sink = declared.outputs["large_orders"]
    assert (sink.format, sink.options["topic"]) == ("hocket", "large-orders")


def test_the_spec_names_what_is_there_and_sets_nothing_that_is_static() -> None:
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load((EXAMPLE / "spark-pipeline.yml").read_text())
    assert "configuration" not in spec
    folder = spec["libraries"][0]["glob"]["include"].removesuffix("/**")
    assert sorted(path.name for path in (EXAMPLE / folder).iterdir() if path.is_file()) == [
        "orders.py",
        "revenue.sql",
    ]


@pytest.mark.skipif(not LONG, reason="two runs of a minute or two each: make test-spark-long")
@pytest.mark.timeout(2 * RUN_SECONDS + 60)
def test_the_second_run_of_the_example_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    if problem := java.problem():
        pytest.skip(problem)
    assert run(tmp_path, orders=1000) == [
        "topic orders: 1,000 messages, 1,000 of them new",
        "table orders: 1,000 rows, 1,000 of them new",
        "view revenue: 10 customers, 49,500 in all",
        "topic large-orders: 100 messages, 100 of them new",
    ]
    assert run(tmp_path, orders=500) == [
        "topic orders: 1,500 messages, 500 of them new",
        "table orders: 1,500 rows, 500 of them new",
        "view revenue: 10 customers, 74,250 in all",
        "topic large-orders: 150 messages, 50 of them new",
    ]


def run(work: Path, *, orders: int) -> list[str]:
    command = [sys.executable, str(EXAMPLE / "run.py"), "--work", str(work)]
    done = subprocess.run(
        [*command, "--orders", str(orders)],
        env={name: os.environ[name] for name in os.environ if not name.startswith("PYTEST")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    log = work / "spark-pipelines.log"
    words = log.read_text()[-3000:] if log.exists() else ""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{words}"
    return [line for line in done.stdout.splitlines() if not line.startswith("spark-pipelines")]
