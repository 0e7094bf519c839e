"""How far a subscription has come in one partition.

A place is good until the subscription goes on elsewhere in that partition (a seek); then it is
replaced, and acks of messages from before are void: they say nothing about the new place.

Acks come without a lock, from any thread: the list of acks is never replaced, whoever acks appends
FIRST and looks at `awake` AFTERWARDS, and whoever gathers them clears `awake` FIRST and looks at
the list AFTERWARDS (see `lane`, which works alike).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from hocket.wire.batch import Batch, parse
from hocket.wire.entry import Header


class Stored(NamedTuple):
    """An entry that was delivered and not yet handed out, where it lies in its payload."""

    payload: memoryview
    position: int
    header: Header


class Progress:
    __slots__ = (
        "_acks", "_arouse", "_opened", "acked", "awake", "committed", "end", "expected", "next",
        "note", "partition", "queue", "requested", "sought",
    )  # fmt: skip

    def __init__(
        self, partition: int, offset: int, end: int, arouse: Callable[[Progress], None]
    ) -> None:
        self.partition = partition
        self.next = offset  # to be handed out
        self.expected = offset  # to be delivered by the broker
        self.end = end  # of the partition, as far as is known
        self.acked = offset  # everything below is acknowledged by the application
        self.requested = offset  # and of that, so much was sent to the broker
        self.committed = offset  # and so much is durable there
        self.queue: deque[Stored] = deque()
        self.sought = False  # we asked to go on here: until the broker confirms, all is stale
        self.awake = False
        self._acks: list[int] = []
        self.note: Callable[[int], None] = self._acks.append
        self._arouse = arouse
        self._opened: Batch | None = None  # the head of the queue

    def ack(self, offset: int) -> None:
        self.note(offset)
        if not self.awake:
            self._arouse(self)

    def gather_acks(self) -> None:
        self.awake = False
        count = len(self._acks)
        if count:
            self.acked = max(self.acked, max(self._acks[:count]) + 1)
            del self._acks[:count]

    def void(self) -> None:
        """It is replaced: acks of its messages come to nothing."""
        self.note = _ignore
        self.awake = True

    def skip_to(self, offset: int) -> None:
        """What lies before it cannot be had any more, but for what the queue holds."""
        self.expected = offset
        if not self.queue:
            self.next = offset

    def head(self) -> Batch:
        """The batch to hand out from. Raises CorruptData if it is damaged."""
        if self._opened is None:
            stored = self.queue[0]
            self._opened = parse(stored.payload, stored.position)
        return self._opened

    def pop(self) -> int:
        """The head is handed out; returns its size."""
        self._opened = None
        return self.queue.popleft().header.size


def _ignore(_offset: int) -> None:
    pass
