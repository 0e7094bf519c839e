"""What hears about queues. Any object with some of these methods will do; a missing one is a no-op.

Every method runs on the pump of the broker concerned and must not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.errors import HocketError
    from hocket.local.lane import Message
    from hocket.local.message_queue import MessageQueue


class AcceptListener:
    """Hears of connections to a bound port."""

    def accepted(self, queue: MessageQueue) -> None:
        """A connection was made; `queue` is this side's end."""


class ConnectListener:
    """Hears how an attempt to connect ended: one of the two, once."""

    def connected(self, queue: MessageQueue) -> None:
        """The connection was made; `queue` is this side's end."""

    def refused(self, reason: HocketError) -> None:
        """There is no connection: UnknownBroker, PortNotBound, WrongKind or Closed."""


class MessageListener:
    """Hears what happens on one queue."""

    def received(self, message: Message) -> None:
        """The next message; it is yours."""

    def sent(self, message: Message) -> None:
        """A message of ours was handed over while this listener was set."""

    def writable(self) -> None:
        """A `send` had been refused for want of room; now there is some."""

    def closed(self, reason: HocketError | None) -> None:
        """The end, once: None after a graceful close, else why the queue was cut (Aborted)."""


def hears_sent(listener: object) -> bool:
    """Whether the listener does something with `sent`, which is not worth an event otherwise."""
    method = getattr(listener, "sent", None)
    return method is not None and getattr(method, "__func__", None) is not MessageListener.sent


def tell(listener: object, event: str, *facts: Any) -> None:
    method = getattr(listener, event, None)
    if method is not None:
        method(*facts)
