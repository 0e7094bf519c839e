"""Spans of producers and consumers, and the context that messages carry between them."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import hocket
import hocket.aio
from hocket.errors import UnknownTopic, WrongType
from hocket.tracing import context_of, processing

TRACER = trace.get_tracer("tests")


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in spans.get_finished_spans() if each.name == name]


def ids(headers: dict[str, bytes | None]) -> tuple[int, int]:
    _, trace_id, span_id, _ = (headers["traceparent"] or b"").split(b"-")
    return int(trace_id, 16), int(span_id, 16)


def test_whatever_is_sent_has_a_span_and_carries_its_context(spans: InMemorySpanExporter):
    with hocket.embedded(tracing=True) as client:
        client.create_topic("t")
        with TRACER.start_as_current_span("request") as request:
            client.publish("t", b"0", headers={"x": b"1"})
            with client.producer("t") as producer:
                producer.send(b"1", b"key")
                producer.send_future(b"2").result(10)
                producer.send_many(iter([b"3", b"4"]))
                producer.send_arrow(pa.RecordBatch.from_pydict({"value": [b"5", b"6"]}))
            with client.producer("t", value=int) as typed:
                typed.send(7)
            with client.transaction("tx") as transaction:
                transaction.send("t", b"8")
        with client.subscribe("t", start="earliest") as subscription:
            messages = [subscription.receive(10) for _ in range(9)]
    assert [each.value for each in messages] == [b"%d" % number for number in range(9)]
    assert messages[0].headers["x"] == b"1"
    sent = [*named(spans, "publish t"), *named(spans, "send t")]
    known = {(each.context.trace_id, each.context.span_id): each for each in sent}
    assert [ids(each.headers) in known for each in messages] == [True] * 9
    assert len(known) == 7  # two calls had two messages each
    root = request.get_span_context()
    for each in sent:
        assert each.kind is SpanKind.PRODUCER
        assert each.parent is not None
        assert each.parent.span_id == root.span_id
        assert each.attributes["messaging.operation.type"] == "send"
    published = known[ids(messages[0].headers)]
    assert dict(published.attributes) == {
        "messaging.system": "hocket",
        "messaging.destination.name": "t",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.partition.id": "0",
        "messaging.hocket.offset": 0,
    }
    assert known[ids(messages[2].headers)].attributes["messaging.hocket.offset"] == 2
    assert known[ids(messages[3].headers)].attributes["messaging.batch.message_count"] == 2


def test_a_trace_goes_on_where_a_message_is_worked_on(spans: InMemorySpanExporter):
    with hocket.embedded(tracing=True) as client:
        client.create_topic("t")
        for value in (b"a", b"b"):
            client.publish("t", value)
        with client.subscribe("t", start="earliest") as subscription:
            first, second = subscription.receive(10), subscription.receive(10)
        with processing(first) as span, TRACER.start_as_current_span("within"):
            pass
        with TRACER.start_as_current_span("around"), processing(first, name="check"):
            pass
        with processing([first, second], name="sum"):
            pass
    sent = {each.context.span_id: each for each in named(spans, "publish t")}
    (processed,), (within,) = named(spans, "process t"), named(spans, "within")
    assert processed.kind is SpanKind.CONSUMER
    assert processed.parent.span_id == ids(first.headers)[1]
    assert within.parent.span_id == span.get_span_context().span_id
    assert [each.context.span_id for each in processed.links] == [ids(first.headers)[1]]
    (checked,), (around,) = named(spans, "check t"), named(spans, "around")
    assert checked.parent.span_id == around.context.span_id
    assert len(checked.links) == 1
    (summed,) = named(spans, "sum t")
    assert summed.parent is None
    assert {each.context.span_id for each in summed.links} == set(sent)
    assert summed.attributes["messaging.batch.message_count"] == 2
    found = trace.get_current_span(context_of(second)).get_span_context()
    assert (found.trace_id, found.span_id) == ids(second.headers)


def test_a_batch_is_worked_on_in_one_span(spans: InMemorySpanExporter):
    with hocket.embedded(tracing=True) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            producer.send_many([b"a", b"b"])
        with client.subscribe("t", start="earliest") as subscription:
            batch = subscription.receive_batch(10)
        with processing(batch):
            pass
    (sent,), (processed,) = named(spans, "send t"), named(spans, "process t")
    assert processed.parent.span_id == sent.context.span_id
    assert processed.attributes["messaging.batch.message_count"] == 2


def test_what_carries_no_context_begins_a_trace(spans: InMemorySpanExporter):
    with hocket.embedded() as client:
        client.create_topic("t")
        client.publish("t", b"a", headers={"traceparent": b"nonsense"})
        with client.subscribe("t", start="earliest") as subscription:
            message = subscription.receive(10)
        with processing(message):
            pass
        with pytest.raises(ValueError), processing(message, name="fail"):
            raise ValueError
    (processed,), (failed,) = named(spans, "process t"), named(spans, "fail t")
    assert processed.parent is None
    assert not processed.links
    assert failed.status.status_code is StatusCode.ERROR


def test_what_fails_is_seen_and_says_the_same_as_without(spans: InMemorySpanExporter):
    with hocket.embedded(tracing=True) as client:
        client.create_topic("t")
        with pytest.raises(UnknownTopic):
            client.publish("missing", b"a")
        with client.producer("t") as producer:
            for call in (
                lambda: producer.send("text"),  # type: ignore[arg-type]
                lambda: producer.send(b"", headers=3),  # type: ignore[arg-type]
                lambda: producer.send_many(3),  # type: ignore[arg-type]
                lambda: producer.send_many([b""], headers="no"),  # type: ignore[arg-type]
                lambda: producer.send_arrow([b""]),  # type: ignore[arg-type]
            ):
                with pytest.raises(WrongType):
                    call()
    (missing,) = named(spans, "publish missing")
    assert missing.status.status_code is StatusCode.ERROR
    assert missing.attributes["error.type"] == "UnknownTopic"
    assert {each.attributes["error.type"] for each in named(spans, "send t")} == {"WrongType"}


def test_asyncio(spans: InMemorySpanExporter):
    async def story() -> None:
        async with hocket.aio.embedded(tracing=True) as client:
            await client.create_topic("t")
            await client.publish("t", b"0")
            async with client.producer("t") as producer:
                await producer.send(b"1")
                await (await producer.send_future(b"2"))
            async with client.subscribe("t", start="earliest") as subscription:
                for _ in range(3):
                    message = await subscription.receive(10)
                    with processing(message):
                        await asyncio.sleep(0)

    asyncio.run(story())
    sent = {each.context.span_id for each in (*named(spans, "publish t"), *named(spans, "send t"))}
    assert {each.parent.span_id for each in named(spans, "process t")} == sent
    assert len(sent) == 3


def test_without_tracing_nothing_of_it_is_loaded():
    program = (
        "import sys, hocket\n"
        "with hocket.embedded() as client:\n"
        "    client.create_topic('t'); client.publish('t', b'a')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "sys.modules['opentelemetry'] = None\n"
        "try:\n"
        "    hocket.embedded(tracing=True)\n"
        "except ImportError as error:\n"
        "    assert \"pip install 'hocket[tracing]'\" in str(error), error\n"
        "else:\n"
        "    raise AssertionError('it was there')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
