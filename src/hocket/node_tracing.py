"""The plug-in behind `hocket serve --tracing`: spans of what a node does with traced messages.

Messages say in their headers which trace they belong to (`hocket.tracing`). A batch whose records
have no headers costs a look at its flags. Of others, the headers of the first LOOK_MAX records are
read, and if one of these belongs to a trace that is recorded, the batch gets its spans:

    append      from its arrival at the leader to its acknowledgement: durable, and at a majority
    replicate   from its sending to another node until it is durable there, one for each node
    deliver     it was handed to the connection of a consumer

A span is a child of the first such message's, and has links to those of the others.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from time import time_ns
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hocket import tracing
from hocket.core.origin import Origin
from hocket.errors import CorruptData
from hocket.model import EntryKind, is_own_topic
from hocket.plugins import Delivery, hook
from hocket.plugins.doors import Surroundings
from hocket.wire.batch import Batch, BatchInfo, iterate_entries, parse
from hocket.wire.columns import FLAG_HEADERS

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext

    from hocket.node.broker import Broker

log = logging.getLogger("hocket.tracing")
LOOK_MAX = 32  # records of a batch
WAITING_MAX = 20_000  # batches that are not answered yet; of more, the oldest are forgotten
P = ParamSpec("P")
R = TypeVar("R")
_Key = tuple[int, int, int, int, int]  # connection, handle, request, partition, sequence


class Tracing:
    api = 1
    policy = "closed"  # who asks for traces, and cannot have them, is told at once

    @hook
    def open_door(self, around: Surroundings) -> None:
        if not tracing.is_recorded():
            log.warning(
                "--tracing is on, and nothing in this process records spans: set up an SDK of "
                "OpenTelemetry, as by `opentelemetry-instrument hocket serve --tracing`"
            )
        broker = around.broker
        broker.node.wiring.hooks.tracer = Appending()
        if broker.member is not None:
            broker.member.on_sent(Replicating(broker).sent)

    @hook
    def on_deliver(self, delivery: Delivery) -> None:
        if is_own_topic(delivery.topic):
            return
        for piece in delivery.payload:
            for position, header in iterate_entries(piece):
                if not header.flags & FLAG_HEADERS:
                    continue
                batch = parse(piece, position, header=header, verify=False)
                first = max(0, delivery.start - header.base_offset)
                last = min(header.count, delivery.end - header.base_offset)
                contexts = contexts_of(batch, first, last)
                if not contexts:
                    continue
                attributes = tracing.attributes_of(delivery.topic, "deliver")
                attributes["messaging.destination.partition.id"] = str(delivery.partition)
                attributes["messaging.hocket.offset"] = header.base_offset + first
                attributes["messaging.batch.message_count"] = last - first
                if delivery.index:
                    attributes["messaging.consumer.group.name"] = delivery.index
                parent, links = _family(contexts)
                tracing.TRACER.start_span(
                    f"deliver {delivery.topic}", parent, attributes=attributes, links=links
                ).end()


def contexts_of(batch: Batch, first: int, last: int) -> list[SpanContext]:
    """Those of recorded traces, of the first few of these records."""
    try:
        headers = batch.headers(first, min(last, first + LOOK_MAX))
    except CorruptData:  # whoever consumes it will hear of it
        return []
    return [each for each in tracing.contexts_in(headers) if each.trace_flags.sampled]


def _family(contexts: list[SpanContext]) -> tuple[tracing.Context, list[Link]]:
    """The parent, and links to the others."""
    first, *others = tracing.linked(contexts)
    return tracing.parent_in(first.context), others


def _harmless(watch: Callable[P, R]) -> Callable[P, R | None]:
    """A batch is stored and sent on, whatever goes wrong with its spans."""

    @wraps(watch)
    def watching(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return watch(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - of an SDK and exporters that are not ours
            log.warning("a span is missing: %r", error)
            return None

    return watching


class Appending:
    """See `node.running.hooks.Tracer`."""

    def __init__(self) -> None:
        self._spans: OrderedDict[_Key, Span] = OrderedDict()

    @_harmless
    def arrived(
        self, origin: Origin, topic: str, partition: int, payload: memoryview, info: BatchInfo
    ) -> None:
        batch = parse(payload, info.position, verify=False)
        contexts = contexts_of(batch, 0, batch.count)
        if not contexts:
            return
        attributes = tracing.attributes_of(topic, "append")
        attributes["messaging.destination.partition.id"] = str(partition)
        attributes["messaging.batch.message_count"] = batch.count
        parent, links = _family(contexts)
        span = tracing.TRACER.start_span(
            f"append {topic}", parent, tracing.SpanKind.SERVER, attributes, links
        )
        self._spans[(*origin, partition, info.sequence)] = span
        if len(self._spans) > WAITING_MAX:
            self._spans.popitem(last=False)

    @_harmless
    def acked(self, origin: Origin, partition: int, sequence: int, offsets: list[int]) -> None:
        """`sequence` is that of the last batch."""
        if not self._spans:
            return
        for each, offset in enumerate(offsets, sequence - len(offsets) + 1):
            span = self._spans.pop((*origin, partition, each), None)
            if span is not None:
                span.set_attribute("messaging.hocket.offset", offset)
                span.end()

    @_harmless
    def refused(self, origin: Origin, partition: int, sequence: int, code: str) -> None:
        span = self._spans.pop((*origin, partition, sequence), None)
        if span is not None:
            span.set_attribute("error.type", code)
            span.set_status(tracing.StatusCode.ERROR)
            span.end()


class Replicating:
    """See `node.running.hooks.OnSent`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @_harmless
    def sent(self, group: int, peer: str, entries: bytes | memoryview) -> Callable[[], None] | None:
        hosted = self._broker.node.wiring.partitions.get(group)
        if hosted is None or is_own_topic(hosted.core.topic):
            return None
        topic, spans, began = hosted.core.topic, [], time_ns()
        for position, header in iterate_entries(entries):
            if not header.flags & FLAG_HEADERS or header.kind != EntryKind.BATCH:
                continue
            batch = parse(entries, position, header=header, verify=False)
            contexts = contexts_of(batch, 0, batch.count)
            if contexts:
                attributes = tracing.attributes_of(topic, "replicate")
                attributes["messaging.destination.partition.id"] = str(hosted.core.number)
                attributes["messaging.hocket.offset"] = header.base_offset
                attributes["messaging.batch.message_count"] = header.count
                attributes["messaging.hocket.node"] = peer
                parent, links = _family(contexts)
                spans.append(
                    tracing.TRACER.start_span(
                        f"replicate {topic}", parent, attributes=attributes, links=links,
                        start_time=began,
                    )
                )  # fmt: skip
        if not spans:
            return None

        @_harmless
        def durable() -> None:
            for span in spans:
                span.end()

        return durable
