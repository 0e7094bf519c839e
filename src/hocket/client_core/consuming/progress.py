"""How far a subscription has come in one partition.

A `Progress` is good until the subscription goes on elsewhere in that partition (a seek); then
another one replaces it, and acks of messages from before are void. Once the subscription has ended
nothing is awake any more, so that whoever acks is told: `arouse` raises.

Any thread acks, without a lock: the list of acks is never replaced, whoever acks appends FIRST and
looks at `awake` AFTERWARDS, and whoever gathers the acks clears `awake` FIRST and looks at the list
AFTERWARDS (`producing.gathering` works alike).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hocket.client_core.session.delivered import Stored
from hocket.errors import CorruptData
from hocket.wire.batch import Batch, parse


def opened(stored: Stored) -> Batch:
    return parse(stored.payload, stored.position, header=stored.header)


class Progress:
    __slots__ = (
        "_acks", "_arouse", "_opened", "acked", "awake", "committed", "end", "expected", "index",
        "next", "note", "partition", "queue", "requested", "sought",
    )  # fmt: skip

    def __init__(
        self, partition: int, offset: int, end: int, arouse: Callable[[Progress], None]
    ) -> None:
        self.partition = partition
        self.index = ""  # the name of the index, if there is one
        self.next = offset  # the next offset to hand out
        self.expected = offset  # the next offset that the broker is to deliver
        self.end = end  # the end of the partition, as far as it is known
        self.acked = offset  # the application has acknowledged everything below this
        self.requested = offset  # the broker was told that everything below this is acked
        self.committed = offset  # everything below this is durably acked
        self.queue: deque[Stored] = deque()
        self.sought = False  # a seek to here is not confirmed yet: what is delivered is stale
        self.awake = False
        self._acks: list[int] = []
        self.note: Callable[[int], None] = self._acks.append
        self._arouse = arouse
        self._opened: Batch | None = None  # the head of the queue, once it was parsed

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
        """Another one replaces it: acks of its messages come to nothing.

        It stays not awake, so that each of them asks whether the subscription is still open.
        """
        self.note = _ignore
        self.awake = False

    def skip_to(self, offset: int) -> None:
        """Retention has removed what lies before `offset`, but for what the queue holds."""
        self.expected = offset
        if not self.queue:
            self.next = offset

    def head(self) -> Batch:
        """The batch to hand out from. Raises CorruptData, with its place, if it is damaged."""
        if self._opened is None:
            stored = self.queue[0]
            try:
                self._opened = opened(stored)
            except CorruptData as error:
                start = max(self.next, stored.header.base_offset)
                raise self.unreadable(error, start, stored.header.end_offset) from error
        return self._opened

    def unreadable(self, error: CorruptData, start: int, end: int) -> CorruptData:
        """The same error, with the place of what cannot be read."""
        return CorruptData(str(error), partition=self.partition, start=start, end=end)

    def pop(self) -> int:
        """Drop the head, which was handed out or is not wanted; returns its size."""
        self._opened = None
        return self.queue.popleft().size


def _ignore(_offset: int) -> None:
    pass
