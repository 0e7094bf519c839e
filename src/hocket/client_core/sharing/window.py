"""How many messages of a shared index this consumer may have that it has not settled.

The window begins small, and grows up to `prefetch` when the application waits for more and either
holds a whole window unsettled or has taken one since the window last grew. So a quick consumer soon
has as much as it can use, and a slow one, which always finds something waiting, leaves to others
what it would only keep.
"""

from __future__ import annotations

FIRST = 16


class Window:
    __slots__ = ("_received", "granted", "prefetch", "size")

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.size = min(FIRST, prefetch)
        self.granted = 0  # how many more messages the broker may send
        self._received = 0  # how many messages came since the window last grew

    def narrow(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.size = min(self.size, prefetch)

    def open(self, unsettled: int) -> int:
        """The first credit on a new link; at least 1, since OpenSubscription cannot ask for 0."""
        self.granted = max(1, self.size - unsettled)
        return self.granted

    def received(self, count: int) -> None:
        self.granted -= count
        self._received += count

    def owed(self, unsettled: int) -> int:
        """How many messages of credit may be given now."""
        return max(0, self.size - unsettled - self.granted)

    def give(self, count: int) -> None:
        self.granted += count

    def ran_dry(self) -> bool:
        """The application waits. True if the window may be why; then it grows, up to `prefetch`."""
        if self.granted > 0 and self._received < self.size:
            return False
        self._received = 0
        self.size = min(self.prefetch, 2 * self.size)
        return True
