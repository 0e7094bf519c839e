"""A group is set to a state of another node's log: wholly, or not at all if the power fails."""

from __future__ import annotations

import errno

import pytest
from crc32c import crc32c

from hocket.log.model import METADATA
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore, NewEntry
from hocket.log.verify import verify
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import PowerLoss, SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import Scheduler
from tests.support.log.world import TINY

OTHER = 5
BATCH = bytes(200)


class Installing:
    """A store with the metadata and another group, and what it was told."""

    def __init__(self, seed: object) -> None:
        self.scheduler = Scheduler(seed)
        self.disk = SimDisk()
        self.acked = {METADATA: 0, OTHER: 0}
        self.state = (0, b"")  # of the metadata: applied index, snapshot
        self.installed = False
        self.open()

    def open(self) -> None:
        self.executor = SimExecutor(self.scheduler)
        self.store = LogStore.open(self.disk, self.executor, SimClock(self.scheduler), TINY)
        for group in self.acked:
            self.store.configure(group, GroupSettings())
        self.store.report_to(self)

    # --- the observer ---------------------------------------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for group, index in through.items():
            self.acked[group] = index
            if group == METADATA:
                self.state = (index, b"state %d" % index)

    def log_stopped(self, error: Exception) -> None:
        raise error

    def log_room(self) -> None:
        """Nobody waits."""

    def snapshot(self, group: int) -> tuple[int, bytes]:
        return self.state if group == METADATA else (self.acked[OTHER], b"other")

    # --- steps ----------------------------------------------------------------------------------

    def append(self, group: int, index: int, term: int) -> None:
        is_batch = group == OTHER
        body = BATCH if is_batch else b"entry %d" % index
        kind = EntryKind.BATCH if is_batch else EntryKind.CONFIG
        offset = index - 1 if is_batch else 0
        entry = NewEntry(kind, 0, 0, int(is_batch), term, index, offset, crc32c(body), 0, body)
        self.store.append(group, entry)

    def pass_time(self, microseconds: int = 20_000) -> None:
        self.store.flush()
        self.scheduler.run_for(microseconds)

    def install(self) -> None:
        def done() -> None:
            self.installed = True
            self.state = (40, b"installed")
            self.acked[METADATA] = 40

        self.store.install(METADATA, 40, 7, b"installed", done)

    def live(self) -> None:
        for index in range(1, 6):
            self.append(METADATA, index, 1)
            self.append(OTHER, index, 1)
            self.pass_time()
        self.store.checkpoint_now()  # one is under way when the other is asked for
        self.install()
        for index in range(6, 9):  # the other group goes on meanwhile
            self.append(OTHER, index, 1)
            self.pass_time(300)
        self.scheduler.run_for(100_000)
        assert self.installed
        for index in (41, 42):
            self.append(METADATA, index, 7)
            self.append(OTHER, index - 32, 1)
            self.pass_time()

    def check(self) -> None:
        """After a crash: the old state with all that was acknowledged, or the new one."""
        acked, installed = dict(self.acked), self.installed
        self.open()
        metadata = self.store.recovered.get(METADATA)
        if metadata is None:
            assert not installed
            assert acked[METADATA] == 0
            return
        assert not metadata.damage
        indexes = [header.index for header, _ in metadata.entries]
        if metadata.snapshot_index >= 40:
            start = metadata.snapshot_index
            assert metadata.snapshot == (b"installed" if start == 40 else b"state %d" % start)
            assert metadata.term == 7
        else:
            assert not installed, "it was told to be durable"
            start = metadata.snapshot_index
            assert all(index <= 5 for index in indexes)
        assert indexes == list(range(start + 1, metadata.next_index))
        assert metadata.next_index > acked[METADATA]
        other = self.store.recovered.get(OTHER)
        assert (other.next_index if other else 1) > acked[OTHER]
        assert not (other and other.damage)


def test_it_is_there_after_a_restart_and_goes_on_behind_it():
    world = Installing("whole")
    world.live()
    world.store.close()
    world.check()
    recovered = world.store.recovered[METADATA]
    assert (recovered.next_index, recovered.term, recovered.snapshot) == (43, 7, b"state 42")
    assert (recovered.snapshot_index, recovered.snapshot_term) == (42, 7)
    world.append(METADATA, 43, 8)
    world.pass_time()
    assert world.acked[METADATA] == 43
    world.store.close()
    assert verify(world.disk).ok


@pytest.mark.parametrize("power", [True, False])
def test_the_power_may_fail_before_every_operation_of_the_disk(power):
    seen = {"old": 0, "new": 0}
    for cut_at in range(1000):
        world = Installing(f"cut at {cut_at}")
        left = cut_at

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss(f"before {operation} of {path}")

        world.disk.before = count
        try:
            world.live()
        except PowerLoss:
            world.disk.before = nothing
            world.executor.crash()
            if power:
                world.disk.crash(world.scheduler.random("crash"))
            else:
                world.disk.kill()
            world.check()
            found = world.store.recovered.get(METADATA)
            seen["new" if found and found.snapshot_index >= 40 else "old"] += 1
            world.store.abandon()
        else:
            break
    assert min(seen.values()) > 5, seen


def test_a_group_that_is_new_can_be_installed_before_anybody_is_told_anything():
    world = Installing("new")
    world.store.close()
    world.executor = SimExecutor(world.scheduler)
    world.store = LogStore.open(world.disk, world.executor, SimClock(world.scheduler), TINY)
    done: list[bool] = []
    world.store.install(77, 12, 3, b"carried", lambda: done.append(True))
    world.store.configure(77, GroupSettings())
    world.store.report_to(world)
    assert done == [True]  # durable by now
    world.executor.crash()
    world.disk.crash(world.scheduler.random("crash"))
    world.open()
    recovered = world.store.recovered[77]
    assert (recovered.snapshot, recovered.snapshot_index) == (b"carried", 12)
    assert (recovered.next_index, recovered.term) == (13, 3)


def test_who_is_told_of_one_may_install_the_next_while_others_wait_for_the_checkpoint():
    world = Installing("next")
    told: list[object] = []

    def next_one() -> None:
        told.append("first")
        world.store.install(78, 5, 2, b"second", lambda: told.append("second"))

    world.store.install(77, 12, 3, b"first", next_one)
    world.store.install(79, 9, 3, b"beside", lambda: told.append("beside"))
    world.store.checkpoint_now(told.append)
    world.scheduler.run_for(500_000)
    assert told == ["first", "beside", "second", None]  # who asked last has the checkpoint behind
    world.executor.crash()
    world.disk.crash(world.scheduler.random("crash"))
    world.open()
    assert [world.store.recovered[group].snapshot for group in (77, 78)] == [b"first", b"second"]


def test_on_a_full_disk_it_is_tried_again():
    world = Installing("full")
    world.append(METADATA, 1, 1)
    world.pass_time()
    world.disk.before = full_for_checkpoints
    world.install()
    world.scheduler.run_for(200_000)
    assert not world.installed
    world.disk.before = nothing
    for _ in range(10):
        world.store.tick()
        world.scheduler.run_for(50_000)
    assert world.installed


def nothing(_operation: str, _path: str) -> None:
    """All goes well."""


def full_for_checkpoints(operation: str, path: str) -> None:
    if operation == "write" and path.startswith("checkpoint"):
        raise OSError(errno.ENOSPC, "no space left on device")
