"""Requests about indexes that several partitions have a part in: done when every one has done its.

An operation's number is the `request` of the origin that its events carry into the partitions; the
effects that come back carry it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.core.origin import Origin
from hocket.core.partition.cursors import Cursor
from hocket.core.session.session import failure
from hocket.errors import HocketError, UnknownTopic
from hocket.frames import Done, Frame
from hocket.ports import Network


@dataclass(slots=True, eq=False)
class Operation:
    connection: int
    topic: str
    waiting: int  # how many partitions have not done their part yet
    finish: Callable[[Operation], None]
    cursors: dict[int, Cursor | None] = field(default_factory=dict)  # by partition
    error: HocketError | None = None


class Operations:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._operations: dict[int, Operation] = {}
        self._last = 0

    def begin(
        self, connection: int, topic: str, waiting: int, finish: Callable[[Operation], None]
    ) -> int:
        """The number of a new operation. Without partitions to wait for, it is finished at once."""
        self._last += 1
        operation = Operation(connection, topic, waiting, finish)
        if waiting:
            self._operations[self._last] = operation
        else:
            finish(operation)
        return self._last

    def part_done(
        self, origin: Origin, partition: int, outcome: Cursor | HocketError | None
    ) -> None:
        """A partition has done its part of what `origin` asked for; nothing if nobody waits."""
        operation = self._operations.get(origin.request)
        if operation is None:
            return
        operation.waiting -= 1
        if isinstance(outcome, HocketError):
            operation.error = operation.error or outcome
        else:
            operation.cursors[partition] = outcome
        if not operation.waiting:
            del self._operations[origin.request]
            operation.finish(operation)

    def topic_deleted(self, topic: str, why: str) -> None:
        """What the topic's partitions still had to do will not be done."""
        for number, operation in list(self._operations.items()):
            if operation.topic == topic:
                del self._operations[number]
                operation.error = UnknownTopic(why)
                operation.finish(operation)

    def answer_done(self, request: int, operation: Operation) -> None:
        """For `finish`, where the answer is Done or the error."""
        answer: Frame = Done(request)
        if operation.error is not None:
            answer = failure(request, operation.error)
        self._network.send(operation.connection, answer)
