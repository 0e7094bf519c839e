"""The stage that traces are played on: commands in words, effects in words.

One partition with its log, one subscription, and the segments of a log for retention; whoever
comes first in a trace is made by its first command. See `Stage._commands` for what can be said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hocket.core.origin import Origin
from hocket.core.partition import events, subscription as subs
from hocket.core.partition.retention import plan_log_start
from tests.support.core.logged import Logged, Snapshot, batch, origin

_KINDS = {events.BATCH: "batch", events.CURSOR: "cursor", events.CONTROL: "control"}


@dataclass(frozen=True)
class Segment:
    end_offset: int
    bytes: int
    max_timestamp: int
    base_offset: int = 0


class Stage:
    """`produce alice 0 records=3 by=c1` is a command, its words, and its options with defaults."""

    def __init__(self) -> None:
        self.logged = Logged()
        self.snapshot: Snapshot | None = None
        self.subscription = subs.Subscription([], 0)
        self.segments: list[Segment] = []

    def carry_out(self, line: str) -> list[str]:
        words, options = [], {}
        for word in line.split():
            name, found, value = word.partition("=")
            if found:
                options[name] = int(value) if value.lstrip("-").isdecimal() else value
            else:
                words.append(int(word) if word.isdecimal() else word)
        first, *arguments = words
        return self._commands[str(first)](self, *arguments, **options)

    # --- the partition ---------------------------------------------------------------------------

    def _partition(self, durability: str = "quorum") -> list[str]:
        self.logged = Logged(durability=durability)
        return []

    def _produce(
        self,
        producer: str,
        sequence: int,
        epoch: int = 1,
        records: int = 1,
        by: str = "c1",
        crc: int | None = None,
        user: str = "",
        refused: int | None = None,
    ) -> list[str]:
        producer_id = producer.encode().ljust(16, b".")
        sent = batch(
            producer_id, sequence, epoch=epoch, count=records, timestamp=self.logged.now_us, crc=crc
        )
        return self._step(events.Produce(_asker(by), sent, self.logged.now_us, user, refused))

    def _durable(self, index: int) -> list[str]:
        self.logged.durable_index = index
        return self._step(events.LogDurable(index))

    def _attach(self, name: str, start: int = 0, hold: str = "no", by: str = "c1") -> list[str]:
        return self._step(events.AttachIndex(_asker(by), name, start, hold == "yes"))

    def _commit(self, name: str, position: int, epoch: int, by: str = "c1") -> list[str]:
        return self._step(events.CommitIndex(_asker(by), name, epoch, position))

    def _seek(self, name: str, position: int, by: str = "c1") -> list[str]:
        return self._step(events.SeekIndex(_asker(by), name, position))

    def _delete(self, name: str, by: str = "c1") -> list[str]:
        return self._step(events.DeleteIndex(_asker(by), name))

    def _end_turn(self) -> list[str]:
        return self._step(events.TurnEnded())

    def _log_start(self, offset: int) -> list[str]:
        return self._step(events.MoveLogStart(offset))

    def _expire(self, before: int) -> list[str]:
        return self._step(events.ExpireProducers(before))

    def _clock(self, now: int) -> list[str]:
        self.logged.now_us = now
        return []

    def _snapshot(self) -> list[str]:
        self.snapshot = self.logged.snapshot()
        return [f"snapshot at entry {self.snapshot.index}"]

    def _crash(self, through: int) -> list[str]:
        self.logged.crash(through, self.snapshot)
        return self._state()

    def _state(self) -> list[str]:
        partition = self.logged.partition
        lines = [
            f"records {partition.start}..{partition.high_watermark}, appended to {partition.end}, "
            f"entries {partition.applied_index} of {partition.last_index}"
        ]
        for producer_id, state in partition.dedupe.producers.items():
            name = producer_id.rstrip(b".").decode()
            owner = partition.dedupe.owner_of(producer_id)
            whose = f", of {owner}" if owner else ""
            lines.append(
                f"producer {name} epoch {state.epoch} goes on at {state.next_sequence}{whose}"
            )
        for name, cursor in partition.cursors.applied.items():
            lines.append(f"index {name} {_cursor(cursor)}")
        return lines

    def _step(self, event: events.Event) -> list[str]:
        before = len(self.logged.log)
        effects = self.logged.step(event)
        return [
            *map(_appended, self.logged.log[before:]),
            *(_partition_effect(effect) for effect in effects),
        ]

    # --- retention -------------------------------------------------------------------------------

    def _segment(self, end: int, bytes: int, newest: int) -> list[str]:  # noqa: A002
        self.segments.append(Segment(end, bytes, newest))
        return []

    def _plan(self, now: int, age: int | None = None, bytes: int | None = None) -> list[str]:  # noqa: A002
        partition = self.logged.partition
        start = plan_log_start(
            self.segments,
            log_start=partition.start,
            now_us=now,
            retention_us=age,
            bytes_max=bytes,
            held_from=partition.cursors.held_from(),
        )
        return [f"log start {start}"]

    # --- the subscription ------------------------------------------------------------------------

    def _subscribe(self, *partitions: str, credit: int) -> list[str]:
        found = (re.fullmatch(r"(\d+):(\d+)\.\.(\d+)", text) for text in partitions)
        numbers = [[int(number) for number in each.groups()] for each in found if each]
        assert len(numbers) == len(partitions), "what is subscribed to is partition:next..end"
        self.subscription = subs.Subscription(
            [(number, subs.Progress(start, end)) for number, start, end in numbers], credit
        )
        return self._subscription_effects(self.subscription.begin())

    def _credit(self, amount: int) -> list[str]:
        return self._feed(subs.CreditGiven(amount))

    def _advanced(self, partition: int, start: int, end: int) -> list[str]:
        return self._feed(subs.Advanced(partition, start, end))

    def _read_done(self, partition: int, next: int, bytes: int, moves: int = 0) -> list[str]:  # noqa: A002
        return self._feed(subs.ReadDone(partition, moves, next, bytes))

    def _sought(self, partition: int, offset: int) -> list[str]:
        return self._feed(subs.Sought(partition, offset))

    def _feed(self, event: subs.Event) -> list[str]:
        return self._subscription_effects(self.subscription.step(event))

    def _subscription_effects(self, effects: list[subs.Effect]) -> list[str]:
        return [*map(_subscription_effect, effects), f"credit {self.subscription.credit}"]

    _commands: ClassVar[dict[str, Callable[..., list[str]]]] = {
        "partition": _partition,
        "produce": _produce,
        "durable": _durable,
        "attach": _attach,
        "commit": _commit,
        "seek": _seek,
        "delete": _delete,
        "end-turn": _end_turn,
        "log-start": _log_start,
        "expire": _expire,
        "clock": _clock,
        "snapshot": _snapshot,
        "crash": _crash,
        "state": _state,
        "segment": _segment,
        "plan": _plan,
        "subscribe": _subscribe,
        "credit": _credit,
        "advanced": _advanced,
        "read-done": _read_done,
        "sought": _sought,
    }


def _asker(name: str) -> Origin:
    """`c2` is the producer or consumer of connection 2; `c2/7` its request 7."""
    connection, _, request = name.removeprefix("c").partition("/")
    return origin(int(request or 0), connection=int(connection), handle=0 if request else 1)


def _name(asker: Origin) -> str:
    return f"c{asker.connection}" + (f"/{asker.request}" if asker.request else "")


def _cursor(cursor: Any) -> str:
    held = ", holds retention" if cursor.hold_retention else ""
    return f"at {cursor.position}, epoch {cursor.epoch}{held}"


def _appended(append: events.Append) -> str:
    line = f"append {_KINDS[append.kind]} as entry {append.index} at {append.base_offset}"
    if append.batch:
        return f"{line}, {append.batch.count} records"
    return f"{line}: {append.body.decode()}"


def _partition_effect(effect: events.Effect) -> str:
    if isinstance(effect, events.Acked):
        return f"ack to {_name(effect.origin)}: through {effect.sequence}, at {effect.offsets}"
    if isinstance(effect, events.Refused):
        return f"refuse {_name(effect.origin)}: {effect.code}: {effect.message}"
    if isinstance(effect, events.IndexMoved):
        where = "gone" if effect.cursor is None else _cursor(effect.cursor)
        return f"tell {_name(effect.origin)}: {effect.by} {effect.name}: {where}"
    if isinstance(effect, events.IndexFenced):
        return f"fence {_name(effect.origin)} off {effect.name}"
    if isinstance(effect, events.EndMoved):
        return f"consumers may read to {effect.end}"
    assert isinstance(effect, events.LogStartMoved)
    return f"the log starts at {effect.offset}"


def _subscription_effect(effect: subs.Effect) -> str:
    if isinstance(effect, subs.Read):
        return (
            f"read {effect.partition} from {effect.offset} to {effect.end}, "
            f"at most {effect.bytes_max} bytes, moves {effect.moves}"
        )
    if isinstance(effect, subs.Send):
        return f"send {effect.partition} from {effect.offset}"
    return f"tell moved: {effect.partition} to {effect.offset}, lost {effect.lost}"
