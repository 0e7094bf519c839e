"""What one step of the core wants done, in order, and the numbers that its questions carry."""

from __future__ import annotations

from hocket.core.relay.events import Effect, ReadLog, Send
from hocket.core.relay.messages import RelayMessage
from hocket.core.ring.contact import Contact

Turn = bool
"""What a component returns: True if something changed that others may act on, so that the relay has
to take a turn."""


class Outbox:
    """All components of a core write to the same outbox."""

    __slots__ = ("effects", "last_request")

    def __init__(self, last_request: int) -> None:
        self.effects: list[Effect] = []  # of the step that is under way
        self.last_request = last_request  # one count numbers requests to nodes and tokens

    def begin(self) -> list[Effect]:
        """A step begins. Its effects are added to the list that is returned."""
        self.effects = []
        return self.effects

    def add(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, to: Contact, message: RelayMessage) -> None:
        self.effects.append(Send(to, message))

    def next_request(self) -> int:
        self.last_request += 1
        return self.last_request

    def read_log(self, offset: int, end: int, bytes_max: int) -> int:
        """Returns the token that the answer, a `LogRead`, will carry."""
        token = self.next_request()
        self.effects.append(ReadLog(token, offset, end, bytes_max))
        return token
