"""A client that sends what it likes: batches whose checksum is right and whose content is not."""

from __future__ import annotations

import time
from typing import Any

import hocket
from hocket import frames
from hocket.client.faces.blocking.client import Client
from hocket.errors import HocketError, NotHere
from tests.support.threads import until
from tests.support.wire.batches import with_false_raw_length

NOW_US = time.time_ns() // 1000  # else retention would remove the batch at once


def forge(client: Client, topic: str, entry: bytes, partition: int = 0) -> Any:
    """Publish this very entry; the answer, which may be an error."""
    answers: list[frames.Frame | HocketError] = []
    engine: Any = client._engine
    frame = frames.Publish(0, topic, partition)
    engine.do(lambda: engine.session.request(frame, answers.append, payload=[entry]))
    until(lambda: answers, what="it is answered")
    (answer,) = answers
    if isinstance(answer, NotHere):
        with hocket.connect(f"hocket://{answer.address}") as there:
            return forge(there, topic, entry, partition)
    return answer


def unopenable(count: int = 2) -> bytes:
    """A batch that the broker takes, since it is too large to be looked at, and nobody can open."""
    values = [b"%d " % number * 3_000 for number in range(count)]
    return with_false_raw_length(values, timestamps=NOW_US)
