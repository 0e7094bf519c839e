"""The copies of replicated partitions at one moment, as an observer sees them.

A `Copy` is what one machine has of one group, and a `Story` is what has become of the group over
all machines and lives: which entries were committed first, by whom, and what was in them. After
every event on a machine `look` reads what its replicas hold by now, and `moved` names the copies
that changed; checkers look at those alone.

The log of a copy is read where it lies, in the memory of the machine's log store. An entry's
checksum covers the one before it. So two logs that have the same checksum at an index are the same
up to there, and one comparison is enough for all of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hocket.log.model import METADATA
from hocket.model import DECISIONS, EntryKind, PartitionId
from hocket.wire import batch as batches
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header

if TYPE_CHECKING:
    from hocket.node.replication.replica import Replica
    from hocket.sim.machine import Machine


class Mark(NamedTuple):
    """An entry, as far as logs are compared."""

    crc: int
    term: int


@dataclass(slots=True)
class Stored:
    """What a committed entry holds."""

    header: Header
    body: bytes
    values: list[bytes] = field(default_factory=list)  # of a batch
    producer: tuple[bytes, int, int] | None = None  # of a batch: id, epoch, sequence
    headers: list[dict[str, bytes | None]] = field(default_factory=list)  # of its records


@dataclass(slots=True, eq=False)
class Copy:
    """What one machine has of one group, as it was looked at last."""

    machine: Machine
    story: Story
    life: int = 0  # of the machine
    replica: Replica[Any] | None = None
    stamp: tuple[Any, ...] = ()
    term: int = 0
    vote: str = ""
    said: tuple[int, str] = (0, "")  # term and vote, when nothing waited for the disk
    leads: bool = False
    serves: bool = False
    commit: int = 0  # when nothing waited for the disk: else Raft may be ahead of the log
    log: dict[int, Mark] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)  # entries that are new in it, or others now
    first: int = 1  # of the log
    last: int = 0
    durable: int = 0
    durable_crc: int = 0  # of that entry, as the log has it
    is_faulty: bool = False  # the log says that something of it is lost ...
    may_vote: bool = True  # ... which a snapshot knows
    end_offset: int = 0
    applied: int = 0  # the last entry that its partition knows
    high_watermark: int = 0
    start: int = 0  # of what may be read, as the machine's partition has it ...
    log_start: int = 0  # ... and as its log has it
    began: bool = False  # this is the first look at this life
    was: Copy | None = None  # as it was before, if it has moved

    @property
    def name(self) -> str:
        return f"{self.machine.name}'s copy of {self.story.where}"


@dataclass(slots=True, eq=False)
class Story:
    """What has become of one group, over all copies of it."""

    group: int
    topic: str
    partition: int
    voters: tuple[str, ...]
    copies: dict[str, Copy] = field(default_factory=dict)  # by machine
    leaders: dict[int, str] = field(default_factory=dict)  # by term
    marks: dict[tuple[int, int], int] = field(default_factory=dict)  # checksum by index and term
    committed: dict[int, Mark] = field(default_factory=dict)
    committed_in: dict[int, int] = field(default_factory=dict)  # the term of who told it first
    entries: dict[int, Stored] = field(default_factory=dict)  # of what is committed
    new: list[int] = field(default_factory=list)  # entries that this event has committed first
    last: int = 0  # the last entry that is committed
    end: int = 0  # the offset behind it
    log_start: int = 0  # as the committed entries say
    values: dict[int, bytes] = field(default_factory=dict)  # what is committed, by offset

    @property
    def where(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1


class CopiesView:
    def __init__(self) -> None:
        self.stories: dict[int, Story] = {}
        self.moved: list[Copy] = []  # by the last event
        self._by_place: dict[PartitionId, Story] = {}
        # By machine: the life and the state of its set of replicas that the list is of.
        self._copies: dict[str, tuple[int, int, list[tuple[Replica[Any], Copy]]]] = {}

    def story_of(self, partition_id: PartitionId) -> Story | None:
        """Of a partition that is not deleted during the run; None: nobody has a copy yet."""
        return self._by_place.get(partition_id._replace(group=0))

    def look(self, machine: Machine) -> bool:
        """Read what the machine's replicas have; whether any has moved."""
        moved = self.moved
        if moved:
            moved.clear()
        node, lives = machine.node, machine.lives
        if node is None:
            return False
        known = self._copies.get(machine.name)
        if known is None or known[0] != lives or known[1] != node.replicas.changes:
            known = lives, node.replicas.changes, self._copies_of(machine)
            self._copies[machine.name] = known
        for replica, copy in known[2]:
            # Is another one if anything has changed that is looked at. There is one for every
            # event, so it is made here, of what Raft knows of the log: it is told of every change.
            raft = replica.raft
            group = raft.group
            outline = group.outline
            stamp = (
                group.term, group.vote, group.commit, outline.last, outline.flushed,
                raft.leading is None, replica.serves, replica.is_settled,
                replica.machine.core.applied_index,  # type: ignore[attr-defined]
            )  # fmt: skip
            if stamp != copy.stamp or copy.life != lives:
                copy.story.new.clear()
                self._read(copy, replica, stamp)
                moved.append(copy)
        return bool(moved)

    def _copies_of(self, machine: Machine) -> list[tuple[Replica[Any], Copy]]:
        assert machine.node is not None
        found = []
        for replica in machine.node.replicas:
            if not METADATA < replica.group < DECISIONS:  # the metadata, or a decider: no partition
                continue
            story = self.stories.get(replica.group) or self._begin(replica)
            copy = story.copies.setdefault(machine.name, Copy(machine, story))
            found.append((replica, copy))
        return found

    def died(self, machine: Machine) -> None:
        """A life of the machine is over: it leads and serves nothing."""
        for story in self.stories.values():
            copy = story.copies.get(machine.name)
            if copy is not None:
                copy.replica = None
                copy.leads = copy.serves = False
                copy.stamp = ()

    def _begin(self, replica: Replica[Any]) -> Story:
        core = replica.machine.core  # type: ignore[attr-defined]  # machines here are partitions
        story = Story(
            replica.group, core.topic, core.number, replica.raft.group.configuration.voters
        )
        self.stories[replica.group] = story
        self._by_place.setdefault(PartitionId(core.topic, core.number), story)
        return story

    def _read(self, copy: Copy, replica: Replica[Any], stamp: tuple[Any, ...]) -> None:
        was = Copy(**{name: getattr(copy, name) for name in Copy.__slots__})
        was.was = None
        was.log = copy.log  # it is not changed below, but replaced where it loses entries
        copy.was = was
        copy.stamp = stamp
        copy.began = copy.life != copy.machine.lives
        copy.life = copy.machine.lives
        copy.replica = replica
        group, core = replica.raft.group, replica.machine.core  # type: ignore[attr-defined]
        copy.term, copy.vote = group.term, group.vote
        if replica.is_settled:
            copy.said = group.term, group.vote
            copy.commit = group.commit
        elif copy.began:
            copy.commit = 0
        copy.leads, copy.serves = replica.raft.leading is not None, replica.serves
        copy.applied, copy.high_watermark = core.applied_index, core.high_watermark
        copy.start = core.start
        self._read_log(copy, replica)
        self._read_committed(copy, replica)

    def _read_log(self, copy: Copy, replica: Replica[Any]) -> None:
        logs = replica.log.replicated
        first, durable, end = logs.bounds(replica.group)
        copy.end_offset = end.next_offset
        copy.durable, copy.durable_crc = durable.next_index - 1, durable.last_crc
        faults = [each for each in logs.faults(replica.group) if not each.accepted]
        copy.is_faulty = bool(faults)
        copy.may_vote = all(each.is_applied for each in faults)
        copy.log_start = replica.log.stats(replica.group).start
        at = last = end.next_index - 1
        fresh: dict[int, Mark] = {}
        while at > 0:
            mark = logs.end_at(replica.group, at)
            if mark is None:  # what is before this is in segments
                break
            found = Mark(mark.last_crc, mark.term)
            if copy.log.get(at) == found:
                break
            fresh[at] = found
            at -= 1
        if last < copy.last or (fresh and min(fresh) <= copy.last):
            copy.log = {index: mark for index, mark in copy.log.items() if index <= at}
        if first != copy.first:  # what is before it has gone, or a state stands in its place
            copy.log = {index: mark for index, mark in copy.log.items() if index >= first - 1}
            copy.first = first
        copy.fresh = sorted(fresh)
        for index in copy.fresh:
            copy.log[index] = fresh[index]
        copy.last = last

    def _read_committed(self, copy: Copy, replica: Replica[Any]) -> None:
        story = copy.story
        for index in range(story.last + 1, copy.commit + 1):
            mark = copy.log.get(index)
            if mark is None:
                return  # it has the state and not the entry: another copy has, and will tell
            story.committed[index] = mark
            story.committed_in[index] = copy.term
            story.last = index
            story.new.append(index)
            stored = _stored(replica, index)
            story.entries[index] = stored
            header = stored.header
            story.end = header.end_offset
            if header.kind == EntryKind.CONTROL:
                start = json.loads(stored.body).get("log_start", 0)
                story.log_start = max(story.log_start, start)
            for offset, value in enumerate(stored.values, header.base_offset):
                story.values[offset] = value


def _stored(replica: Replica[Any], index: int) -> Stored:
    found = replica.log.replicated.read_raw(
        replica.group, index, end_index=index + 1, bytes_max=1, done=_never
    )
    assert found is not None, f"entry {index} of group {replica.group} is not in memory"
    data = b"".join(found.slices)
    header = unpack_header(data)
    stored = Stored(header, data[HEADER_BYTES : HEADER_BYTES + header.length])
    if header.kind == EntryKind.BATCH:
        batch = batches.parse(data)
        stored.values = [bytes(value) for value in batch.values()]
        stored.headers = [dict(headers) for headers in batch.headers()]
        stored.producer = batch.producer_id, batch.epoch, batch.sequence
    return stored


def _never(_found: object) -> None:
    raise AssertionError("what was just committed is in memory")
