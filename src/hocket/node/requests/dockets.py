"""Batches that wait until somebody outside the process has judged them (`hooks.Judges`).

Rule 1: a docket is what one producer sends to one partition, or, of batches without a producer, one
        connection. Batches leave a docket in the order in which they came.
Rule 2: a batch is shown to the judges if it is the next one of its producer, or follows on one that
        is shown: those behind do not wait for the answers of those before to be asked about.
Rule 3: any other one, such as one that comes again, waits for its turn. Only then can be told
        whether it is stored already, and if it is not, it is shown.

A docket is there while something waits in it. What waits without being shown is bounded here, the
rest by the judges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.session.session import OpenedProducer, Session
from hocket.errors import Busy, HocketError
from hocket.node.running.hooks import Judged
from hocket.wire.batch import NO_PRODUCER, BatchInfo

UNASKED_BYTES_MAX = 16 << 20  # of batches that wait for their turn to be shown

Key = tuple[int, bytes | int]  # the partition's group, and the producer's id or the connection


class State(Enum):
    UNASKED = auto()
    ASKING = auto()  # the question is being put, and may be answered at once
    ASKED = auto()
    JUDGED = auto()


@dataclass(slots=True, eq=False)
class Waiting:
    """A batch with all that is needed to store it later; its payload is its own."""

    group: int
    number: int  # of the partition
    origin: Origin
    session: Session
    topic: Topic
    opened: OpenedProducer | None  # None: it came as a request of its own
    info: BatchInfo
    payload: memoryview
    state: State = State.UNASKED
    outcome: bytes | HocketError | None = None

    @property
    def key(self) -> Key:
        return docket_of(self.group, self.origin, self.info)

    def follows(self, before: Waiting) -> bool:
        mine, its = self.info, before.info
        if mine.producer_id == NO_PRODUCER:
            return True
        is_same = (mine.producer_id, mine.epoch) == (its.producer_id, its.epoch)
        return is_same and mine.sequence == its.sequence + 1


def docket_of(group: int, origin: Origin, info: BatchInfo) -> Key:
    producer_id = info.producer_id
    return group, origin.connection if producer_id == NO_PRODUCER else producer_id


class Dockets:
    def __init__(
        self,
        is_next: Callable[[Waiting], bool],
        ask: Callable[[Waiting, Judged], None],
        release: Callable[[Waiting], None],
    ) -> None:
        self._is_next = is_next
        self._ask = ask
        self._release = release
        self.dockets: dict[Key, deque[Waiting]] = {}
        self._unasked_bytes = 0

    def add(self, waiting: Waiting) -> None:
        """Raises Busy if too much waits. It may be released at once."""
        docket = self.dockets.get(waiting.key)
        if docket and docket[-1].state is not State.UNASKED and waiting.follows(docket[-1]):
            docket.append(waiting)
            self._show(waiting)
        else:
            size = waiting.info.size  # one passes, however large it is
            if self._unasked_bytes and self._unasked_bytes + size > UNASKED_BYTES_MAX:
                raise Busy("too much waits here behind what plug-ins look at; try again")
            self._unasked_bytes += size
            self.dockets.setdefault(waiting.key, deque()).append(waiting)
        self._advance(waiting.key)

    def give_up(self, error: HocketError) -> None:
        """Release all that waits, as refused."""
        dockets, self.dockets = self.dockets, {}
        for docket in dockets.values():
            for waiting in docket:
                waiting.state, waiting.outcome = State.JUDGED, error
                self._release(waiting)
        self._unasked_bytes = 0

    def _show(self, waiting: Waiting) -> None:
        waiting.state = State.ASKING
        self._ask(waiting, lambda outcome: self._judged(waiting, outcome))
        if waiting.state is State.ASKING:
            waiting.state = State.ASKED

    def _judged(self, waiting: Waiting, outcome: bytes | HocketError | None) -> None:
        if waiting.state is State.JUDGED:  # it was given up
            return
        is_at_once = waiting.state is State.ASKING
        waiting.state, waiting.outcome = State.JUDGED, outcome
        if not is_at_once:  # else whoever asks goes on: a long docket must not be a deep stack
            self._advance(waiting.key)

    def _advance(self, key: Key) -> None:
        """Release what is at the head of the docket, as far as it is judged."""
        while docket := self.dockets.get(key):
            head = docket[0]
            if head.state is State.UNASKED:
                self._unasked_bytes -= head.info.size
                if self._is_next(head):
                    self._show(head)
                else:
                    head.state = State.JUDGED  # whoever stores it knows what to say of it
            if head.state is not State.JUDGED:
                return
            docket.popleft()
            if not docket:
                del self.dockets[key]
            self._release(head)
