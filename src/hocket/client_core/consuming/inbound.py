"""What was delivered to a subscription and not handed out yet, in the order it is handed out.

Messages are made in chunks, of one partition at a time, and partitions take turns. A chunk is an
iterator of a list (`ready`) that any number of threads may draw from without a lock; what is left
in it when its partition goes on elsewhere is drained.

The size of every entry that comes in goes out once through `give_back`: when the entry's last
message is handed out, or when the entry is dropped. Small entries that are opened together go out
together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from operator import length_hint

from hocket.client_core.consuming.message import (
    Message,
    MessageBatch,
    messages_of,
    plain_messages,
)
from hocket.client_core.consuming.progress import Progress, opened
from hocket.client_core.session.delivered import Delivered, Stored
from hocket.errors import CorruptData, ProtocolError, UnknownPartition
from hocket.model import EntryKind
from hocket.wire.batch import Batch
from hocket.wire.merging import merged

CHUNK = 512  # messages made at a time
TOGETHER_BYTES_MAX = 16 << 10  # of batches whose credit is given back together
_ONCE = repeat(1)  # the delivery count of every message: an own index delivers each once


class Inbound:
    def __init__(
        self,
        topic: str,
        *,
        message: type[Message],
        batch: type[MessageBatch],
        new_progress: Callable[[int, int, int], Progress],
        give_back: Callable[[int], None],
        delivered: Delivered,
    ) -> None:
        self.by_partition: dict[int, Progress] = {}
        self.ready: Iterator[Message] = iter(())
        self.held_bytes = 0
        self._topic = topic
        self._message = message
        self._batch = batch
        self._new_progress = new_progress
        self._give_back = give_back
        self._delivered = delivered
        self._turns: deque[Progress] = deque()  # those whose queue is not empty
        self._ready_progress: Progress | None = None
        self._ready_batches: Batch | list[Stored] = []  # what the messages of `ready` are in
        self._ready_end = 0  # the offset behind the last message of `ready`
        self.owed_bytes = 0  # to be given back when `ready` is drawn empty

    def __bool__(self) -> bool:
        """Whether messages wait behind those in `ready`."""
        return bool(self._turns)

    # --- partitions ------------------------------------------------------------------------------

    def progress_in(self, partition: object) -> Progress:
        progress = self.by_partition.get(partition) if isinstance(partition, int) else None
        if progress is None:
            raise UnknownPartition(
                f"this subscription has the partitions {sorted(self.by_partition)}, "
                f"and no {partition!r}"
            )
        return progress

    def add_partition(self, partition: int, offset: int, end: int) -> Progress:
        progress = self.by_partition[partition] = self._new_progress(partition, offset, end)
        return progress

    def replace(self, progress: Progress, offset: int) -> Progress:
        """Go on at `offset`: what was delivered before is dropped, and acks of it are void."""
        if self._ready_progress is progress:
            drain(self.ready)
            self.settle_ready()
        if progress.queue:
            self._turns.remove(progress)
        while progress.queue:
            self._let_go(progress.pop())
        progress.void()
        return self.add_partition(progress.partition, offset, progress.end)

    def take_out(self, partition: int) -> Progress | None:
        """The partition is read elsewhere from now on, from the next message to be handed out.

        What was delivered of it and not handed out is dropped; acks of what was are still good.
        None: nothing is known of it.
        """
        progress = self.by_partition.pop(partition, None)
        if progress is None:
            return None
        at = progress.next
        if self._ready_progress is progress:
            left = list(self.ready)
            at = left[0].offset if left else at
            self.settle_ready()
            self._ready_progress = None
        if progress.queue:
            self._turns.remove(progress)
        while progress.queue:
            self._let_go(progress.pop())
        progress.next = progress.expected = at
        return progress

    def put_in(self, progress: Progress) -> None:
        """Go on with a partition that was read elsewhere before."""
        self.by_partition[progress.partition] = progress

    def position(self, partition: object) -> int:
        """The offset of the next message to be handed out."""
        progress = self.progress_in(partition)
        left = length_hint(self.ready)
        return (
            self._ready_end - left if left and self._ready_progress is progress else progress.next
        )

    def lag(self) -> int:
        return sum(
            max(0, progress.end - self.position(partition))
            for partition, progress in self.by_partition.items()
        )

    def clear(self) -> None:
        self._turns.clear()
        drain(self.ready)

    # --- in --------------------------------------------------------------------------------------

    def keep(self, progress: Progress, payload: memoryview) -> None:
        """Keep entries of the partition, in order; what came before, or is no batch, is dropped."""
        was_empty = not progress.queue
        for entry in self._delivered.entries(payload):
            header, end = entry.header, entry.end_offset
            if header.kind != EntryKind.BATCH or end <= progress.expected:
                self._give_back(entry.size)
                continue
            if header.base_offset > progress.expected:
                raise ProtocolError(
                    f"partition {progress.partition} went on at {header.base_offset}, "
                    f"not {progress.expected}"
                )
            progress.queue.append(entry)
            progress.expected = end
            self.held_bytes += entry.size
        if was_empty and progress.queue:
            self._turns.append(progress)

    # --- out -------------------------------------------------------------------------------------

    def refill(self) -> bool:
        """Put messages into `ready`, which is empty. False: no message is here.

        Raises CorruptData, with its place, for a message that cannot be read.
        """
        self.settle_ready()
        if not self._turns:
            return False
        progress = self._turns[0]
        if self._refill_plainly(progress):
            return True
        batch = progress.head()
        start = max(0, progress.next - batch.base_offset)
        end = min(batch.count, start + CHUNK)
        try:
            messages = self._messages(batch, start, end, progress)
        except CorruptData as error:
            end = batch.unreadable(start, end)[0]
            if end == start:  # else that one is met by the next refill
                end = batch.unreadable_run(start)
                first = batch.base_offset
                raise progress.unreadable(error, first + start, first + end) from error
            messages = self._messages(batch, start, end, progress)
        self.ready = iter(messages)
        self._ready_progress, self._ready_batches = progress, batch
        self._ready_end = batch.base_offset + end
        self.owed_bytes = self._handed_out(progress, self._ready_end, batch.end_offset)
        return True

    def _refill_plainly(self, progress: Progress) -> bool:
        """`refill` with whole batches that are small and simple, as they come one by one.

        It takes those that have come meanwhile with the first, unless another partition has its
        turn: who is behind has less to do for each of them, and so comes up again.
        """
        messages: list[Message] = []
        batches: list[Stored] = []
        size = 0
        while True:
            stored = progress.queue[0]
            first = stored.header.base_offset
            is_next = progress.next <= first if not batches else batches[-1].end_offset == first
            records = stored.plain() if is_next else None
            if records is None:
                break
            batches.append(stored)
            messages += plain_messages(self._message, records, first, self._topic, progress, _ONCE)
            size += self._handed_out(progress, stored.end_offset, stored.end_offset)
            if (
                not progress.queue
                or len(self._turns) > 1
                or len(messages) >= CHUNK
                or size >= TOGETHER_BYTES_MAX
            ):
                break
        if not batches:
            return False
        self.ready = iter(messages)
        self._ready_progress, self._ready_batches = progress, batches
        self._ready_end = batches[-1].end_offset
        self.owed_bytes = size
        return True

    def _messages(self, batch: Batch, start: int, end: int, progress: Progress) -> list[Message]:
        return messages_of(self._message, batch, start, end, self._topic, progress, _ONCE)

    def settle_ready(self) -> None:
        """If the messages in `ready` were all drawn, give their batch's size back."""
        if size := self.take_drawn():
            self._give_back(size)

    def take_drawn(self) -> int:
        """`settle_ready` for who gives the size back: what it is."""
        if not self.owed_bytes or length_hint(self.ready):
            return 0
        size, self.owed_bytes = self.owed_bytes, 0
        self.held_bytes -= size
        return size

    def take_batch(self) -> MessageBatch | None:
        """What is left in `ready`, or of the next batch; None: no message is here."""
        left = self._take_run()
        self.settle_ready()
        if left:
            assert self._ready_progress is not None
            progress, ready = self._ready_progress, self._ready_batches
            batch = opened(_holding(left[0], ready)) if isinstance(ready, list) else ready
            start, end = left[0].offset, left[-1].offset + 1
        elif self._turns:
            progress = self._turns[0]
            batch = progress.head()
            start, end = max(progress.next, batch.base_offset), batch.end_offset
            self._let_go(self._handed_out(progress, end, end))
        else:
            return None
        return self._batch(self._message, batch, start, end, self._topic, progress)

    def take_merged(self) -> MessageBatch | None:
        """Like `take_batch`, but small batches that follow each other come as one."""
        if not self._turns or length_hint(self.ready):
            return self.take_batch()
        progress = self._turns[0]
        fresh = progress.next <= progress.queue[0].header.base_offset
        places = ((each.payload, each.position, each.header) for each in progress.queue)
        found = merged(places) if fresh and len(progress.queue) > 1 else None
        if found is None:
            return self.take_batch()
        batch, number = found
        self.settle_ready()
        size = sum(progress.pop() for _ in range(number - 1))
        self._let_go(size + self._handed_out(progress, batch.end_offset, batch.end_offset))
        return self._batch(
            self._message, batch, batch.base_offset, batch.end_offset, self._topic, progress
        )

    def _take_run(self) -> list[Message]:
        """Take from `ready` messages of one batch that stand side by side; others may draw, too."""
        drawn = list(self.ready)
        end = self._ready_end
        if drawn and isinstance(self._ready_batches, list):
            end = _holding(drawn[0], self._ready_batches).end_offset
        run = [each for at, each in enumerate(drawn) if drawn[0].offset + at == each.offset < end]
        self.ready = iter(drawn[len(run) :])
        return run

    def _handed_out(self, progress: Progress, end: int, batch_end: int) -> int:
        """All up to `end` is handed out. Returns the batch's size if that is its end, else 0."""
        progress.next = end
        self._turns.rotate(-1)
        if end != batch_end:
            return 0
        size = progress.pop()
        if not progress.queue:
            progress.next = progress.expected  # further on, if retention has left a gap
            self._turns.remove(progress)
        return size

    def _let_go(self, size: int) -> None:
        self.held_bytes -= size
        self._give_back(size)


def _holding(message: Message, batches: list[Stored]) -> Stored:
    """The one of these that has the message."""
    return next(each for each in batches if message.offset < each.end_offset)


def drain(messages: Iterator[Message]) -> None:
    """Draw all that is left, so that nobody else can."""
    deque(messages, maxlen=0)
