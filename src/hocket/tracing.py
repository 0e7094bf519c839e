"""Traces that go through a broker, with OpenTelemetry.

A message carries the context of the span that sent it in its headers `traceparent` and
`tracestate`, as W3C Trace Context has them. `connect(..., tracing=True)` writes them, and
`processing` goes on with them where the message is worked on:

    with processing(message):
        ...

Nothing else imports this module: a client, a node or a query without tracing knows nothing of
OpenTelemetry. Names of spans and attributes are those of OpenTelemetry's conventions for messaging.
What cannot be read of a header, which may be anybody's, is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hocket.version import __version__

try:
    from opentelemetry import trace
    from opentelemetry.context import Context as Context
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind as SpanKind,
        StatusCode as StatusCode,
        TraceFlags,
        TraceState,
    )
except ImportError as missing:
    raise ImportError(
        "tracing needs opentelemetry-api: pip install 'hocket[tracing]'", name=missing.name
    ) from missing

if TYPE_CHECKING:
    from asyncio import Future as AioFuture
    from concurrent.futures import Future

TRACEPARENT, TRACESTATE = FIELDS = ("traceparent", "tracestate")
LINKS_MAX = 128  # of a span; the SDK keeps no more by default
FLUSH_MS = 2_000
_STATE_CHARS_MAX = 512
_PARENT_CHARS_MAX = 256  # of version 00 it has 55, a later one may have more
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER = (
    r"[a-z0-9][a-z0-9_\-*/]{0,240}(?:@[a-z][a-z0-9_\-*/]{0,13})?"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_STATE = re.compile(rf"[ \t]*{_MEMBER}[ \t]*(?:,[ \t]*{_MEMBER}[ \t]*){{0,31}}")

TRACER = trace.get_tracer("hocket", __version__)


# --- headers --------------------------------------------------------------------------------------


def carried_by(headers: Mapping[str, Any]) -> SpanContext | None:
    """The context in these headers; None: there is none, or none that can be read."""
    found = _PARENT.fullmatch(_text(headers.get(TRACEPARENT), _PARENT_CHARS_MAX))
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    text = _text(headers.get(TRACESTATE), _STATE_CHARS_MAX)
    state = TraceState.from_header([text]) if _STATE.fullmatch(text) else None
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state
    )
    return context if context.is_valid else None


def _text(value: object, chars_max: int) -> str:
    if not isinstance(value, bytes) or len(value) > chars_max:
        return ""
    return value.decode("latin-1")


def carried(context: SpanContext) -> list[tuple[str, bytes]]:
    """The headers of a message that was sent in this context; none if it is no context."""
    if not context.is_valid:
        return []
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    headers = [(TRACEPARENT, parent.encode())]
    if context.trace_state:
        headers.append((TRACESTATE, context.trace_state.to_header().encode()))
    return headers


def parent_in(context: SpanContext | None) -> Context:
    """For `context=` of a span whose parent this is; without one the span is a root."""
    return (
        Context()
        if context is None
        else trace.set_span_in_context(NonRecordingSpan(context), Context())
    )


def linked(contexts: Iterable[SpanContext]) -> list[Link]:
    """A link to each, once."""
    known: dict[tuple[int, int], SpanContext] = {}
    for each in contexts:
        known.setdefault((each.trace_id, each.span_id), each)
        if len(known) == LINKS_MAX:
            break
    return [Link(each) for each in known.values()]


# --- spans ----------------------------------------------------------------------------------------


def attributes_of(topic: str, name: str, kind: str = "", **more: Any) -> dict[str, Any]:
    """What every span says: `name` is what Hocket calls the operation, `kind` the conventions."""
    found = {"messaging.system": "hocket", "messaging.operation.name": name}
    if topic:
        found["messaging.destination.name"] = topic
    if kind:
        found["messaging.operation.type"] = kind
    found.update({each: value for each, value in more.items() if value is not None})
    return found


def failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR, str(error))
    span.record_exception(error)


class Sending:
    """The span of messages that are being sent; `headers` has them carry its context."""

    __slots__ = ("_carried", "_is_kept", "span")

    def __init__(
        self, name: str, topic: str, count: int | None = None, partition: int | None = None
    ) -> None:
        attributes = attributes_of(topic, name, "send")
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        if partition is not None:
            attributes["messaging.destination.partition.id"] = str(partition)
        self.span = TRACER.start_span(
            f"{name} {topic}".rstrip(), kind=SpanKind.PRODUCER, attributes=attributes
        )
        self._carried = carried(self.span.get_span_context())
        self._is_kept = False

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            failed(self.span, error)
        if error is not None or not self._is_kept:
            self.span.end()

    def headers(self, given: Any) -> Any:
        """Those that the caller gave, with this context instead of one that they may have had.

        Whoever sends a message on, headers and all, sends it in the span of now.
        """
        if not self._carried:
            return given
        if given is None:
            return self._carried
        if isinstance(given, Mapping):
            given = list(given.items())
        elif not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
            return given  # which is no headers, as whoever takes them will say
        return [*(each for each in given if not _is_field(each)), *self._carried]

    def many_headers(self, given: Any, count: int) -> Any:
        if not self._carried:
            return given
        if given is None:
            return [self._carried] * count
        if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
            return given
        return [self.headers(each) for each in given]

    def until(self, future: Future[Any] | AioFuture[Any]) -> None:
        """The span ends when the message's position is known, or why there is none."""
        self._is_kept = True
        future.add_done_callback(self._done)

    def stored(self, position: Any) -> None:
        """`position` is a `hocket.model.Position`."""
        self.span.set_attribute("messaging.destination.partition.id", str(position.partition))
        if position.offset >= 0:  # else it is delayed, and has none yet
            self.span.set_attribute("messaging.hocket.offset", position.offset)

    def _done(self, future: Future[Any] | AioFuture[Any]) -> None:
        if not future.cancelled():
            error = future.exception()
            if error is None:
                self.stored(future.result())
            else:
                failed(self.span, error)
        self.span.end()


def counted(values: Any) -> tuple[Any, int]:
    """Values that may be a generator, and how many they are; 0 of what is no values at all."""
    if not hasattr(values, "__len__") and isinstance(values, Iterable):
        values = list(values)
    return values, len(values) if hasattr(values, "__len__") else 0


def _is_field(header: object) -> bool:
    return isinstance(header, tuple | list) and len(header) == 2 and header[0] in FIELDS


# --- for whoever consumes -------------------------------------------------------------------------


def context_of(message: Any) -> Context:
    """The context that a message carries, as `context=` of a span; empty if it carries none."""
    return parent_in(carried_by(_headers(message)))


@contextmanager
def processing(messages: Any, *, name: str = "process") -> Iterator[Span]:
    """The span in which a message, a batch or a list of messages is worked on.

    It has a link to the span that sent each message. In a task or thread that is in no span, it is
    also a child of the span that sent the message, so that the trace goes on; of messages from
    several spans it is nobody's child.
    """
    topics, count, contexts, where = _looked_at(messages)
    links = linked(contexts)
    context = None  # that of now
    if not trace.get_current_span().get_span_context().is_valid:
        context = parent_in(links[0].context if len(links) == 1 else None)
    topic = topics.pop() if len(topics) == 1 else ""
    attributes = attributes_of(topic, name, "process", **where)
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    with TRACER.start_as_current_span(
        f"{name} {topic}".rstrip(), context, SpanKind.CONSUMER, attributes, links
    ) as span:
        yield span


def _looked_at(
    given: Any,
) -> tuple[set[str], int | None, Iterable[SpanContext], dict[str, Any]]:
    """Topics; how many messages, None for one that is alone; contexts; and where they stand."""
    if callable(getattr(given, "messages", None)):  # a MessageBatch
        where = {"messaging.destination.partition.id": str(given.partition)}
        return {given.topic}, len(given), contexts_in(given.headers()), where
    if hasattr(given, "headers"):
        where = {"messaging.destination.partition.id": str(given.partition)}
        where["messaging.hocket.offset"] = given.offset
        return {given.topic}, None, contexts_in([given.headers]), where
    messages = list(given)
    contexts = contexts_in(each.headers for each in messages)
    return {each.topic for each in messages}, len(messages), contexts, {}


def contexts_in(headers: Iterable[Mapping[str, Any]]) -> Iterator[SpanContext]:
    for each in headers:
        if TRACEPARENT in each:
            context = carried_by(each)
            if context is not None:
                yield context


def _headers(message: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = message if isinstance(message, Mapping) else message.headers
    return found


# --- the SDK, which records -----------------------------------------------------------------------


def is_recorded() -> bool:
    """Whether this process has set up something that records spans."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def flush() -> None:
    """Have what was recorded leave a process that may be ended without a word."""
    force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        force_flush(FLUSH_MS)
