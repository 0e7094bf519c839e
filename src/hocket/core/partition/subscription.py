"""One open subscription: what to read next for it, within the credit its consumer has given.

Rule 1: at most one read for each partition is under way, so batches leave in the log's order.
Rule 2: nothing is read without credit. A batch larger than the rest of the credit is sent whole,
        and nothing more is read before that debt is paid.
Rule 3: partitions take turns, so that a busy one does not starve the others.

Nothing here knows indexes: where reading begins was decided when the subscription was opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

READ_BYTES_MAX = 1 << 20  # that one read, and so one frame, has, unless a single batch is larger


@dataclass(slots=True)
class Progress:
    """How far one partition has been sent. Invariant: while `reading`, no other read begins."""

    next: int  # the offset to be read next
    end: int  # of the log, as far as it may be read
    start: int = 0  # of the log: older records are gone
    reading: bool = False
    bytes_asked: int = 0  # the `bytes_max` of the read under way
    end_asked: int = 0  # the `end` of the read under way
    empty: bool = False  # a read found nothing up to the end: no further one before the end moves
    moves: int = 0  # how often `next` was put elsewhere: a read from before a move is stale
    held: bool = False  # nothing is read until the consumer has heard of the last move


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class CreditGiven:
    bytes: int


@dataclass(slots=True)
class Advanced:
    """The readable range of the partition has become [start, end)."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class ReadDone:
    partition: int
    moves: int
    next: int  # the offset behind the last record read
    bytes: int  # 0: nothing was read
    start: int = 0  # where reading really began: behind the offset asked for if that is lost


@dataclass(slots=True)
class Sought:
    """The index was put to this offset."""

    partition: int
    offset: int
    hold: bool = False  # read nothing more before MoveHeard


@dataclass(slots=True)
class MoveHeard:
    """The consumer knows where its index was put."""

    partition: int


Event = CreditGiven | Advanced | ReadDone | Sought | MoveHeard


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Read:
    """Read from `offset`, up to `end`; the answer is ReadDone with the same `moves`."""

    partition: int
    offset: int
    bytes_max: int
    end: int
    moves: int


@dataclass(slots=True)
class Send:
    """Send the records just read to the consumer; `offset` is the first one that it wants."""

    partition: int
    offset: int


@dataclass(slots=True)
class TellMoved:
    """Tell the consumer that it goes on at `offset`, and how many records it misses by that."""

    partition: int
    offset: int
    lost: int


Effect = Read | Send | TellMoved


class Subscription:
    def __init__(self, partitions: Iterable[tuple[int, Progress]], credit: int) -> None:
        self.partitions = dict(partitions)
        self.credit = credit
        self._turns = deque(self.partitions)
        self._bytes_under_way = 0  # that the reads under way may return: part of the credit

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    def begin(self) -> list[Effect]:
        return self._reads()

    @property
    def is_done(self) -> bool:
        """All that there is was sent, for now."""
        return all(
            not each.reading and (each.empty or each.next >= each.end)
            for each in self.partitions.values()
        )

    def add(self, partition: int, progress: Progress) -> None:
        """The topic has grown by this partition."""
        self.partitions[partition] = progress
        self._turns.append(partition)

    def _credit_given(self, event: CreditGiven) -> list[Effect]:
        self.credit += event.bytes
        return self._reads()

    def _advanced(self, event: Advanced) -> list[Effect]:
        progress = self.partitions[event.partition]
        progress.empty = progress.empty and progress.end == event.end
        progress.start, progress.end = event.start, event.end
        return self._reads() if self.credit > 0 else []

    def follow(self, event: Advanced, offset: int, next_: int, size: int) -> bool:
        """`Advanced`, if what lies from `offset` to the new end, of this size, is at hand already.

        True: it is to be sent, and all is as if it had been read now. False: nothing has changed,
        and `step` has to decide. Of many subscriptions that are told the same most stand side by
        side, and this takes about half of the time.
        """
        progress = self.partitions[event.partition]
        if (
            progress.next != offset
            or progress.reading
            or progress.held
            or (progress.empty and progress.end == event.end)
            or offset < event.start
            or not offset < next_ == event.end
            or not 0 < size <= min(READ_BYTES_MAX, self.credit - self._bytes_under_way)
        ):
            return False
        progress.start, progress.end, progress.next = event.start, event.end, next_
        progress.empty = False
        self.credit -= size
        return True

    def _read_done(self, event: ReadDone) -> list[Effect]:
        progress = self.partitions[event.partition]
        progress.reading = False
        self._bytes_under_way -= progress.bytes_asked
        if event.moves != progress.moves:
            return self._reads()
        effects: list[Effect] = []
        began = event.start if event.bytes else event.next
        if began > progress.next:  # the records between are damaged beyond repair, and given up
            effects.append(TellMoved(event.partition, began, began - progress.next))
            progress.next = began
        if event.bytes:
            effects.append(Send(event.partition, progress.next))
            progress.next = event.next
            self.credit -= event.bytes
        else:
            progress.empty = progress.end == progress.end_asked  # else the end has moved meanwhile
        return [*effects, *self._reads()]

    def _sought(self, event: Sought) -> list[Effect]:
        progress = self.partitions[event.partition]
        progress.next = event.offset
        progress.moves += 1
        progress.empty = False
        progress.held = event.hold
        return [TellMoved(event.partition, event.offset, 0), *self._reads()]

    def _move_heard(self, event: MoveHeard) -> list[Effect]:
        self.partitions[event.partition].held = False
        return self._reads()

    def _reads(self) -> list[Effect]:
        effects: list[Effect] = []
        for _ in range(len(self._turns)):
            left = self.credit - self._bytes_under_way
            if left <= 0:
                break
            partition = self._turns[0]
            self._turns.rotate(-1)
            progress = self.partitions[partition]
            if progress.reading or progress.held:
                continue
            if progress.next < progress.start:
                lost, progress.next = progress.start - progress.next, progress.start
                progress.moves += 1
                effects.append(TellMoved(partition, progress.next, lost))
            if progress.next < progress.end and not progress.empty:
                progress.reading = True
                progress.bytes_asked, progress.end_asked = min(READ_BYTES_MAX, left), progress.end
                self._bytes_under_way += progress.bytes_asked
                read = Read(
                    partition, progress.next, progress.bytes_asked, progress.end, progress.moves
                )
                effects.append(read)
        return effects

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        CreditGiven: _credit_given,
        Advanced: _advanced,
        ReadDone: _read_done,
        Sought: _sought,
        MoveHeard: _move_heard,
    }
