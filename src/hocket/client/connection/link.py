"""One live connection to a broker, as the client sees it, and how the next one is made.

Whatever carries the frames (a socket, asyncio, a broker in the same process) looks like this, so
one session core drives them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hocket.errors import HocketError
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Link(Protocol):
    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame. Never waits; a link that is gone is reported as lost, later.

        Raises a HocketError if this cannot be sent at all; then nothing has happened.
        """

    def flush(self) -> None:
        """Write what can be written without waiting; the rest follows by itself."""

    def close(self) -> None:
        """Send what is queued if that can be done at once, and let go. Nothing is reported."""

    def heard(self) -> int:
        """Grows whenever anything arrives, so that a long frame does not look like silence."""


class Listener(Protocol):
    """Who is told about links, never from within `send`, `flush` or `close`.

    What ends in `outside` may be called on a thread that belongs to somebody else.
    """

    def opened(self, link: Link) -> None: ...

    def received(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None: ...

    def received_outside(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """The same, on a thread that must not wait for the client."""

    def lost(self, link: Link | None, error: HocketError) -> None:
        """The link is gone; None: there was none, the attempt to open one has failed."""

    def lost_outside(self, link: Link, error: HocketError) -> None:
        """The same, on a thread that is not the client's."""


class Connector(Protocol):
    target: str  # for people: where it leads
    places: int  # how many addresses there are to try
    watched: bool  # whether a silent link is to be suspected (not so within one process)

    def open(self, attempt: int, listener: Listener) -> None:
        """Begin to open a link, at another address each time. Does not wait."""

    def close(self) -> None:
        """No more links will be opened, and an attempt under way is given up."""
