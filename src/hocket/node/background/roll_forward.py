"""Rolling forward: the staged batches of a committed transaction are appended as real batches.

All that a partition has staged for a transaction is read back from the log and appended in one
step. Only where that is more than `STEP_BYTES` there are several steps, and batches of others may
come in between. A roll-forward that meets a full disk, or a log that does not keep up, waits for
the next `retry`. Nothing here needs to outlive a crash: the decider asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hocket.core.partition.events import ApplyStaged, Batch, Name
from hocket.core.partition.stages import Stage
from hocket.core.transactions.events import Apply
from hocket.errors import HocketError
from hocket.log.model import is_damage
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring
from hocket.wire.batch import PRELUDE
from hocket.wire.stage import open_stage

log = logging.getLogger("hocket.node")
STEP_BYTES = 64 << 20
CONTROL_BYTES = 4096  # at most, of the entry that says that the transaction is applied

Bodies = dict[int, memoryview]


@dataclass(slots=True, eq=False)
class _Job:
    apply: Apply
    decider: int  # the group of the log of whoever has decided
    reading: bool = False
    bodies: Bodies | None = None  # what was read for the next step, by index
    failed: bool = False  # a read has failed, or batches are lost, and that was logged
    lost: int = 0  # batches that damage has taken

    @property
    def name(self) -> Name:
        return self.apply.transaction, self.apply.number


class RollForward:
    def __init__(self, wiring: Wiring, gone: Callable[[Apply, int], None]) -> None:
        self._wiring = wiring
        self._gone = gone  # told of a job whose partition was deleted
        self._jobs: dict[tuple[int, Name], _Job] = {}

    def begin(self, apply: Apply, decider: int) -> None:
        """Roll this forward, now or as soon as possible. What is under way is not begun again."""
        key = (apply.group, (apply.transaction, apply.number))
        if key not in self._jobs:
            self._jobs[key] = _Job(apply, decider)
            self._go_on(self._jobs[key])

    def leave(self, group: int) -> None:
        """Another node leads the partition: what was read here for the next step is no use."""
        for job in [each for each in self._jobs.values() if each.apply.group == group]:
            self._end(job)

    def retry(self) -> None:
        for job in list(self._jobs.values()):
            if not job.reading:
                self._go_on(job)

    def _go_on(self, job: _Job) -> None:
        while not job.reading:
            hosted = self._wiring.partitions.get(job.apply.group)
            if hosted is None:
                if not self._wiring.catalogue.is_deleted(job.apply.group):
                    return  # its topic is not known (yet); that it is not here is no proof
                self._end(job)
                self._gone(job.apply, job.decider)
                return
            stages = hosted.core.stages
            following: list[tuple[Stage, int]] = []
            if not stages.is_over(job.name, job.apply.decision, job.decider):
                following = stages.next_of(job.name, job.apply.producers, STEP_BYTES)
            if not self._has_bodies(job, following) or not self._append(job, hosted, following):
                return

    def _end(self, job: _Job) -> None:
        del self._jobs[job.apply.group, job.name]

    def _has_bodies(self, job: _Job, following: list[tuple[Stage, int]]) -> bool:
        if job.bodies is not None:
            return True
        staged = [stage.batches[sequence] for stage, sequence in following]
        try:
            job.bodies = self._wiring.log.read_entries(
                job.apply.group,
                [each.entry for each in staged],
                min((each.base_offset for each in staged), default=0),
                partial(self._read, job),
            )
        except HocketError as error:
            self._failed(job, error)
            return False
        job.reading = job.bodies is None
        return not job.reading

    def _read(self, job: _Job, read: Bodies | HocketError) -> None:
        job.reading = False
        if self._jobs.get((job.apply.group, job.name)) is not job:
            return  # it has ended meanwhile
        if isinstance(read, HocketError):
            if self._wiring.partitions.get(job.apply.group) is not None:
                self._failed(job, read)
            return
        job.bodies = read
        self._go_on(job)

    def _failed(self, job: _Job, error: HocketError) -> None:
        hosted = self._wiring.partitions.get(job.apply.group)
        if is_damage(error) and hosted is not None and hosted.copy is not None:
            hosted.copy.cannot_read(error)  # others have it
        if not job.failed:
            job.failed = True
            log.error(
                "transaction %r number %d is committed, and cannot be published in group %d: %s",
                *job.name, job.apply.group, error,
            )  # fmt: skip

    def _append(self, job: _Job, hosted: Hosted, following: list[tuple[Stage, int]]) -> bool:
        """Append one step. Returns whether to go on with the next at once."""
        self._name_lost(job, hosted)
        if job.lost and hosted.copy is not None:
            return False  # other copies have all of it: part of a transaction is never published
        size = sum(stage.batches[sequence].size for stage, sequence in following)
        try:
            self._wiring.partitions.admit(hosted.group, size + CONTROL_BYTES, reserved=True)
        except HocketError:  # `retry` tries again
            return False
        assert job.bodies is not None
        batches = [_batch(job.bodies[s.batches[n].entry], s, n) for s, n in following]
        job.bodies = None
        apply = job.apply
        self._wiring.partitions.step(
            hosted,
            ApplyStaged(job.name, apply.decision, apply.producers, batches, job.decider),
        )
        if hosted.core.stages.is_over(job.name, apply.decision, job.decider):
            self._end(job)
            return False
        return not self._wiring.log.congested

    def _name_lost(self, job: _Job, hosted: Hosted) -> None:
        """What damage has left of the transaction is published, and the rest is named.

        Where others keep the partition, too, nothing is published: they have all of it.
        """
        stages = hosted.core.stages
        if stages.is_over(job.name, job.apply.decision, job.decider):
            job.lost = 0
            return
        job.lost = stages.lost_of(job.name, job.apply.producers)
        if job.lost and not job.failed:
            job.failed = True
            rest = "the others are published"
            if hosted.copy is not None:
                rest = "nothing of it is published there before a node leads that has all of them"
            log.error(
                "transaction %r number %d is committed, and %d of its batches in %s are lost to "
                "damage of the log; %s", *job.name, job.lost, hosted.where, rest,
            )  # fmt: skip


def _batch(body: memoryview, stage: Stage, sequence: int) -> Batch:
    staged = open_stage(body)
    producer_id, epoch, _, number, _ = PRELUDE.unpack_from(staged.body)
    assert (producer_id, number) == (stage.key.producer_id, sequence)
    return Batch(
        producer_id, epoch, sequence, staged.records, staged.max_timestamp, (staged.body, staged)
    )
