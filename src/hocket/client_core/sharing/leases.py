"""Messages of a shared index that wait in this client, and the order in which they are handed out.

Messages are made in chunks, of one portion (what one delivery leases of one batch) at a time, and
partitions take turns. A chunk is an iterator of a list (`ready`) that any number of threads may
draw from without a lock; whoever takes messages of a chunk back does so by drawing them.

The size of each batch goes out once through `give_back`: when the last of its leased messages is
handed out or dropped.

Leases run while messages wait, so they are renewed: in the queue after a third of their length, in
`ready` after a tenth. Nobody is asked when a message is drawn from `ready`, and whoever draws it is
to have nearly the whole lease. A renewal counts when the broker has granted it, and from when it
was sent. What waits here and was not renewed in time (the broker stands still, say) is `stale`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterator
from itertools import accumulate, repeat
from operator import length_hint
from typing import NamedTuple

from hocket.client_core.consuming.message import Message, MessageBatch, count_of, offset_of
from hocket.client_core.sharing.message import hash_of, leased_messages
from hocket.client_core.sharing.progress import Portion, SharedProgress, Source
from hocket.client_core.sharing.ranges import Range, Run, ranges_of
from hocket.errors import CorruptData, ProtocolError
from hocket.model import EntryKind
from hocket.wire.batch import iterate_entries

CHUNK = 512  # messages made at a time, at most
ALL = range(1 << 63)


class Unreadable(NamedTuple):
    """Messages of one batch that cannot be handed out."""

    progress: SharedProgress
    offsets: list[int]
    is_whole: bool = True  # False: the batch did not come as it was sent, or nobody here knows it


class Leases:
    def __init__(
        self,
        topic: str,
        *,
        message: type[Message],
        batch: type[MessageBatch],
        chunk: int,
        give_back: Callable[[int], None],
    ) -> None:
        self.by_partition: dict[int, SharedProgress] = {}
        self.ready: Iterator[Message] = iter(())
        self.lease_us = 0  # the length of a lease, as the broker says
        self.deliveries = 0  # how many Lease frames have come
        self.chunk = chunk  # messages made at a time
        self._topic = topic
        self._message = message
        self._batch = batch
        self._give_back = give_back
        self.renewals: list[tuple[SharedProgress, list[int]]] = []  # to be told to the broker
        self._turns: deque[SharedProgress] = deque()  # those whose queue is not empty
        self._messages: list[Message] = []  # what `ready` draws from
        self._ready_progress: SharedProgress | None = None
        self._ready_portion: Portion | None = None
        self._left = 0  # how many messages `ready` had when it was last looked at
        self._ready_bytes = 0  # to be given back when `ready` is drawn empty
        self._ready_us = 0  # when the leases of `ready` were renewed
        self._ready_asked_us = 0  # when that was last asked for
        self._taken_us = 0  # when the application was last seen to take something

    def __bool__(self) -> bool:
        """Whether a message waits to be handed out."""
        return bool(self._turns) or length_hint(self.ready) > 0

    # --- in --------------------------------------------------------------------------------------

    def keep(
        self,
        progress: SharedProgress,
        runs: list[Run],
        payload: memoryview,
        *,
        continued: bool,
        now_us: int,
    ) -> None:
        if not self:
            self._taken_us = now_us
        self.deliveries += 1
        sources: list[tuple[Source, int]] = []
        if continued:
            if progress.last is None:
                raise ProtocolError(f"partition {progress.partition} goes on in a batch never sent")
            sources.append((progress.last, 0))
        for position, header in iterate_entries(payload):
            if header.kind == EntryKind.BATCH:
                sources.append((Source(payload, position, header), header.size))
            else:
                self._give_back(header.size)
        if sources:
            progress.last = sources[-1][0]
        was_empty = not progress.queue
        for source, size, part in _parted(progress, sources, runs):
            if part:
                progress.queue.append(Portion(source, size, part, self.deliveries, now_us))
            else:
                self._give_back(size)
        if was_empty and progress.queue:
            self._turns.append(progress)

    # --- out -------------------------------------------------------------------------------------

    def refill(self, now_us: int) -> bool:
        """Put messages into `ready`, which is empty. False: no message is here.

        Raises CorruptData if they cannot be read; then `unreadable` says which.
        """
        self.count_drawn(now_us)
        if not self._turns:
            return False
        progress, portion = self._head(now_us)
        whole = list(portion.runs)
        runs = _cut(portion.runs, self.chunk)
        try:
            messages = leased_messages(
                self._message, portion.source.batch(), runs, self._topic, progress
            )
        except CorruptData:
            portion.runs = whole
            raise
        offsets = [*map(offset_of, messages)]
        progress.hand_out(offsets, map(count_of, messages), portion.renewed_us)
        self._ready_bytes = self._pass_turn(progress, portion)
        self._ready_progress, self._ready_portion = progress, portion
        self._ready_us, self._ready_asked_us = portion.renewed_us, portion.asked_us
        self._taken_us = now_us
        self._make_ready(messages)
        return True

    def take_batch(self, now_us: int) -> MessageBatch | None:
        """What is left of the messages in `ready`, or the next run; None: no message is here.

        Raises CorruptData like `refill`.
        """
        run = self._take_run(now_us)
        if run is not None:
            assert self._ready_progress is not None
            assert self._ready_portion is not None
            progress, portion = self._ready_progress, self._ready_portion
            start, end, count = run
        elif self._turns:
            progress, portion = self._head(now_us)
            start, end, count = portion.runs[0]
            batch = portion.source.batch()
            # Here, and not when the application reads it: then it is too late to set it aside.
            batch.check(start - batch.base_offset, end - batch.base_offset)
            del portion.runs[0]
            progress.hand_out(range(start, end), repeat(count), portion.renewed_us)
            self._give_back(self._pass_turn(progress, portion))
        else:
            return None
        self._taken_us = now_us
        return self._batch(
            self._message, portion.source.batch(), start, end, self._topic, progress, count
        )

    def _head(self, now_us: int) -> tuple[SharedProgress, Portion]:
        """The partition whose turn it is, and its first portion. Raises CorruptData if damaged."""
        progress = self._turns[0]
        portion = progress.queue[0]
        portion.source.batch()
        if now_us - max(portion.renewed_us, portion.asked_us) > self.lease_us // 10:
            self._renew(progress, portion, now_us)
        return progress, portion

    def unreadable(self) -> Unreadable:
        """Which messages of the portion whose turn it is cannot be read, after CorruptData."""
        progress = self._turns[0]
        portion = progress.queue[0]
        offsets = portion.offsets()
        try:
            batch = portion.source.batch()
        except CorruptData:
            return Unreadable(progress, offsets, is_whole=False)
        base = batch.base_offset
        found = set(batch.unreadable(offsets[0] - base, offsets[-1] + 1 - base))
        return Unreadable(progress, [each for each in offsets if each - base in found])

    def _make_ready(self, messages: list[Message]) -> None:
        self._messages = messages
        self._left = len(messages)
        self.ready = iter(messages)

    def _take_run(self, now_us: int) -> Run | None:
        """Take from `ready` the messages that stand side by side; others may draw from it too."""
        drawn = self._draw_all()
        if not drawn:
            self.count_drawn(now_us)
            return None
        start, count = drawn[0][5], drawn[0][7]
        end = start
        for message in drawn:
            if message[5] != end or message[7] != count:
                break
            end += 1
        self._messages, self.ready = drawn, iter(drawn[end - start :])
        self.count_drawn(now_us)
        return start, end, count

    def _draw_all(self) -> list[Message]:
        """Draw what nobody else has drawn; nobody else can draw it then."""
        drawn = list(self.ready)
        self._left = len(drawn)
        return drawn

    def _pass_turn(self, progress: SharedProgress, portion: Portion) -> int:
        """It is the next partition's turn. Returns the portion's size if it is used up, else 0."""
        self._turns.rotate(-1)
        if portion.runs:
            return 0
        progress.queue.remove(portion)
        if not progress.queue:
            self._turns.remove(progress)
        return portion.size

    def count_drawn(self, now_us: int) -> None:
        """See what was drawn from `ready`; once it is empty, give its batch's size back."""
        left = length_hint(self.ready)
        drawn, self._left = self._left - left, left
        size = 0
        if not left:
            size, self._ready_bytes = self._ready_bytes, 0
        if drawn or size:
            self._taken_us = now_us
            self._give_back(size)

    # --- renewal ---------------------------------------------------------------------------------

    def look_for_old(self, now_us: int) -> None:
        """Put into `renewals` the leases of messages that have waited for long."""
        waiting = self._ready_offsets()
        asked_us = max(self._ready_us, self._ready_asked_us)
        if waiting and now_us - asked_us >= self.lease_us // 10:
            assert self._ready_progress is not None
            self._ready_asked_us = now_us
            self.renewals.append((self._ready_progress, waiting))
        for progress in self.by_partition.values():
            for portion in progress.queue:
                if now_us - max(portion.renewed_us, portion.asked_us) >= self.lease_us // 3:
                    self._renew(progress, portion, now_us)

    def _renew(self, progress: SharedProgress, portion: Portion, now_us: int) -> None:
        portion.asked_us = now_us
        self.renewals.append((progress, portion.offsets()))

    def renewed(
        self, progress: SharedProgress, ranges: list[Range], sent_us: int, delivery: int
    ) -> None:
        """The broker has renewed these leases, of deliveries up to `delivery`.

        A renewal is of whole portions, and what was refused of one is not in it any more.
        """
        has = [start for start, _ in ranges], [end for _, end in ranges]
        held = progress.held
        progress.renewed(
            [each for start, end in ranges for each in range(start, end) if each in held], sent_us
        )
        for portion in progress.queue:
            if portion.number <= delivery and _is_in(*has, portion.runs[0][0]):
                portion.renewed_us = max(portion.renewed_us, sent_us)
        ready, undrawn = self._ready_portion, self._undrawn()
        if (
            self._ready_progress is progress
            and ready is not None
            and ready.number <= delivery
            and undrawn
            and _is_in(*has, undrawn[0][5])
        ):
            self._ready_us = max(self._ready_us, sent_us)

    def stale(self, now_us: int) -> list[tuple[SharedProgress, set[int]]]:
        """What waits, and must not be handed out: its lease may be over before it is."""
        before_us = self._stale_before(now_us)
        found: dict[SharedProgress, set[int]] = {}
        for progress in self.by_partition.values():
            for portion in progress.queue:
                if portion.renewed_us <= before_us:
                    found.setdefault(progress, set()).update(portion.offsets())
        waiting = self._ready_offsets() if self._ready_us <= before_us else []
        if waiting and self._ready_progress in self.by_partition.values():
            assert self._ready_progress is not None
            found.setdefault(self._ready_progress, set()).update(waiting)
        return list(found.items())

    def is_next_stale(self, now_us: int) -> bool:
        """Whether what `refill` or `take_batch` would take first from a queue is `stale`."""
        if not self._turns:
            return False
        return self._turns[0].queue[0].renewed_us <= self._stale_before(now_us)

    def _stale_before(self, now_us: int) -> int:
        return now_us - self.lease_us * 9 // 10

    def untouched_us(self, now_us: int) -> int:
        """How long messages have waited without the application taking one."""
        self.count_drawn(now_us)
        return now_us - self._taken_us if self else 0

    def waiting(self, progress: SharedProgress) -> set[int]:
        """The offsets of the partition's messages that were not handed out."""
        found = set(self._ready_offsets()) if self._ready_progress is progress else set()
        for portion in progress.queue:
            found.update(portion.offsets())
        return found

    def in_turn(self) -> list[SharedProgress]:
        """All partitions; first that of which the next message is handed out."""
        first = self._turns[0] if self._turns else None
        if length_hint(self.ready):
            first = self._ready_progress
        return sorted(self.by_partition.values(), key=lambda each: each is not first)

    def first_waiting(self, progress: SharedProgress) -> tuple[int, int]:
        """Of the partition's messages that wait, the first: its delivery's number, its offset.

        If none waits: the number of the next delivery, and 0.
        """
        left = length_hint(self.ready) if self._ready_progress is progress else 0
        if left:
            assert self._ready_portion is not None
            return self._ready_portion.number, self._messages[-left][5]
        if progress.queue:
            portion = progress.queue[0]
            return portion.number, portion.runs[0][0]
        return self.deliveries + 1, 0

    def _ready_offsets(self) -> list[int]:
        return [message[5] for message in self._undrawn()]

    def _undrawn(self) -> list[Message]:
        return self._messages[len(self._messages) - length_hint(self.ready) :]

    # --- taking back -----------------------------------------------------------------------------

    def withdraw(
        self, progress: SharedProgress, doomed: Container[int] = ALL, *, delivery: int | None = None
    ) -> dict[int, int]:
        """Drop messages that were not handed out, of deliveries up to `delivery`.

        Returns the offsets of those dropped, with the hashes of their keys where these matter.
        """
        if delivery is None:
            delivery = self.deliveries
        found: dict[int, int] = {}
        if self._ready_progress is progress:
            assert self._ready_portion is not None
            if self._ready_portion.number <= delivery:
                self._withdraw_ready(progress, doomed, found)
        for portion in list(progress.queue):
            if portion.number <= delivery:
                self._withdraw_portion(progress, portion, doomed, found)
        return found

    def _withdraw_ready(
        self, progress: SharedProgress, doomed: Container[int], found: dict[int, int]
    ) -> None:
        drawn = self._draw_all()
        gone = [each for each in drawn if each[5] in doomed]
        for message in gone:
            del progress.held[message[5]]
            found[message[5]] = hash_of(message[1]) if progress.keyed else 0
        self._make_ready([each for each in drawn if each[5] not in doomed])
        size = 0
        if not self._left:
            size, self._ready_bytes = self._ready_bytes, 0
        self._give_back(size)

    def _withdraw_portion(
        self,
        progress: SharedProgress,
        portion: Portion,
        doomed: Container[int],
        found: dict[int, int],
    ) -> None:
        gone = [each for each in portion.offsets() if each in doomed]
        if not gone:
            return
        found.update((each, portion.key_hash(each) if progress.keyed else 0) for each in gone)
        portion.runs = [
            (start, end, count)
            for first, last, count in portion.runs
            for start, end in ranges_of(each for each in range(first, last) if each not in doomed)
        ]
        size = 0
        if not portion.runs:
            size = portion.size
            progress.queue.remove(portion)
            if not progress.queue:
                self._turns.remove(progress)
        self._give_back(size)

    def behind(self, progress: SharedProgress, firsts: dict[int, int]) -> set[int]:
        """Messages behind the offset that `firsts` has for the hash of their key."""
        found = set()
        if self._ready_progress is progress:
            for message in self._undrawn():
                if message[5] > firsts.get(hash_of(message[1]), message[5]):
                    found.add(message[5])
        for portion in progress.queue:
            for offset in portion.offsets():
                if offset > firsts.get(portion.key_hash(offset), offset):
                    found.add(offset)
        return found

    def overtaking(self, progress: SharedProgress, again: set[int]) -> set[int]:
        """What would overtake messages of the last delivery that came `again`, where order matters.

        It came before them, while they were here by a lease that has ended, and waits still.
        """
        if not progress.keyed or not again:
            return set()
        firsts: dict[int, int] = {}
        for portion in reversed(progress.queue):
            if portion.number == self.deliveries:
                for offset in reversed(portion.offsets()):
                    if offset in again:
                        firsts[portion.key_hash(offset)] = offset
        firsts.pop(0, None)  # of no key
        came = {
            offset
            for portion in progress.queue
            if portion.number == self.deliveries
            for offset in portion.offsets()
        }
        return self.behind(progress, firsts) - came if firsts else set()

    def replace(self, old: SharedProgress, new: SharedProgress) -> None:
        """The index was put elsewhere: drop what was delivered before that."""
        self.withdraw(old)
        old.void()
        new.last = old.last
        self.by_partition[new.partition] = new

    def clear(self) -> None:
        """Drop all that waits, without credit: the link it was for is gone, or the end has come."""
        for message in list(self.ready):
            message[8].held.pop(message[5], None)
        self._make_ready([])
        self._ready_bytes = 0
        self._turns.clear()
        for progress in self.by_partition.values():
            progress.queue.clear()
            progress.link_lost()


def _parted(
    progress: SharedProgress, sources: list[tuple[Source, int]], runs: list[Run]
) -> Iterator[tuple[Source, int, list[Run]]]:
    """Which of the runs each batch holds. Raises if a batch for some message did not come."""
    former = 0
    for start, end, _ in runs:
        if not former <= start < end:
            raise _missing(progress, start)
        former = end
    at = 0
    for source, size in sources:
        first, last = source.header.base_offset, source.header.end_offset
        end_at = bisect_left(runs, (last,), at)
        part = runs[at:end_at]
        at = end_at
        if part and part[0][0] < first:
            raise _missing(progress, part[0][0])
        if part and part[-1][1] > last:
            start, end, count = part[-1]
            part[-1] = (start, last, count)
            at -= 1
            runs[at] = (last, end, count)
        yield source, size, part
    if at < len(runs):
        raise _missing(progress, runs[at][0])


def _is_in(starts: list[int], ends: list[int], offset: int) -> bool:
    at = bisect_right(starts, offset) - 1
    return at >= 0 and offset < ends[at]


def _missing(progress: SharedProgress, offset: int) -> ProtocolError:
    return ProtocolError(
        f"offset {offset} of partition {progress.partition} was leased, but its batch did not come"
    )


def _cut(runs: list[Run], most: int) -> list[Run]:
    """Take at most `most` messages from the front of `runs`, and return them as runs."""
    sizes = list(accumulate(end - start for start, end, _ in runs[:most]))  # each has one or more
    whole = bisect_right(sizes, most)
    found = runs[:whole]
    del runs[:whole]
    left = most - (sizes[whole - 1] if whole else 0)
    if runs and left:
        start, end, count = runs[0]
        found.append((start, start + left, count))
        runs[0] = (start + left, end, count)
    return found
