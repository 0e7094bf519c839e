"""What hears of a message queue, and how a listener of any kind is told.

Any object with some of a listener's methods will do: an event whose method is missing is not told.
Messages are not told to a listener that does nothing with them: they wait to be received. Every
method runs on the pump of its broker and must not wait. `queue_broker` has the listeners that
hear of connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.errors import WrongType

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


MESSAGE_EVENTS = ("received", "sent", "writable", "closed")


def check_listener(listener: object, *events: str) -> None:
    """Refuse a listener that has a method for none of the events: it would hear nothing."""
    if not any(hasattr(listener, event) for event in events):
        raise WrongType(
            f"a listener needs a method {' or '.join(events)}; "
            f"{type(listener).__name__} has none and would hear nothing"
        )


def hears(listener: object, event: str) -> bool:
    """Whether the listener has a method of its own for an event of a queue, not an inherited one.

    What `MessageListener` itself does about an event is nothing.
    """
    method = getattr(listener, event, None)
    inherited = getattr(MessageListener, event)
    return method is not None and getattr(method, "__func__", None) is not inherited


def tell(listener: object, event: str, *facts: Any) -> None:
    """Call the listener's method of this name, if it has one."""
    method = getattr(listener, event, None)
    if method is not None:
        method(*facts)
