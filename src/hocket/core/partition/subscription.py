"""One open subscription: what to read next for it, within the credit its consumer has given.

Rule 1: at most one read per partition is under way, so batches leave in log order.
Rule 2: nothing is read without credit. A batch larger than what is left is sent whole, and the
        debt is paid before anything more is.
Rule 3: partitions take turns, so that a busy one does not starve the others.

Nothing here knows indexes: where a partition begins was decided when the subscription was opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

READ_BYTES_MAX = 1 << 20  # of one read and so of one frame, unless a single batch is larger


@dataclass(slots=True)
class Place:
    """How far one partition has been sent. Invariant: while `reading`, it is not in turn."""

    next: int
    end: int
    start: int = 0  # of the log: what is older is gone
    reading: bool = False
    bytes_asked: int = 0  # while reading
    end_asked: int = 0  # likewise
    empty: bool = False  # up to the end there was nothing: not before the end moves again
    moves: int = 0  # a read that began before the last move is stale
    held: bool = False  # until the consumer has heard of the last move


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class CreditGiven:
    bytes: int


@dataclass(slots=True)
class Advanced:
    """The partition's readable range is now this."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class ReadDone:
    partition: int
    moves: int
    next: int  # the offset behind the last record read
    bytes: int
    start: int = 0  # where reading really began: behind what was asked for if that is lost


@dataclass(slots=True)
class Sought:
    partition: int
    offset: int
    hold: bool = False  # send nothing from there before MoveHeard


@dataclass(slots=True)
class MoveHeard:
    partition: int


Event = CreditGiven | Advanced | ReadDone | Sought | MoveHeard


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Read:
    partition: int
    offset: int
    bytes_max: int
    end: int
    moves: int


@dataclass(slots=True)
class Send:
    """The records just read go to the consumer, `offset` being the first one it wants."""

    partition: int
    offset: int


@dataclass(slots=True)
class TellMoved:
    partition: int
    offset: int
    lost: int


Effect = Read | Send | TellMoved


class Subscription:
    def __init__(self, places: Iterable[tuple[int, Place]], credit: int) -> None:
        self.places = dict(places)
        self.credit = credit
        self._turns = deque(self.places)
        self._bytes_under_way = 0  # asked for by reads: credit that is spoken for

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    def begin(self) -> list[Effect]:
        return self._reads()

    def add(self, partition: int, place: Place) -> None:
        """The topic has grown."""
        self.places[partition] = place
        self._turns.append(partition)

    def _credit_given(self, event: CreditGiven) -> list[Effect]:
        self.credit += event.bytes
        return self._reads()

    def _advanced(self, event: Advanced) -> list[Effect]:
        place = self.places[event.partition]
        place.empty = place.empty and place.end == event.end
        place.start, place.end = event.start, event.end
        return self._reads() if self.credit > 0 else []

    def _read_done(self, event: ReadDone) -> list[Effect]:
        place = self.places[event.partition]
        place.reading = False
        self._bytes_under_way -= place.bytes_asked
        if event.moves != place.moves:
            return self._reads()
        effects: list[Effect] = []
        began = event.start if event.bytes else event.next
        if began > place.next:  # records that are damaged beyond repair, and given up
            effects.append(TellMoved(event.partition, began, began - place.next))
            place.next = began
        if event.bytes:
            effects.append(Send(event.partition, place.next))
            place.next = event.next
            self.credit -= event.bytes
        else:
            place.empty = place.end == place.end_asked  # else it has moved meanwhile
        return [*effects, *self._reads()]

    def _sought(self, event: Sought) -> list[Effect]:
        place = self.places[event.partition]
        place.next = event.offset
        place.moves += 1
        place.empty = False
        place.held = event.hold
        return [TellMoved(event.partition, event.offset, 0), *self._reads()]

    def _move_heard(self, event: MoveHeard) -> list[Effect]:
        self.places[event.partition].held = False
        return self._reads()

    def _reads(self) -> list[Effect]:
        effects: list[Effect] = []
        for _ in range(len(self._turns)):
            left = self.credit - self._bytes_under_way
            if left <= 0:
                break
            partition = self._turns[0]
            self._turns.rotate(-1)
            place = self.places[partition]
            if place.reading or place.held:
                continue
            if place.next < place.start:
                lost, place.next = place.start - place.next, place.start
                place.moves += 1
                effects.append(TellMoved(partition, place.next, lost))
            if place.next < place.end and not place.empty:
                place.reading = True
                place.bytes_asked, place.end_asked = min(READ_BYTES_MAX, left), place.end
                self._bytes_under_way += place.bytes_asked
                effects.append(
                    Read(partition, place.next, place.bytes_asked, place.end, place.moves)
                )
        return effects

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        CreditGiven: _credit_given,
        Advanced: _advanced,
        ReadDone: _read_done,
        Sought: _sought,
        MoveHeard: _move_heard,
    }
