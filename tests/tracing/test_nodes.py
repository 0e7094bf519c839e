"""Spans of served nodes, whose SDK is set up before them, as `opentelemetry-instrument` does it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

import hocket
from hocket.tracing import carried
from tests.support.cli import HOCKET, Serving, environment, serving
from tests.support.threads import LONG, PATIENCE

SDK = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

if os.environ.get("SPANS"):
    out = open(os.environ["SPANS"], "a", buffering=1)
    line = lambda span: span.to_json(indent=None) + "\\n"
    exporter = ConsoleSpanExporter(out=out, formatter=line)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
"""


class Recorded:
    """Nodes that record, and what they have recorded."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        (path / "sitecustomize.py").write_text(SDK)

    def serve(self, name: str, *args: str) -> Serving:
        (self._path / f"{name}.spans").touch()
        return self._stack.enter_context(
            serving(
                self._path / name, "--tracing", "--name", name, *args,
                PYTHONPATH=str(self._path), SPANS=str(self._path / f"{name}.spans"),
            )
        )  # fmt: skip

    def spans(self) -> Iterator[dict[str, Any]]:
        for file in self._path.glob("*.spans"):
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    yield json.loads(line)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.spans() if each["name"] == name]

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not is_there():
            assert time.monotonic() < until, list(self.spans())
            time.sleep(0.02)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with ExitStack() as stack:
        yield Recorded(tmp_path, stack)


def hexed(number: int) -> str:
    return f"0x{number:016x}"


def test_a_node_records_what_it_does_with_traced_messages(
    recorded: Recorded, spans: InMemorySpanExporter
):
    broker = recorded.serve("n")
    with hocket.connect(broker.url, tracing=True) as client:
        client.create_topic("t")
        client.publish("t", b"0")
        with client.producer("t", linger=10.0) as producer:
            for number in range(40):
                producer.send(b"%d" % number)
        with client.subscribe("t", index="i", start="earliest") as subscription:
            for _ in range(41):
                subscription.receive(10)
        recorded.wait_for(lambda: len(recorded.named("deliver t")) == 2)
    published, *sent = [
        each for each in spans.get_finished_spans() if each.name in ("publish t", "send t")
    ]
    single, many = recorded.named("append t")
    assert single["parent_id"] == hexed(published.context.span_id)
    assert single["attributes"]["messaging.hocket.offset"] == 0
    assert single["kind"] == "SpanKind.SERVER"
    assert many["parent_id"] == hexed(sent[0].context.span_id)
    assert many["attributes"]["messaging.batch.message_count"] == 40
    links = [each["context"]["span_id"] for each in many["links"]]
    assert links == [hexed(each.context.span_id) for each in sent[1:32]]  # the first few
    for each in recorded.named("deliver t"):
        assert each["attributes"]["messaging.consumer.group.name"] == "i"


def test_what_is_not_recorded_or_is_nonsense_has_no_span(
    recorded: Recorded, spans: InMemorySpanExporter
):
    broker = recorded.serve("n")
    with hocket.connect(broker.url) as client:
        client.create_topic("t")
        unsampled = SpanContext(1, 2, True, TraceFlags(0))
        for headers in (
            None,
            {"x": b"1"},
            {"traceparent": b"\xff" * 55, "tracestate": b"=" * 100_000},
            {"traceparent": None},
            carried(unsampled),
            [*carried(SpanContext(3, 4, True, TraceFlags(1))), ("traceparent", b"the last counts")],
        ):
            client.publish("t", b"a", headers=headers)
        client.publish("t", b"a", headers=carried(SpanContext(5, 6, True, TraceFlags(1))))
        recorded.wait_for(lambda: bool(recorded.named("append t")))
        (only,) = recorded.named("append t")
        assert only["parent_id"] == hexed(6)
        assert only["attributes"]["messaging.hocket.offset"] == 6


def test_a_node_without_an_sdk_says_that_nothing_is_recorded(tmp_path: Path):
    log = tmp_path / "log"
    with (
        log.open("wb") as to,
        serving(tmp_path / "data", "--tracing", log=to) as broker,
        hocket.connect(broker.url) as client,
    ):
        client.create_topic("t")
        client.publish("t", b"a", headers=carried(SpanContext(5, 6, True, TraceFlags(1))))
    assert "nothing in this process records spans" in log.read_text()


def test_a_node_without_opentelemetry_says_what_is_missing(tmp_path: Path):
    (tmp_path / "opentelemetry.py").write_text("raise ImportError(name='opentelemetry')")
    outcome = subprocess.run(
        [*HOCKET, "serve", "--tracing", "--data", str(tmp_path / "data")],
        env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert outcome.returncode == 1
    assert outcome.stderr == (
        "hocket: tracing needs opentelemetry-api: pip install 'hocket[tracing]'\n"
    )


@pytest.mark.skipif(not LONG, reason="three processes: in the long slice")
def test_a_cluster_records_each_replica(recorded: Recorded, spans: InMemorySpanExporter):
    first = recorded.serve("a", "--replication", "3")
    for name in ("b", "c"):
        recorded.serve(name, "--join", first.url.removeprefix("hocket://"))
    with hocket.connect(first.url, tracing=True) as client:
        client.create_topic("t", replication=3)
        client.publish("t", b"0")
    (published,) = [each for each in spans.get_finished_spans() if each.name == "publish t"]
    recorded.wait_for(lambda: len(recorded.named("replicate t")) == 2)
    (append,) = recorded.named("append t")
    replicated = recorded.named("replicate t")
    assert len({each["attributes"]["messaging.hocket.node"] for each in replicated}) == 2
    for each in (append, *replicated):
        assert each["parent_id"] == hexed(published.context.span_id)
        assert each["start_time"] <= each["end_time"]
