"""What hears of a message queue, and how a listener of any kind is told.

Any object with some of a listener's methods will do: an event whose method is missing is not told.
Every method runs on the pump of its broker and must not wait. `queue_broker` has the listeners that
hear of connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.errors import HocketError
    from hocket.local.lane import Message


class MessageListener:
    """Hears what happens on one queue."""

    def received(self, message: Message) -> None:
        """The next message; it belongs to the listener."""

    def sent(self, message: Message) -> None:
        """A message sent from this end was handed over while this listener was set."""

    def writable(self) -> None:
        """A `send` was refused because the queue was full; now there is room."""

    def closed(self, reason: HocketError | None) -> None:
        """The queue has ended; told once. `reason` is None after a graceful close, else Aborted."""


def hears_sent(listener: object) -> bool:
    """Whether the listener does something with `sent`, which is not worth an event otherwise."""
    method = getattr(listener, "sent", None)
    return method is not None and getattr(method, "__func__", None) is not MessageListener.sent


def tell(listener: object, event: str, *facts: Any) -> None:
    """Call the listener's method of this name, if it has one."""
    method = getattr(listener, event, None)
    if method is not None:
        method(*facts)
