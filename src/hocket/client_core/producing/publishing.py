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
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.client_core.producing.records import Record
from hocket.client_core.session.answers import again
from hocket.client_core.session.session import Session
from hocket.client_core.timeout import seconds_us
from hocket.errors import HocketError, ProtocolError, ReplyLost
from hocket.frames import Frame
from hocket.model import Position


class PublishPusher(Pusher):
    """Publishes at one node, one batch for each partition at a time."""

    @property
    def in_flight_max(self) -> int:
        return 1

    def _push(self, gathering: Gathering, batch: Outgoing) -> None:
        self.session.request(
            frames.Publish(0, self.topic, gathering.partition, self.producer.delayed),
            partial(self._answered, gathering, batch.stamp),
            payload=[batch.entry],
        )

    def _answered(self, gathering: Gathering, stamp: Stamp, answer: Frame | HocketError) -> None:
        if (
            isinstance(answer, ReplyLost)
            or gathering.pusher is not self
            or not gathering.queue
            or gathering.queue[0].stamp != stamp
        ):
            return  # the batch is pushed again on the next link or elsewhere, or was given up
        if isinstance(answer, frames.Published):
            self._acked(gathering, stamp.sequence, [answer.offset])
        elif isinstance(answer, HocketError):
            self._refused(gathering, stamp.sequence, answer)
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to Publish")


class PublishCore(ProducerCore):
    pusher_kind = PublishPusher
    forget: Callable[[], object]  # called when it has ended

    def end(self, error: HocketError) -> None:
        super().end(error)
        self.forget()

    def give_up(self, record: Record) -> bool:
        """Nobody waits for this record any more. True: it is not stored, and will not be.

        What gathers is taken back. So is a batch that was never pushed, since its node is away,
        say, if nobody waits for other records of it.
        """
        if self.withdraw(record):
            return True
        publication = record[4]
        for gathering in self.gatherings:
            for batch in [each for each in gathering.queue if not each.exposed][:1]:
                is_alone = [each for _, each in batch.waiters] == [publication]
                if is_alone and gathering.queue[0] is batch:
                    batch.expires_us = self.outbox.now_us
                    self.expire_now()
                    return True
        return False

    def _check_disk(self) -> None:
        """Whoever published the earlier records was told."""

    def _outgoing(
        self, entry: bytes, count: int, stamp: Stamp, waiters: list[tuple[int, Any]]
    ) -> Outgoing:
        """The batch is tried for as long as somebody waits for one of its records."""
        batch = super()._outgoing(entry, count, stamp, waiters)
        batch.expires_us = max(waiter.expires_us for _, waiter in waiters)
        return batch


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
