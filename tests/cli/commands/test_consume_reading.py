"""The parts of `consume`, with batches made by hand: where it ends, and what it acknowledges."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hocket.cli.commands.consume import Printing, Reading
from hocket.errors import CorruptData, Timeout
from hocket.model import PartitionId


@dataclass
class Batch:
    partition: int
    offset: int
    count: int
    acked: list[int] = field(default_factory=list)
    damaged: bool = False
    topic: str = "t"

    def values(self) -> list[bytes]:
        if self.damaged:
            raise CorruptData("offsets 0 to 9")
        return [b"%d" % offset for offset in range(self.offset, self.offset + self.count)]

    def messages(self) -> list[Message]:
        return [Message(self, self.offset + each) for each in range(self.count)]

    def ack(self) -> None:
        self.acked.append(self.offset + self.count - 1)


@dataclass
class Message:
    batch: Batch
    offset: int

    def ack(self) -> None:
        self.batch.acked.append(self.offset)


@dataclass
class Gap:
    """Retention has moved the subscription; nothing comes in time."""

    partition: int
    to: int


class Subscription:
    """Hands out what it was made of, in order."""

    def __init__(self, *script: Batch | Gap) -> None:
        self._script = deque(script)
        self._positions: dict[int, int] = {}
        self.timeouts: list[float | None] = []

    def position(self, partition: int, topic: str) -> int:
        assert topic == "t"
        return self._positions.get(partition, 0)

    def receive_batch(self, timeout: float | None) -> Batch:
        self.timeouts.append(timeout)
        if not self._script:
            raise Timeout("nothing came")
        step = self._script.popleft()
        if isinstance(step, Gap):
            self._positions[step.partition] = step.to
            raise Timeout("nothing came")
        self._positions[step.partition] = step.offset + step.count
        return step


class Undisturbed:
    """In place of `StopSignals`: no signal comes."""

    def wait_for(self, receive: Callable[[float | None], Batch], timeout: float | None) -> Batch:
        return receive(timeout)


def read(
    subscription: Subscription, ends: dict[int, int] | None = None, count_max: int | None = None
) -> list[tuple[int, int, int]]:
    """(partition, offset, how many are wanted) of each batch."""
    reading = Reading(
        subscription,  # type: ignore[arg-type]
        Undisturbed(),  # type: ignore[arg-type]
        ends=None if ends is None else {PartitionId("t", each): ends[each] for each in ends},
        count_max=count_max,
        timeout=7,
    )
    portions = iter(reading.next, None)
    return [(batch.partition, batch.offset, count) for batch, count in portions]


def test_it_ends_when_every_partition_is_at_its_end():
    batches = Batch(0, 0, 5), Batch(1, 0, 3), Batch(0, 5, 5)
    assert read(Subscription(*batches), {0: 10, 1: 3}) == [(0, 0, 5), (1, 0, 3), (0, 5, 5)]


def test_nothing_is_waited_for_where_there_is_nothing():
    subscription = Subscription()
    assert read(subscription, {0: 0, 1: 0}) == []
    assert subscription.timeouts == []


def test_what_came_after_the_beginning_is_not_wanted():
    batches = Batch(0, 0, 5), Batch(0, 5, 5), Batch(1, 0, 9)
    assert read(Subscription(*batches), {0: 3, 1: 2}) == [(0, 0, 3), (1, 0, 2)]


def test_a_partition_that_has_come_into_being_since_is_not_wanted():
    assert read(Subscription(Batch(7, 0, 5), Batch(0, 0, 1)), {0: 1}) == [(0, 0, 1)]


def test_it_ends_where_retention_removes_what_it_waits_for():
    assert read(Subscription(Batch(0, 0, 5), Gap(0, 10)), {0: 8}) == [(0, 0, 5)]


def test_what_does_not_come_in_time_is_an_error():
    subscription = Subscription(Batch(0, 0, 5))
    with pytest.raises(Timeout):
        read(subscription, {0: 8})
    assert subscription.timeouts == [7, 7]


def test_following_waits_without_end():
    subscription = Subscription(Batch(0, 0, 5), Batch(0, 5, 5))
    assert read(subscription, count_max=7) == [(0, 0, 5), (0, 5, 2)]
    assert subscription.timeouts == [None, None]


def test_following_a_pattern_looks_around_while_nothing_comes():
    looks: list[int] = []
    subscription = Subscription(Gap(0, 0), Batch(0, 0, 5))
    reading = Reading(
        subscription,  # type: ignore[arg-type]
        Undisturbed(),  # type: ignore[arg-type]
        ends=None,
        count_max=5,
        timeout=7,
        look=lambda: looks.append(len(subscription.timeouts)),
    )
    assert [count for _, count in iter(reading.next, None)] == [5]
    assert (looks, subscription.timeouts) == ([1], [1.0, 1.0])


class Writer:
    """Takes so many lines, then fails."""

    def __init__(self, room: int) -> None:
        self.lines: list[bytes] = []
        self.written = 0
        self._room = room

    def write(self, lines: list[bytes]) -> None:
        self.written = min(len(lines), self._room)
        self._room -= self.written
        self.lines += lines[: self.written]
        if self.written < len(lines):
            raise BrokenPipeError


def printing(writer: Writer, *, acking: bool = True) -> Any:
    return Printing(writer, acking=acking, as_json=False)  # type: ignore[arg-type]


def test_a_batch_that_was_written_whole_is_acknowledged_at_once():
    writer, batch = Writer(10), Batch(0, 0, 3)
    printing(writer).print(batch, 3)
    assert writer.lines == [b"0\n", b"1\n", b"2\n"]
    assert batch.acked == [2]


@pytest.mark.parametrize(("room", "acked"), [(0, []), (2, [5, 6])])
def test_only_what_was_written_is_acknowledged(room: int, acked: list[int]):
    batch = Batch(0, 5, 3)
    with pytest.raises(BrokenPipeError):
        printing(Writer(room)).print(batch, 3)
    assert batch.acked == acked


def test_only_what_was_wanted_is_acknowledged():
    batch = Batch(0, 0, 3)
    printing(Writer(10)).print(batch, 2)
    assert batch.acked == [0, 1]


def test_a_batch_that_cannot_be_read_is_not_acknowledged_for_the_one_before():
    both = printing(Writer(10))
    both.print(Batch(0, 0, 5), 5)
    damaged = Batch(0, 5, 5, damaged=True)
    with pytest.raises(CorruptData):
        both.print(damaged, 5)
    assert damaged.acked == []


def test_without_acks_nothing_is_acknowledged():
    batch = Batch(0, 0, 3)
    printing(Writer(10), acking=False).print(batch, 3)
    assert batch.acked == []
