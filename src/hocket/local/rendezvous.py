"""The meeting of one accept and one connect, while one of the two still waits for the other."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Literal

from hocket.local.channel import Channel
from hocket.local.waiting import Waiters

if TYPE_CHECKING:
    from hocket.errors import HocketError
    from hocket.local.broker import Broker

Side = Literal["accept", "connect"]

_arrivals = count()


class Rendezvous:
    """One side of a meeting that came first, waiting in the list of the accepting broker.

    `side` says which side came ("accept" or "connect"), `broker` whose it is, `port` where.
    """

    __slots__ = ("_outcome", "broker", "host", "order", "port", "side", "waiters")

    def __init__(self, side: Side, broker: Broker, host: Broker, port: int) -> None:
        self.side = side
        self.broker = broker
        self.host = host  # the accepting broker, in whose list this waits
        self.port = port
        self.order = next(_arrivals)
        self.waiters = Waiters()
        self._outcome: Channel | HocketError | None = None

    def settle(self, outcome: Channel | HocketError) -> None:
        """Wake whoever waits, with its end of the channel or with the reason why there is none."""
        self._outcome = outcome
        self.waiters.wake_all()

    def outcome(self) -> Channel | None:
        """None until settled."""
        outcome = self._outcome  # looked at once: another thread may settle it at any moment
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def abandon(self) -> None:
        """Nobody will use the outcome; if it is a channel, let its other end know."""
        if isinstance(self._outcome, Channel):
            self._outcome.disconnect()

    def __repr__(self) -> str:
        return f"<Rendezvous: {self.broker.name!r} waits to {self.side} on port {self.port}>"
