"""The meeting of one accept and one connect, while one of the two waits for the other."""

from __future__ import annotations

from itertools import count
from typing import Generic, Literal, TypeVar

from hocket.errors import HocketError
from hocket.local.broker_manager import AnyBroker
from hocket.local.channel import Channel
from hocket.local.waiting import Waiters

B = TypeVar("B", bound=AnyBroker)  # the kind of broker that keeps the rendezvous
Side = Literal["accept", "connect"]

_arrivals = count()


class Rendezvous(Generic[B]):
    """The side of a meeting that came first; it waits in the list of the accepting broker.

    `side` says which side came ("accept" or "connect"), `broker` which broker called, `port` on
    which port of the accepting broker it waits.
    """

    __slots__ = ("_outcome", "broker", "host", "order", "port", "side", "waiters")

    def __init__(self, side: Side, broker: B, host: B, port: int) -> None:
        self.side = side
        self.broker = broker
        self.host = host  # the accepting broker, in whose list this waits
        self.port = port
        self.order = next(_arrivals)
        self.waiters = Waiters()
        self._outcome: Channel | HocketError | None = None

    def settle(self, outcome: Channel | HocketError) -> None:
        """Wake the side that waits; its outcome is a channel end, or why there is no channel."""
        self._outcome = outcome
        self.waiters.wake_all()

    def outcome(self) -> Channel | None:
        """This side's end of the channel, None until settled. Raises why there is no channel."""
        outcome = self._outcome  # looked at once: another thread may settle it at any moment
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def abandon(self) -> None:
        """Nobody will use the outcome: if it is a channel, disconnect it, so the partner knows."""
        if isinstance(self._outcome, Channel):
            self._outcome.disconnect()

    def __repr__(self) -> str:
        return f"<Rendezvous: {self.broker.name!r} waits to {self.side} on port {self.port}>"
