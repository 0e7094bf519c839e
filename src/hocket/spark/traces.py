"""Spans of OpenTelemetry for the micro-batches of a query that has the option `tracing`.

    source   `receive`, in the driver: from the plan of a micro-batch until Spark asks for the next
               `receive TOPIC`, in a task: the records of one span of a partition
    sink     `send`, in a task: its rows, which carry this context unless they have headers
             `publish`, in the driver: the decision on what all tasks have staged

Tasks of the source are children of the micro-batch, and have links to the spans that sent the
records. The decision has links to the tasks. Spark does not tell a sink which micro-batch of which
source its rows are from, so these two are not connected; headers that are passed on are.

Spark's Python processes may be ended without a word, so what was recorded is flushed at each end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from time import time_ns
from typing import TYPE_CHECKING

from hocket import tracing
from hocket.client_core.consuming.message import MessageBatch
from hocket.client_core.producing.arrow_rows import with_headers
from hocket.spark.reading import read

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from opentelemetry.trace import Span as TraceSpan, SpanContext

    from hocket.spark.options import ReadOptions
    from hocket.spark.planning import Span
    from hocket.spark.writing import Layout

Carried = tuple[tuple[str, bytes], ...]


class ReadTrace:
    """The span of the micro-batch that Spark is at, in the driver."""

    def __init__(self) -> None:
        self._span: TraceSpan | None = None

    def begin(self, spans: Sequence[Span]) -> Carried:
        """Its context, for the tasks."""
        self.end()
        topics = sorted({each.topic for each in spans})
        topic = topics[0] if len(topics) == 1 else ""
        attributes = tracing.attributes_of(topic, "receive", "receive")
        attributes["messaging.batch.message_count"] = sum(each.end - each.start for each in spans)
        self._span = tracing.TRACER.start_span(
            f"receive {topic}".rstrip(), tracing.parent_in(None), tracing.SpanKind.CLIENT,
            attributes,
        )  # fmt: skip
        return tuple(tracing.carried(self._span.get_span_context()))

    def end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()
            tracing.flush()


def read_traced(
    span: Span, options: ReadOptions, micro_batch: Carried
) -> Iterator[pyarrow.RecordBatch]:
    """`reading.read`, in a span that has links to those that sent the records."""
    began = time_ns()
    found: dict[tuple[int, int], SpanContext] = {}
    failure: BaseException | None = None

    def watch(batch: MessageBatch) -> None:
        if len(found) < tracing.LINKS_MAX:
            for each in tracing.contexts_in(batch.headers()):
                found.setdefault((each.trace_id, each.span_id), each)

    try:
        yield from read(span, options, watch=watch)
    except Exception as error:
        failure = error
        raise
    finally:
        attributes = tracing.attributes_of(span.topic, "receive", "receive")
        attributes["messaging.destination.partition.id"] = str(span.partition)
        attributes["messaging.hocket.offset"] = span.start
        attributes["messaging.batch.message_count"] = span.end - span.start
        parent = tracing.parent_in(tracing.carried_by(dict(micro_batch)))
        made = tracing.TRACER.start_span(
            f"receive {span.topic}", parent, tracing.SpanKind.CLIENT, attributes,
            tracing.linked(found.values()), began,
        )  # fmt: skip
        if failure is not None:
            tracing.failed(made, failure)
        made.end()
        tracing.flush()


@contextmanager
def writing(
    topic: str | None, layout: Layout, rows: Iterator[pyarrow.RecordBatch]
) -> Iterator[tuple[Carried, Layout, Iterator[pyarrow.RecordBatch]]]:
    """In a task: the context, and the rows as they are to be written."""
    with tracing.Sending("send", topic or "") as sending:
        carried: Carried = tuple(sending.headers(None) or ())
        first = next(rows, None)
        if first is not None:
            rows = chain([first], rows)
            if carried and layout.headers is None:
                layout = replace(layout, headers=first.num_columns)
                rows = (with_headers(each, carried) for each in rows)
        yield carried, layout, rows
    tracing.flush()


@contextmanager
def committing(topic: str | None, rows: int, tasks: Sequence[Carried]) -> Iterator[None]:
    """In the driver."""
    contexts = tracing.contexts_in(dict(each) for each in tasks)
    with tracing.Sending("publish", topic or "", rows) as sending:
        for each in tracing.linked(contexts):
            sending.span.add_link(each.context)
        yield
    tracing.flush()
