"""One live connection to a broker, as the client sees it, and how the next one is made.

Whatever carries the frames (a socket, asyncio, a broker in the same process) has these methods, so
that one `Session` can drive them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hocket.addresses import Address
from hocket.errors import HocketError
from hocket.frames import Frame

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Link(Protocol):
    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame. Never waits; if the link is gone, its owner is told `lost`, later.

        Raises a HocketError if the frame cannot be sent at all; then nothing has happened.
        """

    def flush(self) -> None:
        """Write what can be written without waiting; the rest follows by itself."""

    def close(self) -> None:
        """Send what is queued if that can be done at once, and let go; `lost` is not told."""

    def heard(self) -> int:
        """A count that grows whenever bytes arrive, so that a long frame is no silence."""


class LinkOwner(Protocol):
    """What is told about links, never from within their `send`, `flush` or `close`.

    Methods whose name ends in `outside` may be called on a thread that is not the client's.
    """

    def opened(self, link: Link) -> None: ...

    def received(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None: ...

    def received_outside(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """`received`, on a thread that must not wait for the client."""

    def lost(self, link: Link | None, error: HocketError) -> None:
        """The link is gone; None: the link that was to be opened did not come about."""

    def lost_outside(self, link: Link, error: HocketError) -> None:
        """`lost`, on a thread that is not the client's."""


class Connector(Protocol):
    """How a link is opened, and the next one when that one is lost."""

    target: str  # for people: where the links lead
    addresses: tuple[Address | None, ...]  # to try, one after the other; None: this process
    watched: bool  # whether silence makes a link suspect (within one process it does not)

    def open(self, address: Address | None, owner: LinkOwner, /) -> None:
        """Begin to open a link to this address. Never waits."""

    def close(self) -> None:
        """Open no more links, and give up the one that is being opened."""

    def for_threads(self) -> Connector:
        """The same for an engine with threads: what to go on with when a loop is no more."""

    def forked(self) -> None:
        """See `forking`: close this process's copies of descriptors, and say nothing on them."""
