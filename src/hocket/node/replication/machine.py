"""What the entries of a group change: a partition, or the metadata."""

from __future__ import annotations

from typing import Protocol, TypeVar

from hocket.wire.entry import Header

E = TypeVar("E")  # an entry, as the machine remembers it until it is committed


class Machine(Protocol[E]):
    """What the entries of a group change."""

    def prepared(self, header: Header, body: memoryview) -> E:
        """What is kept of an entry until it is committed. The body is not kept."""

    def apply(self, entry: E) -> None:
        """The entry is committed, and this machine has not proposed it."""

    def committed(self, index: int) -> None:
        """What this machine has proposed is committed, up to this entry."""

    def entered(self, index: int) -> None:
        """While this machine serves, Raft has appended an entry of its own at this index."""

    def check(self, state: bytes) -> None:
        """Raise what is wrong with another node's state, before it is installed."""

    def serve(self, term: int) -> None:
        """From now on this node leads: everything that was ever committed is applied."""

    def stop(self, leader: str) -> None:
        """This node leads no more. Go back to what is committed, and tell who waits."""

    def snapshot(self) -> tuple[int, bytes]:
        """(The last entry that is applied, the state behind it.)"""

    def install(self, index: int, log_start: int, state: bytes) -> None:
        """Become what another node's machine is."""

    def hint(self) -> None:
        """Who leads has changed."""
