"""A partition as the machine of a group that several nodes keep.

While another node leads, the partition's core is told committed entries only, as in a replay: so it
never has to take anything back. While this node leads, the core proposes entries itself, and hears
of a commit where the core of a partition with one copy hears that the disk has them.
"""

from __future__ import annotations

from typing import Protocol

from hocket.core.partition.events import Replayed, StagesMoved
from hocket.core.partition.partition import Partition
from hocket.log.store import LogStore
from hocket.node.replication.saved import machine_state
from hocket.node.running.partitions import Hosted, Partitions, replayed
from hocket.ports import Clock
from hocket.wire.entry import Header


class Leadership(Protocol):
    """Is told when this node begins and ceases to serve a partition."""

    def serves(self, hosted: Hosted) -> None: ...

    def stops(self, hosted: Hosted, leader: str) -> None:
        """Called while the core still knows who waits for what."""

    def hint(self, hosted: Hosted) -> None:
        """Another node leads than before, or none."""

    def advanced(self, hosted: Hosted) -> None:
        """More is committed of a partition that another node leads, or its start has moved."""


class PartitionMachine:
    def __init__(
        self,
        hosted: Hosted,
        partitions: Partitions,
        log: LogStore,
        clock: Clock,
        leadership: Leadership,
    ) -> None:
        self._hosted = hosted
        self._partitions = partitions
        self._log = log
        self._clock = clock
        self._leadership = leadership

    @property
    def core(self) -> Partition:
        return self._hosted.core

    def prepared(self, header: Header, body: memoryview) -> Replayed:
        return replayed(self._hosted.core, header, body, self._clock.now_us())

    def apply(self, entry: Replayed) -> None:
        core = self._hosted.core
        start, end = core.start, core.high_watermark
        for effect in core.step(entry):
            assert isinstance(effect, StagesMoved), effect
            self._partitions.hold(self._hosted.group, effect)
        if core.start > start:
            self._log.set_log_start(self._hosted.group, core.start)
        if core.high_watermark > end or core.start > start:
            self._leadership.advanced(self._hosted)

    def committed(self, index: int) -> None:
        self._partitions.durable(self._hosted.group, index)

    def entered(self, index: int) -> None:
        raise AssertionError(f"the members of a partition's group do not change: entry {index}")

    def check(self, state: bytes) -> None:
        """Partitions of all versions understand each other."""

    def serve(self, term: int) -> None:
        self._hosted.term = term
        self._leadership.serves(self._hosted)

    def stop(self, leader: str) -> None:
        self._leadership.stops(self._hosted, leader)
        self._become(*self._hosted.core.snapshot())

    def snapshot(self) -> tuple[int, bytes]:
        return self._hosted.core.snapshot()

    def install(self, index: int, _log_start: int, state: bytes) -> None:
        # The log has its start by now, which may lie behind all that was sent of it yet.
        self._become(index, machine_state(state))

    def hint(self) -> None:
        self._leadership.hint(self._hosted)

    def _become(self, index: int, state: bytes) -> None:
        """A new core with this state. What the old one had proposed beyond it is forgotten."""
        old = self._hosted.core
        core = Partition(old.topic, old.number, durability=old.durability)
        core.restore(index, state)
        self._hosted.core = core
        self._partitions.hold(self._hosted.group, core.stages.moved())
