"""A store whose groups are cut back, vote, are installed and get stuck; and a model of that.

What was told durable must survive every crash, byte for byte, and so must a term and a vote. Of
what was cut off, all may come back as long as nothing that was told durable took its place: then
the log is a beginning of one of its *versions*, of which each cut makes a new one. Nothing is ever
mixed: an entry of one version never stands behind an entry of another that it does not follow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any

from crc32c import crc32c

from hocket.errors import Busy, HocketError, StorageFull
from hocket.log.model import HardState, LogEnd, RawEntries, Snapshot
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import NewEntry
from hocket.model import EntryKind
from hocket.wire.entry import pack_header, padded
from tests.support.log.world import TINY, TINY_GROUP, ModelEntry, ModelGroup, World

TINY_REPLICAS = replace(TINY, waiting_bytes_max=3000, wal_kept_bytes_max=9000)
_STATE = struct.Struct("<QI")
_VOTERS = ("", "ann", "bob", "eve")


@dataclass(slots=True)
class ReplicaEntry(ModelEntry):
    term: int
    packed: bytes  # the whole entry

    @property
    def end(self) -> LogEnd:
        crc = int.from_bytes(self.packed[:4], "little")
        return LogEnd(self.index + 1, self.end_offset, crc, self.term)


@dataclass(slots=True)
class Version:
    entries: list[ReplicaEntry]
    cut_after: int = 0  # where the next version begins to be another one
    log_start: int = 0  # of one that was installed: it has no records before
    snapshot_index: int = 0


@dataclass(slots=True)
class ReplicaGroup(ModelGroup):
    term: int = 1
    applied_index: int = 0
    is_stuck: bool = False  # nothing is committed any more
    is_installing: bool = False
    older: list[Version] = field(default_factory=list)  # that a crash may bring back
    coming: Version | None = None  # is being installed
    state_now: HardState = field(default_factory=HardState)
    told: HardState = field(default_factory=HardState)
    states: list[HardState] = field(default_factory=lambda: [HardState()])  # since it was told

    @property
    def applied(self) -> int:
        return self.applied_index

    @property
    def end(self) -> LogEnd:
        return self.entries[-1].end if self.entries else LogEnd()

    def make(self, kind: int, count: int, body: bytes, timestamp: int) -> ReplicaEntry:
        plain = self.next_entry(kind, count, body, timestamp)
        return packed_entry(plain, self.end, self.term)


def packed_entry(plain: ModelEntry, end: LogEnd, term: int) -> ReplicaEntry:
    header = pack_header(
        length=len(plain.body), kind=plain.kind, count=plain.count, term=term, index=plain.index,
        base_offset=plain.base_offset, previous_crc=end.last_crc, body_crc=crc32c(plain.body),
        max_timestamp=plain.timestamp,
    )  # fmt: skip
    packed = header + plain.body + bytes(padded(len(plain.body)) - len(plain.body))
    return ReplicaEntry(
        plain.index, plain.base_offset, plain.count, plain.kind, plain.timestamp, plain.body,
        plain.state, term, packed,
    )  # fmt: skip


class ReplicaWorld(World):
    """`groups` has `ReplicaGroup`s with `ReplicaEntry`s only."""

    def __init__(
        self, seed: object, *, settings: LogSettings = TINY_REPLICAS,
        group: GroupSettings = TINY_GROUP,
    ) -> None:  # fmt: skip
        self.cuts = self.votes = self.installs = self.carried = self.raw_reads = self.busy = 0
        super().__init__(seed, settings=settings, group=group)

    def group(self, number: int) -> ReplicaGroup:
        found = self.groups[number]
        assert isinstance(found, ReplicaGroup)
        return found

    def add_group(self) -> int:
        number, self.next_group = self.next_group, self.next_group + 1
        self.groups[number] = ReplicaGroup(applies_early=self.random.random() < 0.3)
        self.store.configure(number, self.group_settings)
        return number

    # --- the observer ----------------------------------------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        super().log_durable(through)
        for number in through:
            group = self.group(number)
            gone = [at for at, each in enumerate(group.older) if each.cut_after < group.acked]
            del group.older[: gone[-1] + 1 if gone else 0]

    def snapshot(self, number: int) -> tuple[int, bytes]:
        group = self.groups[number]
        return group.applied, _STATE.pack(group.applied, group.state(group.applied))

    # --- recovery --------------------------------------------------------------------------------

    def check_recovered(self, number: int) -> None:
        group = self.group(number)
        found = self.store.recovered[number]
        assert not found.damage, f"group {number}: {found.damage}"
        assert not self.store.replicated.faults(number)
        self._check_state(group, found.state)
        last = found.next_index - 1
        versions = [Version(self._entries(number)), *group.older]
        coming = group.coming
        if coming is not None and found.snapshot_index >= coming.snapshot_index:
            versions = [coming]
        else:
            assert last >= group.acked, f"group {number}: durable to {group.acked}, found {last}"
        matching = [each for each in versions if _ends_with(each.entries, last, found.last_crc)]
        assert matching, f"group {number}: {last} entries that never followed one another"
        version = matching[0]
        del version.entries[last:]
        assert found.log_start <= max(group.log_start, version.log_start)
        group.entries = list(version.entries)
        assert found.next_offset == group.end_offset
        if found.snapshot_index:
            assert found.snapshot_index <= last, "the snapshot knows more than the log"
            at = group.state(found.snapshot_index)
            assert found.snapshot == _STATE.pack(found.snapshot_index, at), "another index"
            assert found.snapshot_term == version.entries[found.snapshot_index - 1].term
        assert [header.index for header, _ in found.entries] == list(
            range(found.snapshot_index + 1, last + 1)
        )
        for header, body in found.entries:
            entry = group.entries[header.index - 1]
            assert (header.base_offset, header.count) == (entry.base_offset, entry.count)
            assert bytes(body) == entry.body
        group.log_start, group.acked = found.log_start, last
        group.applied_index = max(group.applied_index, found.snapshot_index)
        group.applied_index = min(group.applied_index, last)
        group.term = max(group.term, group.end.term)
        group.is_installing, group.coming = False, None
        group.older.clear()

    def _check_state(self, group: ReplicaGroup, state: HardState) -> None:
        assert state in group.states, f"{state}, which nobody has asked for"
        assert group.told.may_become(state), f"{state} after {group.told} was durable"
        assert state.may_become(group.state_now), f"{state}, never more than {group.state_now}"
        group.told = group.state_now = state
        group.states = [state]
        group.term = max(group.term, state.term)

    def open(self) -> None:
        super().open()
        for number in self.groups:
            group = self.group(number)
            if number not in self.store.recovered:
                assert group.told == HardState(), f"group {number} is gone with {group.told}"
                self.groups[number] = ReplicaGroup()

    # --- steps -----------------------------------------------------------------------------------

    def append(
        self, number: int, *, size: int, kind: int = EntryKind.BATCH, count: int = 1
    ) -> bool:
        group = self.group(number)
        if group.is_installing:
            return False
        timestamp = max(self.scheduler.now_us() - self.random.randint(0, 1000), 0)
        entry = group.make(kind, count, self.random.randbytes(size), timestamp)
        try:
            if self.random.random() < 0.5:
                self.store.replicated.append_raw(number, entry.packed)
            else:
                self.store.append(
                    number,
                    NewEntry(
                        kind, 0, 0, count, entry.term, entry.index, entry.base_offset,
                        crc32c(entry.body), timestamp, entry.body,
                    ),
                )  # fmt: skip
        except StorageFull:
            return False
        except Busy:
            self.busy += 1
            return False
        group.entries.append(entry)
        return True

    def apply(self, number: int, through: int) -> None:
        group = self.group(number)
        group.applied_index = max(group.applied_index, through)

    def cut(self, number: int, after: int) -> None:
        """Another leader: what is behind `after` goes, and a later term comes."""
        group = self.group(number)
        group.older.append(Version(self._entries(number), after))
        del group.entries[after:]
        group.acked = min(group.acked, after)
        group.term += 1
        self.store.replicated.truncate(number, after)
        waiting = sum(log.waiting_bytes for log in self.store._groups.values())
        assert self.store._waiting_bytes == waiting
        self.cuts += 1

    def _entries(self, number: int) -> list[ReplicaEntry]:
        return [each for each in self.group(number).entries if isinstance(each, ReplicaEntry)]

    def vote(self, number: int, vote: str) -> None:
        group = self.group(number)
        state = HardState(group.state_now.term, vote)
        if not group.state_now.may_become(state) or state == group.state_now:
            state = HardState(max(group.state_now.term, group.term) + 1, vote)
        group.state_now = state
        group.states.append(state)
        group.term = max(group.term, state.term)

        def told() -> None:
            assert group.told.may_become(state), f"{state} told after {group.told}"
            group.told = state
            self.votes += 1

        self.store.replicated.persist(number, state, told)

    def install(self, number: int, count: int) -> None:
        """A leader sends its state: `count` entries on from what is applied here."""
        group = self.group(number)
        leader = ReplicaGroup(list(group.entries[: group.applied]), term=group.term + 1)
        for _ in range(count):
            body = self.random.randbytes(self.random.choice((0, 30, 200)))
            leader.entries.append(leader.make(EntryKind.BATCH, 2, body, 5))
        entries: list[Any] = leader.entries
        last = len(entries)
        group.coming = coming = Version(entries, 0, leader.end_offset, last)
        group.is_installing = True

        def installed() -> None:
            group.entries, group.acked, group.applied_index = entries, last, last
            group.log_start = coming.log_start
            group.older.clear()
            group.is_installing, group.coming = False, None
            group.term = leader.term
            self.installs += 1

        state = _STATE.pack(last, leader.state(last))
        snapshot = Snapshot(leader.end, 0, state)
        self.store.install_snapshot(number, snapshot, installed)

    def read_raw(self, number: int, first: int, bytes_max: int) -> None:
        """Read entries as they are, and compare them."""
        answers: list[RawEntries | HocketError] = []
        entries = self._entries(number)
        try:
            found: Any = self.store.replicated.read_raw(
                number, first, end_index=len(entries) + 1, bytes_max=bytes_max, done=answers.append
            )
        except HocketError as error:
            found = error
        if found is None:
            assert self.scheduler.run_until_true(lambda: answers, within_us=10_000_000)
            found = answers[0]
        if isinstance(found, HocketError):
            assert first < self.store.replicated.bounds(number)[0], found
            return
        data = b"".join(found.slices)
        assert (found.first_index, found.bytes) == (first, len(data))
        expected = entries[first - 1 : found.end_index - 1]
        assert data == b"".join(each.packed for each in expected)
        assert len(data) <= bytes_max or found.end_index == first + 1
        before = entries[first - 2].end if first > 1 else LogEnd()
        assert found.previous_crc == before.last_crc
        assert found.previous_term in (before.term, None), f"{found}, behind {before}"
        self.raw_reads += 1

    # --- chance ----------------------------------------------------------------------------------

    def _steps(self) -> Any:
        return (
            (0.33, self._append),
            (0.15, self._flush_and_run),
            (0.06, self._read),
            (0.06, self._read_raw),
            (0.07, self._cut),
            (0.05, self._vote),
            (0.08, self._apply),
            (0.02, self._install),
            (0.02, self._get_stuck),
            (0.02, self._move_start),
            (0.02, self._checkpoint),
            (0.03, self._delete_or_add),
            (0.02, self._long_pause),
            (0.03, self.crash),
            (0.02, self.kill),
            (0.02, self._reopen),
        )

    def _flush_and_run(self) -> None:
        super()._flush_and_run()
        if self.random.random() < 0.6:
            self._apply()

    def _apply(self) -> None:
        for number in self.groups:
            group = self.group(number)
            through = len(group.entries) if group.applies_early else group.acked
            if not group.is_stuck and not group.is_installing and through > group.applied:
                self.apply(number, self.random.randint(group.applied, through))

    def _get_stuck(self) -> None:
        group = self.group(self._pick())
        group.is_stuck = not group.is_stuck

    def _cut(self) -> None:
        number = self._pick()
        group = self.group(number)
        if group.applied < len(group.entries) and not group.is_installing:
            self.cut(number, self.random.randint(group.applied, len(group.entries) - 1))
            if self.random.random() < 0.7:
                self.append(number, size=50)

    def _vote(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.vote(self._pick(), self.random.choice(_VOTERS))
        self.store.flush()

    def _install(self) -> None:
        number = self._pick()
        if not self.group(number).is_installing:
            self.install(number, self.random.randint(1, 6))

    def _read_raw(self) -> None:
        number = self._pick()
        count = len(self.groups[number].entries)
        if count and not self.group(number).is_installing:
            sizes = (1, 200, 1000, 10_000)
            self.read_raw(number, self.random.randint(1, count), self.random.choice(sizes))

    def _move_start(self) -> None:
        number = self._pick()
        group = self.group(number)
        if group.is_installing:
            return
        through = min(group.applied, group.acked)
        done = group.entries[through - 1].end_offset if through else 0
        group.log_start = self.random.randint(group.log_start, max(done, group.log_start))
        self.store.set_log_start(number, group.log_start)

    def play(self, steps: int, *, power_losses: bool = True) -> None:
        super().play(steps, power_losses=power_losses)
        for number, group in self.groups.items():
            first = max(self.store.replicated.bounds(number)[0], 1)
            for index in range(first, len(group.entries) + 1):
                self.read_raw(number, index, 300)


def _ends_with(entries: list[ReplicaEntry], last: int, crc: int) -> bool:
    if last > len(entries):
        return False
    return crc == (entries[last - 1].end.last_crc if last else 0)
