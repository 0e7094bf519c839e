"""An unbounded FIFO of events, fed from any thread and closed without losing or inventing one.

Theory: `put` appends an event and then looks whether the queue was closed meanwhile; the taker
declares the queue drained only while it is empty, under `_endings`. So an event whose `put`
returned is taken, and an event whose `put` raised Closed is not, however the two raced.
"""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import Generic, TypeVar

from hocket.deadline import Deadline
from hocket.errors import Closed, WouldBlock
from hocket.local.waiting import Waiters, wait

E = TypeVar("E")

# Reentrant: a finalizer or a signal handler may end another one while we hold it.
_endings = RLock()  # one for all queues: taken only when a queue ends


class EventQueue(Generic[E]):
    """Events in the order in which they were put; `put` never waits, `get` does."""

    __slots__ = ("closed", "drained", "events", "takers")

    def __init__(self) -> None:
        self.events: deque[E] = deque()
        self.takers = Waiters()
        self.closed = False  # no further put is taken
        self.drained = False  # closed, and everything put before has been taken

    def __len__(self) -> int:
        return len(self.events)

    def put(self, event: E) -> None:
        """Append from any thread; raises Closed after `close`."""
        if self.closed:
            raise _closed()
        self.events.append(event)
        if self.closed:
            self._settle(event)
        if self.takers:
            self.takers.wake_one()

    def get_nowait(self) -> E:
        """The oldest event. Raises WouldBlock if there is none, Closed if there will be none."""
        while True:
            try:
                return self.events.popleft()
            except IndexError:
                if not self.closed:
                    raise WouldBlock("no event is waiting") from None
                if self.finish():
                    raise _closed() from None

    def get(self, timeout: float | None = None) -> E:
        """The oldest event; wait while there is none. Raises Closed, Timeout."""
        deadline = Deadline(timeout)
        found = self._attempt()
        if found is None:
            found = wait(self._attempt, self.takers, deadline, "get an event")
        (event,) = found
        return event

    def close(self) -> None:
        """Take no more events; those already here can still be had."""
        self.closed = True
        self.takers.wake_all()

    def finish(self) -> bool:
        """Declare a closed queue drained, if it is empty."""
        with _endings:
            if self.events:
                return False
            self.drained = True
            return True

    def _attempt(self) -> tuple[E] | None:
        try:
            return (self.get_nowait(),)
        except WouldBlock:
            return None

    def _settle(self, event: E) -> None:
        """The queue was closed during a `put`: the event will be taken, or this raises Closed."""
        with _endings:
            if not self.drained or not remove_identical(self.events, event):
                return
        raise _closed()


def remove_identical(events: deque[E], event: E) -> bool:
    """Remove this very object (an equal one may be somebody else's); False if it is not there."""
    for place in range(len(events) - 1, -1, -1):  # it was appended a moment ago
        if events[place] is event:
            del events[place]
            return True
    return False


def _closed() -> Closed:
    return Closed("the event queue is closed")
