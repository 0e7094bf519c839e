"""What became of each batch of a producer: which are not settled, and who is told.

A batch is reported once, as delivered or as failed. What nobody waits for and was given up is
remembered until `flush` or `close` has raised it; if nobody asks, the end of the client tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from hocket.client_core.outbox import Tell, WakeUps
from hocket.client_core.producing.gathering import Gathering, Pushes
from hocket.client_core.producing.outgoing import Outcome, Outgoing
from hocket.client_core.session.answers import again, closed
from hocket.client_core.session.session import Session
from hocket.errors import HocketError
from hocket.model import SECOND_US
from hocket.timers import Timer


@dataclass(slots=True)
class ProducerOptions:
    linger_us: int = 2000
    batch_bytes: int = 1 << 20
    window_bytes: int = 16 << 20
    codec: str = "none"
    delivery_us: int = 120 * SECOND_US


# Who is told what became of each batch; a face's, so it is called when the turn is over.
Settle = Callable[[Outgoing, Outcome], None]


class Fates:
    """The batches of one producer that were cut and not reported, whoever pushes them."""

    delayed = False  # the timestamps of its records say when they are due

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Settle | None = None,
    ) -> None:
        self.topic = topic
        self.options = options
        self.outbox = session.outbox
        self.gatherings: list[Gathering] = []  # one for each partition that is known
        self.failure: HocketError | None = None  # why the producer takes no more records
        self.first_error: HocketError | None = None  # the first that `flush` has not raised yet
        self.unacked_bytes = 0
        self.changed = WakeUps(self.outbox)  # called when the producer is opened or ended
        self.settled = WakeUps(self.outbox)  # when a batch was reported: there is room again
        self.tells_all = False  # somebody is told of every batch: see `_lose`
        self._losses = session.losses
        self._settle = settle
        self._closing = False
        self._serials = count()
        self._unsettled: dict[int, Outgoing] = {}  # by serial, oldest first
        self._untold = 0  # records that were given up, and that nobody was told of
        self._expiry_timer: Timer | None = None

    def check_usable(self) -> None:
        if self.failure is not None:
            raise again(self.failure)
        if self._closing:
            raise closed("the producer")

    def enqueue(self, gathering: Gathering, batch: Outgoing) -> None:
        gathering.queue.append(batch)
        self._unsettled[batch.serial] = batch
        self.unacked_bytes += len(batch.entry)
        if self._expiry_timer is None:
            self._set_expiry_timer(batch.expires_us)
        gathering.pusher.pump(gathering)

    def new_serial(self) -> int:
        return next(self._serials)

    def is_settled(self, serial: int) -> bool:
        """Whether every batch with a smaller serial was reported."""
        return next(iter(self._unsettled), serial) >= serial

    def count(self) -> int:
        """How many records were taken and are not acknowledged."""
        return sum(gathering.count() for gathering in self.gatherings)

    # --- reporting -------------------------------------------------------------------------------

    def fail(self, batch: Outgoing, error: HocketError) -> None:
        error = again(error)
        error.may_have_happened = batch.may_be_stored
        self._lose(batch.count - len(batch.waiters), error)
        self.report(batch, error)

    def report(self, batch: Outgoing, outcome: Outcome) -> None:
        del self._unsettled[batch.serial]
        self.unacked_bytes -= len(batch.entry)
        self._tell(batch, outcome)
        self.settled.wake_all()

    def _tell(self, batch: Outgoing, outcome: Outcome) -> None:
        if self._settle is not None:
            self.outbox.effects.append(Tell(partial(self._settle, batch, outcome)))

    def told(self) -> None:
        """Somebody has heard of what was given up so far."""
        self.first_error, self._untold = None, 0
        self._losses.pop(self, None)

    def _lose(self, count: int, error: HocketError) -> None:
        """So many records were given up, and nobody waits for one of them."""
        if self.first_error is None:
            self.first_error = error
        if count and not self.tells_all:
            self._untold += count
            self._losses[self] = (
                f"{self._untold} message{'s' if self._untold > 1 else ''} for topic "
                f"{self.topic!r} had been given up unseen: {self.first_error}"
            )

    def gathering_is_idle(self, gathering: Gathering) -> None:
        """Nothing of this partition is on its way any more."""

    # --- giving up what took too long ------------------------------------------------------------

    def _set_expiry_timer(self, due_us: int) -> None:
        delay = max(0, due_us - self.outbox.now_us)
        self._expiry_timer = self.outbox.arm(delay, self._expire)

    def expire_now(self) -> None:
        """A batch is due earlier than it was."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expire()

    def _expire(self) -> None:
        """Give up what could not be delivered in time."""
        self._expiry_timer = None
        now = self.outbox.now_us
        gave_up: dict[Pushes, None] = {}
        for gathering in self.gatherings:
            pusher = gathering.pusher
            waits = gathering.paused and not gathering.sent
            for batch in gathering.take_expired(now):
                gave_up[pusher] = None
                self.fail(batch, pusher.gave_up(gathering, batch, waits=waits))
            if not gathering.queue:
                self.gathering_is_idle(gathering)
        first = min((batch.expires_us for batch in self._unsettled.values()), default=None)
        if first is not None:
            self._set_expiry_timer(first)
        for pusher in gave_up:
            pusher.ask()
