"""Runs the partitions of a node against its log: the one place where effects become durable.

Rule: an Append reaches the log before anything that depends on it is sent. The cores see to that
(what depends on an entry is an effect of its commit); this file carries effects out in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from crc32c import crc32c

from hocket.core.partition.events import (
    Append,
    Batch,
    Effect,
    EndMoved,
    Event,
    LogDurable,
    LogStartMoved,
    Lost,
    Replayed,
    Staged,
    StageKey,
    StagesMoved,
    TurnEnded,
)
from hocket.core.partition.partition import Partition
from hocket.core.partition.waiting import WaitingPartition
from hocket.errors import Busy, CorruptData, HocketError, StorageFull
from hocket.log.model import Loss, NewEntry, Purpose, RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.model import EntryKind, TopicConfig
from hocket.node.running.hooks import Hooks
from hocket.node.running.traffic import Traffic
from hocket.wire.batch import PRELUDE, BatchInfo, timestamps_of
from hocket.wire.entry import HEADER_BYTES, Header, padded
from hocket.wire.stage import open_stage, stage_prelude

if TYPE_CHECKING:
    from hocket.core.partition.subscription import Subscription

LARGEST_CONTROL_BYTES = 1 << 20  # an entry that is not a batch is never larger
# What is asked for on a nearly full disk. Most of these entries have some hundred bytes; one that
# has more becomes durable too, since whatever was admitted waits for room.
PROGRESS_BYTES = 16 << 10
TIDYING_BYTES = 4 << 10


class Authority(Protocol):
    """Whether nobody else can lead a partition yet (`node.replication.authority`)."""

    outlasts_us: int  # a former leader may lease messages so long after this one has begun

    def holds(self) -> bool: ...

    def confirm(self, answered: Callable[[bool], None]) -> None: ...


class Copy(Protocol):
    """This node's copy of a partition that several nodes keep (`node.replication`)."""

    tells_commits: bool  # the leader tells others at once what is committed: they hand it on

    @property
    def serves(self) -> bool:
        """This node leads the partition, and has applied all that was ever committed."""

    @property
    def authority(self) -> Authority: ...

    @property
    def leader(self) -> str:
        """The store id of the node that leads; empty: nobody is known to."""

    @property
    def is_full(self) -> bool:
        """Too much waits for a majority."""

    def appended(self, index: int) -> None: ...
    def cannot_read(self, error: HocketError) -> None:
        """What is stored here is damaged, and others have it, too."""


@dataclass(slots=True, eq=False)
class Hosted:
    """A partition that this node holds."""

    group: int
    core: Partition
    term: int
    settings: TopicConfig
    subscribers: dict[tuple[int, int], Subscription] = field(default_factory=dict)
    # The group of the partition whose delayed messages wait here; 0: this is a partition itself.
    waits_for: int = 0
    changed: bool = False  # in this turn: at its end the core may have something to append
    copy: Copy | None = None  # None: this node alone keeps the partition
    served_us: int = 0  # since when this node leads it, if others keep it, too
    given_bytes: int = 0  # of batches, to consumers with an own index, or none

    def may_lease(self) -> bool:
        return self.copy is None or self.copy.authority.holds()

    @property
    def where(self) -> str:
        """For people."""
        if self.waits_for:
            return (
                f"the delayed messages of partition {self.core.number} of topic {self.core.topic!r}"
            )
        return f"partition {self.core.number} of topic {self.core.topic!r}"


Reaction = Callable[[Hosted, Any], None]  # told of one type of effect


class Watcher(Protocol):
    """Is told which partitions this node holds, and how far each of them can be read."""

    def hosted(self, hosted: Hosted) -> None: ...
    def advanced(self, hosted: Hosted) -> None: ...
    def dropped(self, hosted: Hosted) -> None: ...


class Partitions:
    def __init__(self, log: LogStore) -> None:
        self._log = log
        self._reactions: Mapping[type, Reaction] = {}
        self._watcher: Watcher | None = None
        self._hosted: dict[int, Hosted] = {}
        self.waiting: dict[int, Hosted] = {}  # those in which delayed messages wait
        self.doubts: dict[int, str] = {}  # groups whose end is not known, and what to say of it
        # Told of a group to which nothing could be appended, since the disk is full.
        self.lacks_room: Callable[[int], None] = lambda _group: None
        # By group, what raises why nothing can be appended; of groups that are no partitions.
        self.guards: dict[int, Callable[[], None]] = {}
        self.changed: list[Hosted] = []  # in this turn
        self.traffic = Traffic()
        self.hooks = Hooks()

    def __getitem__(self, group: int) -> Hosted:
        return self._hosted[group]

    def __iter__(self) -> Iterator[Hosted]:
        return iter(self._hosted.values())

    def get(self, group: int) -> Hosted | None:
        return self._hosted.get(group)

    def of_numbers(self, groups: Sequence[int], numbers: Iterable[int]) -> dict[int, Hosted]:
        """Some partitions of a topic, by number; the topic has these groups."""
        return {number: self._hosted[groups[number]] for number in numbers}

    def react_with(self, reactions: Mapping[type, Reaction]) -> None:
        """Hand each effect that is not carried out here to the reaction for its type.

        There must be one for every such type before the first `step`.
        """
        self._reactions = reactions

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of all partitions that are held, and from now on of every change."""
        self._watcher = watcher
        for hosted in self:
            if not hosted.waits_for:
                watcher.hosted(hosted)

    def host(
        self,
        topic: str,
        number: int,
        group: int,
        config: TopicConfig,
        recovered: RecoveredGroup | None = None,
        *,
        now_us: int = 0,
        waits_for: int = 0,
    ) -> Hosted:
        """Hold a partition, or what waits for the partition with the group `waits_for`."""
        hosted = self.new(topic, number, group, config, waits_for=waits_for)
        core = hosted.core
        if recovered is not None:
            hosted.term = recovered.term + 1  # the only voter leads again, in a term of its own
            replay(core, recovered, now_us)
            if core.last_index >= recovered.next_index:
                self._log.go_on_at(group, core.last_index + 1, core.end)
        self._hosted[group] = hosted
        if waits_for:
            self.waiting[group] = hosted
        doubt = self._log.doubt(group)
        if doubt:
            self.doubts[group] = f"{hosted.where}: {doubt}"
        self.hold(group, core.stages.moved())
        if self._watcher is not None and not waits_for:
            self._watcher.hosted(hosted)
        return hosted

    def new(
        self, topic: str, number: int, group: int, config: TopicConfig, *, waits_for: int = 0
    ) -> Hosted:
        """A partition that is not served yet, and knows nothing of what its log has."""
        make = WaitingPartition if waits_for else Partition
        core = make(topic, number, durability=config.durability)
        self.configure_log(group, config)
        return Hosted(group, core, 1, config, waits_for=waits_for)

    def enter(self, hosted: Hosted) -> None:
        """From now on this node serves its copy of the partition."""
        self._hosted[hosted.group] = hosted
        if self._watcher is not None:
            self._watcher.hosted(hosted)

    def leave(self, hosted: Hosted) -> None:
        """From now on another node serves the partition; the copy here stays."""
        del self._hosted[hosted.group]
        if self._watcher is not None:
            self._watcher.dropped(hosted)

    def configure(self, hosted: Hosted, config: TopicConfig) -> None:
        hosted.settings = config
        hosted.core.durability = config.durability
        self.configure_log(hosted.group, config)

    def configure_log(self, group: int, config: TopicConfig) -> None:
        self._log.configure(
            group,
            GroupSettings(
                memory_retention_us=config.memory_retention_us,
                memory_bytes_max=config.memory_bytes_max,
                segment_bytes_max=config.segment_bytes_max,
                is_awaited=config.durability != "memory",
                may_leave=True,
            ),
        )

    def holds(self, hosted: Hosted) -> bool:
        """False once the partition's topic is deleted."""
        return self._hosted.get(hosted.group) is hosted

    def drop(self, group: int) -> Hosted:
        hosted = self._hosted.pop(group)
        self.waiting.pop(group, None)
        self.doubts.pop(group, None)
        self._log.delete_group(group)
        if self._watcher is not None and not hosted.waits_for:
            self._watcher.dropped(hosted)
        return hosted

    def admit(
        self,
        group: int,
        body_bytes: int = LARGEST_CONTROL_BYTES,
        *,
        reserved: bool = False,
        purpose: Purpose = Purpose.RECORDS,
    ) -> None:
        """Raise what the log has against another entry of this size; this changes nothing.

        With `reserved` the entry may use the room that is kept for transactions.
        """
        if group in self.guards:
            self.guards[group]()
        hosted = self._hosted.get(group)
        if hosted is not None and hosted.copy is not None and hosted.copy.is_full:
            raise Busy(f"{hosted.where}: too much waits for the other replicas; try again")
        try:
            self._log.admit(group, entry_bytes(body_bytes), reserved=reserved, purpose=purpose)
        except StorageFull:
            self.lacks_room(group)
            raise
        except CorruptData as error:
            if hosted is None:  # the metadata
                raise
            raise CorruptData(f"{hosted.where}: {error}") from error

    def admit_progress(self, group: int) -> None:
        """Raise what the log has against an entry that says how far consumers have come.

        Entries that take rights away count as such: a full disk must not keep them in force.
        """
        self.admit(group, PROGRESS_BYTES, purpose=Purpose.PROGRESS)

    def admit_tidying(self, group: int, body_bytes: int = TIDYING_BYTES) -> None:
        """Raise what the log has against an entry by which something goes: a full disk is nothing.

        Nothing, that is, until the room which is kept for such entries is used up.
        """
        self.admit(group, body_bytes, reserved=True, purpose=Purpose.TIDYING)

    def step(self, hosted: Hosted, event: Event) -> None:
        if not hosted.changed:
            hosted.changed = True
            self.changed.append(hosted)
        self._carry_out(hosted, hosted.core.step(event))

    def durable(self, group: int, index: int) -> None:
        hosted = self._hosted.get(group)
        if hosted is not None:  # else deleted meanwhile
            self._carry_out(hosted, hosted.core.step(LogDurable(index)))

    def end_turn(self) -> None:
        changed, self.changed = self.changed, []
        for hosted in changed:
            hosted.changed = False
            if self.holds(hosted):  # else deleted in this very turn
                self._carry_out(hosted, hosted.core.step(TurnEnded()))

    def _carry_out(self, hosted: Hosted, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self._append(hosted, effect)
            else:
                if isinstance(effect, LogStartMoved):
                    self._log.set_log_start(hosted.group, effect.offset)
                elif isinstance(effect, StagesMoved):
                    self.hold(hosted.group, effect)
                    continue
                self._reactions[type(effect)](hosted, effect)
                if (
                    self._watcher is not None
                    and isinstance(effect, EndMoved | LogStartMoved)
                    and not hosted.waits_for
                ):
                    self._watcher.advanced(hosted)

    def hold(self, group: int, held: StagesMoved) -> None:
        """Keep what is staged, and room for it."""
        # A batch that is published is written twice: to the write-ahead log, and to a segment.
        self._log.hold(group, held.first_index, 2 * held.bytes)

    def _append(self, hosted: Hosted, effect: Append) -> None:
        batch = effect.batch
        if batch is None:
            entry = plain_entry(
                effect.kind, hosted.term, effect.index, effect.base_offset, effect.body
            )
        elif effect.stage is not None:
            entry = stage_entry(effect, hosted.term)
        else:
            body, header = batch.body
            self.traffic.records_taken += batch.count
            self.traffic.bytes_taken += entry_bytes(len(body))
            entry = NewEntry(
                kind=effect.kind,
                codec=header.codec,
                flags=header.flags,
                count=batch.count,
                term=hosted.term,
                index=effect.index,
                base_offset=effect.base_offset,
                body_crc=header.body_crc,
                max_timestamp=batch.max_timestamp,
                body=body,
            )
        awaited = hosted.copy is not None or hosted.core.awaits_disk
        self._log.append(hosted.group, entry, admitted=True, awaited=awaited)
        if hosted.copy is not None:
            hosted.copy.appended(effect.index)


def plain_entry(kind: int, term: int, index: int, base_offset: int, body: bytes) -> NewEntry:
    """An entry that holds no records."""
    return NewEntry(
        kind=kind,
        codec=0,
        flags=0,
        count=0,
        term=term,
        index=index,
        base_offset=base_offset,
        body_crc=crc32c(body),
        max_timestamp=0,
        body=body,
    )


def stage_entry(effect: Append, term: int) -> NewEntry:
    """A batch that is staged for a transaction: an entry without records of its own."""
    assert effect.batch is not None
    assert effect.stage is not None
    body, header = effect.batch.body
    prelude = stage_prelude(effect.stage.transaction, effect.stage.number, header)
    return NewEntry(
        kind=EntryKind.STAGE,
        codec=0,
        flags=0,
        count=0,
        term=term,
        index=effect.index,
        base_offset=effect.base_offset,
        body_crc=crc32c(body, crc32c(prelude)),
        max_timestamp=0,
        body=b"".join((prelude, body)),
    )


def batch_of(info: BatchInfo, entries: memoryview) -> Batch:
    """A checked batch as the partition's core takes it; the body is not copied."""
    header = info.header
    start = info.position + HEADER_BYTES
    body = entries[start : start + header.length]
    return Batch(
        info.producer_id, info.epoch, info.sequence, header.count, header.max_timestamp,
        (body, header), header.body_crc,
    )  # fmt: skip


def replay(core: Partition, recovered: RecoveredGroup, now_us: int) -> None:
    """Bring a new core to the state that the log was left in."""
    core.restore(recovered.snapshot_index, recovered.snapshot)
    losses = deque(recovered.losses)
    for header, body in recovered.entries:
        while losses and losses[0].next_index <= header.index:
            _lose(core, losses.popleft(), recovered)
        core.step(replayed(core, header, body, now_us))
    for loss in losses:
        _lose(core, loss, recovered)
    at = Loss(core.last_index + 1, recovered.next_index, recovered.next_offset)
    if at.next_index > at.first_index:
        # A version that did not tell cores of losses has left a snapshot that knows nothing of one.
        _lose(core, at, recovered)
    elif at.next_index < at.first_index:  # the log has lost entries that the snapshot knows
        core.step(Lost(core.last_index + 1, core.end, recovered.log_start))
    core.stages.recovered(now_us)


def replayed(core: Partition, header: Header, body: memoryview, now_us: int) -> Replayed:
    """What a core is told of an entry that it has not proposed itself. The body is not kept."""
    batch = staged = None
    if header.kind == EntryKind.STAGE:
        batch, staged = staged_of(header, body)
    elif header.kind == EntryKind.BATCH:
        producer_id, epoch, _, sequence, _ = PRELUDE.unpack_from(body)
        batch = Batch(
            producer_id, epoch, sequence, header.count, header.max_timestamp, None,
            header.body_crc,
        )  # fmt: skip
        if isinstance(core, WaitingPartition):
            batch.dues = timestamps_of(header, body)
    return Replayed(
        kind=header.kind,
        index=header.index,
        base_offset=header.base_offset,
        end_offset=header.end_offset,
        now_us=now_us,
        batch=batch,
        body=b"" if batch else bytes(body),
        staged=staged,
    )


def _lose(core: Partition, loss: Loss, recovered: RecoveredGroup) -> None:
    if loss.next_index > core.last_index:  # else the snapshot has the state behind it
        core.step(Lost(loss.next_index, loss.next_offset, recovered.log_start))


def staged_of(header: Header, body: memoryview) -> tuple[Batch, tuple[StageKey, Staged]]:
    """What an entry of kind STAGE holds; the bytes stay in the log."""
    stage = open_stage(body)
    producer_id, epoch, _, sequence, _ = PRELUDE.unpack_from(stage.body)
    batch = Batch(producer_id, epoch, sequence, stage.records, stage.max_timestamp, None)
    key = StageKey(stage.transaction, stage.number, producer_id)
    size = entry_bytes(len(stage.body))
    return batch, (
        key, Staged(header.index, header.base_offset, size, stage.records, stage.body_crc)
    )  # fmt: skip


def entry_bytes(length: int) -> int:
    """The size of an entry whose body has this length."""
    return HEADER_BYTES + padded(length)
