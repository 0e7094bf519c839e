"""Every error this package raises on purpose, in one tree.

The type says what went wrong and whose doing it was; the message says with which value, and what
to do about it. Errors about a wrong argument are also the built-in error a Python caller expects
(TypeError, ValueError, TimeoutError), so that `except TypeError` keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class HocketError(Exception):
    """Base of every error this package raises on purpose."""

    may_have_happened = False  # False: the request certainly had no effect


# --- what the caller passed was wrong; nothing was changed -----------------------------------


class WrongType(HocketError, TypeError):
    """An argument is of a type that cannot work here."""


class ReadOnlyBuffer(WrongType):
    """`read` was given a buffer it may not write into."""


class OutOfRange(HocketError, ValueError):
    """A number (offset, length, port, timeout, capacity) lies outside what is allowed."""


class BadName(HocketError, ValueError):
    """A broker's name is empty."""


# --- names and ports ---------------------------------------------------------------------------


class NameInUse(HocketError):
    """Another broker already has this name in the same manager."""


class UnknownBroker(HocketError):
    """No broker of this name is registered."""


class WrongKind(HocketError):
    """There is a broker of this name, but of a kind that cannot be connected from here."""


class PortInUse(HocketError):
    """Another accept is already waiting on this port of this broker."""


class PortNotBound(HocketError):
    """The other broker exists, but nothing is bound to this port."""


# --- waiting -----------------------------------------------------------------------------------


class Timeout(HocketError, TimeoutError):
    """The time given ran out before the thing happened; it has not happened.

    `partial` and `written` are those of `read_exactly` and `write_all`, as in `Disconnected`.
    """

    partial = b""
    written = 0


class WouldBlock(HocketError):
    """A call that never waits found nothing to take, or no room."""


class BusyResource(HocketError):
    """Two users at once where only one can work: two readers at one end of a channel, say."""


class WrongThread(HocketError):
    """A call that waits was made on a pump's own thread, which must never wait."""


# --- the end -----------------------------------------------------------------------------------


class Closed(HocketError):
    """It was closed: by you, by its owner, or because it came to its normal end."""


class Disconnected(HocketError):
    """A channel end that is no longer connected was read or written.

    `partial` holds what `read_exactly` had read when it was cut short, `written` how many bytes
    `write_all` had handed over.
    """

    def __init__(self, message: str, *, partial: bytes = b"", written: int = 0) -> None:
        super().__init__(message)
        self.partial = partial
        self.written = written


class Aborted(HocketError):
    """A message queue was cut by force; what was in transit is listed here, not lost unseen.

    `undelivered` are the messages of this side that the other side did not take, `unread` those
    of the other side that this side did not take, each in the order they were sent.
    """

    def __init__(
        self, message: str, *, undelivered: Sequence[Any] = (), unread: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.undelivered = list(undelivered)
        self.unread = list(unread)
