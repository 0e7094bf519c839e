"""What a client makes, for asyncio: plain, or with spans of OpenTelemetry.

Which of them is decided when the client is made, so that a call without tracing has nothing to ask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hocket.client.faces.aio.producer import AsyncProducer, AsyncPublisher
from hocket.client.faces.aio.transaction import AsyncStagingProducer
from hocket.client.faces.aio.typed import AsyncTypedProducer


class AsyncKinds(NamedTuple):
    publisher: type[AsyncPublisher] = AsyncPublisher
    producer: type[AsyncProducer[Any]] = AsyncProducer
    typed: type[AsyncTypedProducer[Any]] = AsyncTypedProducer
    staging: type[AsyncStagingProducer] = AsyncStagingProducer


def kinds(*, tracing: bool) -> AsyncKinds:
    """Raises ImportError if OpenTelemetry is wanted and not installed."""
    if not tracing:
        return AsyncKinds()
    from hocket.client.faces.aio import traced

    return AsyncKinds(
        traced.AsyncTracedPublisher,
        traced.AsyncTracedProducer,
        traced.AsyncTracedTypedProducer,
        traced.AsyncTracedStagingProducer,
    )
