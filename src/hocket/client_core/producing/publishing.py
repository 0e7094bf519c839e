"""One-off publishes of a client to one topic, through a hidden producer.

One batch for each partition is in flight at a time; what is published meanwhile gathers, and leaves
together when the answer has come. So a lone publish waits for nothing, and ten thousand at once
cost a few frames. Each batch carries the producer's id and its sequence, so that a batch whose
answer was lost can be sent again and is stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hocket import frames
from hocket.client_core.outbox import Outbox, Reply
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delivery import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.client_core.session.session import Session, again
from hocket.client_core.timeout import seconds_us
from hocket.errors import HocketError, ProtocolError, ReplyLost
from hocket.frames import Frame
from hocket.model import Position


class PublishCore(ProducerCore):
    forget: Callable[[], object]  # called when it has ended

    def end(self, error: HocketError) -> None:
        super().end(error)
        self.forget()

    def _check_disk(self) -> None:
        """Whoever published the earlier records was told."""

    @property
    def in_flight_max(self) -> int:
        return 1

    def _push(self, gathering: Gathering, batch: Outgoing) -> None:
        self.session.request(
            frames.Publish(0, self.topic, gathering.partition, self.delayed),
            partial(self._answered, gathering, batch.stamp),
            payload=[batch.entry],
        )

    def _outgoing(
        self, entry: bytes, count: int, stamp: Stamp, waiters: list[tuple[int, Any]]
    ) -> Outgoing:
        """The batch is tried for as long as somebody waits for one of its records."""
        batch = super()._outgoing(entry, count, stamp, waiters)
        batch.expires_us = max(waiter.expires_us for _, waiter in waiters)
        return batch

    def _answered(self, gathering: Gathering, stamp: Stamp, answer: Frame | HocketError) -> None:
        if (
            isinstance(answer, ReplyLost)
            or not gathering.queue
            or gathering.queue[0].stamp != stamp
        ):
            return  # the batch is pushed again on the next link, or was given up
        if isinstance(answer, frames.Published):
            self._acked(gathering, stamp.sequence, [answer.offset])
        elif isinstance(answer, HocketError):
            self._refused(gathering, stamp.sequence, answer)
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to Publish")


class Publication(Reply[Position | HocketError]):
    """One message, and the wake-up of whoever waits until it is stored."""

    __slots__ = ("expires_us",)

    def __init__(self, outbox: Outbox, expires_us: int) -> None:
        super().__init__(outbox)
        self.expires_us = expires_us


class Publications:
    """The one-off publishes of a client: a hidden producer for each topic, and one more for what
    is delayed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cores: dict[tuple[str, bool], PublishCore] = {}  # by topic, delayed or not
        # Whoever publishes waits for its own message, so there is no linger and no window.
        self._options = ProducerOptions(linger_us=0, window_bytes=1 << 62)

    def new(self, now_us: int, timeout: float | None) -> Publication:
        return Publication(self._session.outbox, now_us + seconds_us(timeout, "timeout"))

    def core(self, topic: str, *, delayed: bool = False) -> PublishCore:
        core = self._cores.get((topic, delayed))
        if core is None or core.failure is not None:
            core = PublishCore(self._session, topic, self._options, _settle)
            core.delayed = delayed
            core.forget = partial(self._cores.pop, (topic, delayed), None)
            self._cores[topic, delayed] = core
            core.open()
        return core


def _settle(batch: Outgoing, outcome: Outcome) -> None:
    for number, publication in batch.waiters:
        if isinstance(outcome, Positions):
            publication.put(outcome.position(number))
        else:
            publication.put(again(outcome))
