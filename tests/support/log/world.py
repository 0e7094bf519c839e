"""A store in a simulated world, and a model of what it must hold.

The model is a list of entries per group. What was acknowledged must survive every crash, byte for
byte; of what was not, some beginning may survive, in order and without a gap; nothing else may be
there. `World` plays random steps against both and compares.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from hocket.errors import HocketError, OutOfRange, StorageFull
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import LogStore, NewEntry, ReadResult
from hocket.log.verify import verify
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import PowerLoss, SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import Scheduler
from hocket.wire.entry import HEADER_BYTES, padded, unpack_header

TINY = LogSettings(
    wal_file_bytes=4096, wal_file_bytes_min=2048, commit_bytes_max=3000, checkpoint_bytes=3000,
    checkpoint_interval_us=300_000, checkpoint_spacing_us=1000, undurable_bytes_max=4000,
    unwritten_bytes_max=10_000, mark_after_us=20_000, retry_us=50_000, slab_bytes=1024,
    slab_bytes_min=128, index_interval_bytes=200, reserve_bytes=1024, wal_reserve_bytes=6144,
    scrub_interval_us=0,
    new_store_id="simulated",
)  # fmt: skip
TINY_GROUP = GroupSettings(
    memory_retention_us=200_000, memory_bytes_max=2000, segment_bytes_max=1500
)
_STATE = struct.Struct("<QI")


@dataclass(slots=True)
class ModelEntry:
    index: int
    base_offset: int
    count: int
    kind: int
    timestamp: int
    body: bytes
    state: int  # follows from this entry and all before it

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(slots=True)
class ModelGroup:
    entries: list[ModelEntry] = field(default_factory=list)
    acked: int = 0  # index of the last entry that was said to be durable
    log_start: int = 0
    applies_early: bool = False  # applies entries before they are durable

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else 0

    @property
    def applied(self) -> int:
        return len(self.entries) if self.applies_early else self.acked

    def state(self, index: int) -> int:
        return self.entries[index - 1].state if index else 0

    def next_entry(self, kind: int, count: int, body: bytes, timestamp: int) -> ModelEntry:
        index = len(self.entries) + 1
        state = crc32c(body, self.state(index - 1))
        return ModelEntry(index, self.end_offset, count, kind, timestamp, body, state)


class World:
    """Also the store's observer."""

    def __init__(
        self, seed: object, *, settings: LogSettings = TINY, group: GroupSettings = TINY_GROUP
    ) -> None:
        self.seed = seed
        self.settings = settings
        self.group_settings = group
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random("steps")
        self.disk = SimDisk()
        self.groups: dict[int, ModelGroup] = {}
        self.next_group = 1
        self.stopped: HocketError | None = None
        self.rooms = 0
        self.checked = 0  # batches compared with the model
        self.open()

    # --- the observer ----------------------------------------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for number, index in through.items():
            group = self.groups[number]
            assert group.acked < index <= len(group.entries), "durable before it was appended"
            group.acked = index

    def log_stopped(self, error: HocketError) -> None:
        assert self.stopped is None, "stopped twice"
        self.stopped = error

    def log_room(self) -> None:
        self.rooms += 1

    def snapshot(self, number: int) -> tuple[int, bytes]:
        group = self.groups[number]
        return group.applied, _STATE.pack(group.applied, group.state(group.applied))

    # --- a life of the store -----------------------------------------------------------------

    def open(self) -> None:
        self.executor = SimExecutor(self.scheduler)
        self.store = LogStore.open(
            self.disk, self.executor, SimClock(self.scheduler), self.settings
        )
        self.store.report_to(self)
        for number in sorted(self.store.recovered):
            if number in self.groups:
                self.check_recovered(number)
            else:
                assert not self.store.recovered[number].damage
                self.store.delete_group(number)
        for number, group in list(self.groups.items()):
            if number not in self.store.recovered:
                assert group.acked == 0, f"group {number} with {group.acked} durable is gone"
                group.entries.clear()
                group.log_start = 0
            self.store.configure(number, self.group_settings)

    def crash(self) -> None:
        """The power fails and comes back."""
        self.executor.crash()
        self.disk.crash(self.scheduler.random("crash"))
        if self.random.random() < 0.3:
            self.check_offline()
        self.open()

    def kill(self) -> None:
        """The process is killed; the machine, with all that is in its cache, goes on."""
        self.executor.crash()
        self.disk.kill()
        self.open()

    def close(self) -> None:
        self.store.close()
        self.executor.crash()

    def check_recovered(self, number: int) -> None:
        """What `open` found is a beginning of what was appended, and holds all that was acked."""
        group = self.groups[number]
        found = self.store.recovered[number]
        last = found.next_index - 1
        assert not found.damage, f"group {number}: {found.damage}"
        assert last >= group.acked, f"group {number}: durable to {group.acked}, found {last}"
        assert last <= len(group.entries), f"group {number}: {last} of {len(group.entries)}"
        assert found.log_start <= group.log_start
        del group.entries[last:]
        assert found.next_offset == group.end_offset
        if found.snapshot_index:
            assert found.snapshot_index <= last, "the snapshot knows more than the log"
            expected = _STATE.pack(found.snapshot_index, group.state(found.snapshot_index))
            assert found.snapshot == expected, "the snapshot is of another index"
        indexes = [header.index for header, _ in found.entries]
        assert indexes == list(range(found.snapshot_index + 1, last + 1))
        for header, body in found.entries:
            entry = group.entries[header.index - 1]
            assert (header.base_offset, header.count) == (entry.base_offset, entry.count)
            assert bytes(body) == entry.body
        group.acked = last
        group.log_start = found.log_start

    # --- steps -----------------------------------------------------------------------------------

    def add_group(self) -> int:
        number, self.next_group = self.next_group, self.next_group + 1
        self.groups[number] = ModelGroup(applies_early=self.random.random() < 0.3)
        self.store.configure(number, self.group_settings)
        return number

    def append(
        self, number: int, *, size: int, kind: int = EntryKind.BATCH, count: int = 1,
        admitted: bool = False, awaited: bool = True,
    ) -> bool:  # fmt: skip
        """False if the store refused it."""
        group = self.groups[number]
        timestamp = max(self.scheduler.now_us() - self.random.randint(0, 1000), 0)
        entry = group.next_entry(kind, count, self.random.randbytes(size), timestamp)
        try:
            self.store.append(
                number,
                NewEntry(
                    kind, 0, 0, count, 1, entry.index, entry.base_offset, crc32c(entry.body),
                    timestamp, entry.body,
                ),
                admitted=admitted,
                awaited=awaited,
            )  # fmt: skip
        except StorageFull:
            return False
        group.entries.append(entry)
        return True

    def run(self, duration_us: int) -> None:
        """Let time pass, with ticks."""
        end_us = self.scheduler.now_us() + duration_us
        while self.scheduler.now_us() < end_us:
            self.store.tick()
            self.scheduler.run_for(min(10_000, end_us - self.scheduler.now_us()))

    def settle(self) -> None:
        """Let everything become durable."""
        self.store.flush()
        self.run(100_000)

    def fetch(self, number: int, offset: int, *, bytes_max: int = 1000) -> ReadResult | HocketError:
        """Read, from memory or from disk."""
        answers: list[ReadResult | HocketError] = []
        try:
            result = self.store.read(
                number, offset, bytes_max=bytes_max, end_offset=1 << 60, done=answers.append
            )
        except HocketError as error:
            return error
        if result is not None:
            return result
        assert self.scheduler.run_until_true(lambda: answers, within_us=10_000_000)
        return answers[0]

    def check_read(self, number: int, offset: int, *, bytes_max: int) -> int:
        """Read and compare with the model. Returns the next offset."""
        group = self.groups[number]
        result = self.fetch(number, offset, bytes_max=bytes_max)
        if isinstance(result, OutOfRange) and offset < self.groups[number].log_start:
            return group.log_start
        assert isinstance(result, ReadResult), result
        return self.compare(group, offset, result, bytes_max)

    def compare(self, group: ModelGroup, offset: int, result: ReadResult, bytes_max: int) -> int:
        batches = [e for e in group.entries if e.kind == EntryKind.BATCH and e.end_offset > offset]
        data = b"".join(result.slices)
        assert len(data) == result.bytes
        position = 0
        for number, entry in enumerate(batches):
            if position == len(data):
                break
            header = unpack_header(data, position)
            self.checked += 1
            assert (header.index, header.base_offset) == (entry.index, entry.base_offset)
            assert data[position + HEADER_BYTES :][: header.length] == entry.body
            assert number == 0 or position + header.size <= bytes_max
            position += HEADER_BYTES + padded(header.length)
            end = entry.end_offset
        assert position == len(data)
        if not batches:
            assert (result.start_offset, result.end_offset) == (offset, offset)
            return offset
        assert data, "there is a batch, but none was read"
        assert result.start_offset == batches[0].base_offset
        assert result.end_offset == end
        return end

    def check_all(self) -> None:
        """Read every group from its start to its end."""
        for number, group in self.groups.items():
            offset = group.log_start
            while offset < group.end_offset:
                offset = self.check_read(number, offset, bytes_max=700)

    def check_offline(self) -> None:
        """The directory is sound by itself, whether the store was closed or has crashed."""
        report = verify(self.disk)
        assert report.ok, report
        assert not report.damage, report

    # --- chance ------------------------------------------------------------------------------

    def step(self) -> None:
        choose = self.random.random()
        for share, action in self._steps():
            if choose < share:
                action()
                return
            choose -= share

    def _steps(self) -> Any:
        return (
            (0.43, self._append),
            (0.20, self._flush_and_run),
            (0.12, self._read),
            (0.05, self._find_time),
            (0.04, self._move_start),
            (0.02, self._checkpoint),
            (0.04, self._delete_or_add),
            (0.03, self._long_pause),
            (0.03, self.crash),
            (0.02, self.kill),
            (0.02, self._reopen),
        )

    def _pick(self) -> int:
        if not self.groups:
            return self.add_group()
        return self.random.choice(list(self.groups))

    def _append(self) -> None:
        number = self._pick()
        for _ in range(self.random.randint(1, 4)):
            is_batch = self.random.random() < 0.8
            size = self.random.choice((0, 7, 50, 200, 200, 900))
            if self.random.random() < 0.02:
                size = 6000  # larger than a file of the WAL
            if self.store.congested:
                break
            self.append(
                number,
                size=size,
                kind=EntryKind.BATCH if is_batch else EntryKind.CURSOR,
                count=self.random.randint(1, 5) if is_batch else 0,
            )

    def _flush_and_run(self) -> None:
        self.store.flush()
        if self.random.random() < 0.3:
            self.store.tick()
        self.scheduler.run_for(self.random.choice((0, 300, 1000, 5000)))

    def _read(self) -> None:
        number = self._pick()
        group = self.groups[number]
        offset = self.random.randint(group.log_start, group.end_offset)
        self.check_read(number, offset, bytes_max=self.random.choice((1, 300, 1000, 5000)))

    def _find_time(self) -> None:
        number = self._pick()
        group = self.groups[number]
        batches = [e for e in group.entries if e.kind == EntryKind.BATCH]
        if not batches:
            return
        time_us = self.random.choice(batches).timestamp + self.random.choice((0, 0, 1))
        answers: list[int | HocketError] = []
        found = self.store.offset_at_time(number, time_us, answers.append)
        if found is None:
            assert self.scheduler.run_until_true(lambda: answers, within_us=10_000_000)
            answer = answers[0]
            if isinstance(answer, OutOfRange):
                return
            assert isinstance(answer, int), answer
            found = answer
        expected = next(
            (
                max(e.base_offset, group.log_start)
                for e in batches
                if e.timestamp >= time_us and e.end_offset > group.log_start
            ),
            group.end_offset,
        )
        assert found == expected

    def _move_start(self) -> None:
        number = self._pick()
        group = self.groups[number]
        done = group.entries[group.acked - 1].end_offset if group.acked else 0
        group.log_start = self.random.randint(group.log_start, max(done, group.log_start))
        self.store.set_log_start(number, group.log_start)

    def _checkpoint(self) -> None:
        self.store.checkpoint_now()

    def _delete_or_add(self) -> None:
        if len(self.groups) > 2 and self.random.random() < 0.4:
            number = self._pick()
            del self.groups[number]
            self.store.delete_group(number)
            if self.random.random() < 0.5:
                self.store.checkpoint_now()
        elif len(self.groups) < 6:
            self.add_group()

    def _long_pause(self) -> None:
        self.store.flush()
        self.run(self.random.choice((50_000, 400_000, 800_000)))

    def _reopen(self) -> None:
        self.close()
        self.check_offline()
        self.disk.kill()
        self.open()

    def play(self, steps: int, *, power_losses: bool = True) -> None:
        """Random steps; now and then the power fails in the middle of an operation of the disk."""
        for _ in range(steps):
            if power_losses and self.random.random() < 0.05:
                self._plan_power_loss()
            try:
                self.step()
            except PowerLoss:
                self._come_back()
        self.disk.before = lambda operation, path: None
        self.settle()
        self.check_all()

    def _plan_power_loss(self) -> None:
        left = self.random.choice((5, 10, 25, 50))
        left = self.random.randint(1, left)

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise PowerLoss(f"before {operation} of {path}")

        self.disk.before = count

    def _come_back(self) -> None:
        while True:
            self.executor.crash()
            killed = self.random.random() < 0.4
            if killed:
                self.disk.kill()  # it was only the process
            else:
                self.disk.crash(self.scheduler.random("crash"))
            if self.random.random() < (0.6 if killed else 0.2):
                self._plan_power_loss()  # and once more, while it recovers or soon after
            try:
                self.open()
            except PowerLoss:
                continue
            return
