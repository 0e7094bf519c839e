"""The store's interface, in a simulated world without crashes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from crc32c import crc32c

from hocket.errors import (
    DataDirectoryInUse,
    HocketError,
    NewerFormat,
    NotADataDirectory,
    OutOfRange,
    StorageFull,
)
from hocket.log.directory import COPY, IDENTITY, write_checked
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import FIRST_INDEX, LogStore, NewEntry, ReadResult
from hocket.model import SECOND_US, EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.wire.entry import unpack_header
from tests.support.log.world import TINY, World

ROOMY = LogSettings(
    wal_file_bytes=1 << 20, wal_file_bytes_min=1 << 16, reserve_bytes=512, scrub_interval_us=0,
    checkpoint_interval_us=10**12, mark_after_us=20_000, new_store_id="simulated",
)  # fmt: skip
ROOMY_GROUP = GroupSettings(memory_retention_us=10**12, segment_bytes_max=4000)


def roomy_world(group: GroupSettings = ROOMY_GROUP) -> World:
    world = World(1, settings=ROOMY, group=group)
    world.add_group()
    return world


def unwanted(result: object) -> None:
    pytest.fail(f"this should have come at once, not later: {result}")


def checkpoint(world: World) -> None:
    outcomes: list[HocketError | None] = []
    world.store.checkpoint_now(outcomes.append)
    assert world.scheduler.run_until_true(lambda: outcomes, within_us=10**7)
    assert outcomes == [None]


# --- appending -----------------------------------------------------------------------------------


def test_an_entry_can_be_read_at_once_and_is_durable_later() -> None:
    world = roomy_world()
    world.append(1, size=10, count=3)
    result = world.store.read(1, 1, bytes_max=1, end_offset=10, done=unwanted)
    assert result is not None
    assert (result.start_offset, result.end_offset, len(result.slices)) == (0, 3, 1)
    assert world.groups[1].acked == 0
    world.scheduler.run_for(10**6)
    assert world.groups[1].acked == 0, "nothing happens before flush"
    world.store.flush()
    world.scheduler.run_for(10_000)
    assert world.groups[1].acked == 1
    world.close()


def test_entries_that_nobody_waits_for_are_written_together() -> None:
    world = roomy_world()
    begun = world.store.wal.next_lsn
    for _ in range(40):  # one each millisecond
        world.append(1, size=3, awaited=False)
        world.store.flush()
        world.scheduler.run_for(1_000)
    assert 3 <= world.store.wal.next_lsn - begun <= 5
    world.scheduler.run_for(10_000)
    world.store.flush()  # as each tick does
    world.scheduler.run_for(10_000)
    assert world.groups[1].acked == 40
    world.close()


def test_entries_that_rest_go_with_one_that_somebody_waits_for() -> None:
    world = roomy_world()
    for _ in range(2):  # the first does not rest, since nothing was written just now
        world.append(1, size=3, awaited=False)
        world.store.flush()
    world.scheduler.run_for(9_000)
    world.store.flush()
    assert world.groups[1].acked == 1
    world.append(1, size=3)
    world.store.flush()
    world.scheduler.run_for(9_000)
    assert world.groups[1].acked == 3
    world.close()


def test_much_does_not_rest_and_a_checkpoint_waits_for_no_rest() -> None:
    world = roomy_world()
    world.append(1, size=3, awaited=False)
    world.store.flush()
    world.scheduler.run_for(5_000)
    world.append(1, size=300 << 10, awaited=False)
    world.store.flush()
    assert world.scheduler.run_until_true(lambda: world.groups[1].acked == 2, within_us=10**6)
    world.append(1, size=3, awaited=False)
    checkpoint(world)
    assert world.groups[1].acked == 3
    world.close()


def test_commits_are_self_clocked() -> None:
    """What comes while a commit is under way goes into the next one, all of it."""
    world = roomy_world()
    world.append(1, size=10)
    world.store.flush()
    for _ in range(50):
        world.append(1, size=10)
        world.store.flush()
    before = world.store._wal.next_lsn
    world.scheduler.run_for(10_000)
    assert world.groups[1].acked == 51
    assert world.store._wal.next_lsn == before + 1
    world.close()


def test_headers_are_chained_and_stamped() -> None:
    world = roomy_world()
    for count in (2, 0, 3):
        world.append(1, size=5, count=count, kind=EntryKind.BATCH if count else EntryKind.CURSOR)
    result = world.store.read(1, 0, bytes_max=1000, end_offset=5, done=unwanted)
    assert result is not None
    first, last = (unpack_header(view) for view in result.slices)
    assert (first.index, first.base_offset, first.previous_crc) == (FIRST_INDEX, 0, 0)
    assert (last.index, last.base_offset) == (3, 2)
    assert last.previous_crc not in (0, first.crc), "the entry between them is part of the chain"
    world.close()


@pytest.mark.parametrize("wrong", [{"index": 2}, {"base_offset": 1}, {"count": 0}, {"kind": 2}])
def test_our_own_mistakes_are_asserted(wrong: dict[str, int]) -> None:
    world = roomy_world()
    entry = NewEntry(EntryKind.BATCH, 0, 0, 1, 1, 1, 0, 0, 0, b"")
    with pytest.raises(AssertionError):
        world.store.append(1, replace(entry, **wrong))
    assert world.append(1, size=0)
    world.close()


def test_an_entry_that_was_admitted_is_taken_in_any_case() -> None:
    world = roomy_world()
    world.store.admit(1, 100)
    world.disk.capacity_bytes = 0
    with pytest.raises(StorageFull):
        world.store.admit(1, 1 << 20)
    entry = world.groups[1].next_entry(EntryKind.BATCH, 1, bytes(1 << 20), 0)
    new = NewEntry(EntryKind.BATCH, 0, 0, 1, 1, 1, 0, crc32c(entry.body), 0, entry.body)
    world.store.append(1, new, admitted=True)
    world.groups[1].entries.append(entry)
    world.store.flush()
    world.run(2_000_000)
    assert world.groups[1].acked == 0
    world.disk.capacity_bytes = None
    world.run(2_000_000)
    assert world.groups[1].acked == 1
    assert world.rooms == 1
    world.check_all()
    world.close()


def test_slices_outlive_eviction() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=0, segment_bytes_max=4000))
    world.append(1, size=100)
    result = world.fetch(1, 0)
    assert isinstance(result, ReadResult)
    before = b"".join(result.slices)
    world.settle()
    checkpoint(world)
    world.run(50_000)
    assert world.store.stats(1).memory_bytes == 0
    assert b"".join(result.slices) == before
    again = world.fetch(1, 0)
    assert isinstance(again, ReadResult)
    assert b"".join(again.slices) == before
    world.close()


def test_an_entry_larger_than_everything() -> None:
    world = World(1)
    number = world.add_group()
    world.append(number, size=10)
    world.append(number, size=50_000)
    world.append(number, size=10)
    world.settle()
    assert world.groups[number].acked == 3
    world.check_all()
    world.crash()
    world.check_all()
    world.close()


def test_congestion_begins_and_ends() -> None:
    world = World(1, settings=replace(TINY, undurable_bytes_max=1000))
    number = world.add_group()
    while not world.store.congested:
        world.append(number, size=100)
    assert world.rooms == 0
    world.settle()
    assert world.rooms >= 1
    assert not world.store.congested
    world.close()


def test_small_groups_are_small() -> None:
    world = roomy_world()
    for _ in range(99):
        number = world.add_group()
        world.append(number, size=10)
    logs = world.store._groups.values()
    assert sum(slab.capacity for log in logs for slab in log.memory.slabs) <= 99 * 4096
    world.close()


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_reading_limits(place: str) -> None:
    world = roomy_world()
    for _ in range(10):
        world.append(1, size=44, count=2)  # 104 bytes each
    if place == "disk":
        world.settle()
        checkpoint(world)
        world.store._groups[1].memory.evict(appended_until_us=1 << 60, bytes_max=0)
    for bytes_max, batches in ((0, 1), (1, 1), (104, 1), (207, 1), (208, 2), (10_000, 10)):
        result = world.fetch(1, 0, bytes_max=bytes_max)
        assert isinstance(result, ReadResult)
        assert (result.bytes, result.end_offset) == (104 * batches, 2 * batches)
        assert len(result.slices) == 1, "neighbours are one slice"
    stats = world.store.stats(1)
    assert (stats.memory_reads, stats.disk_reads) == ((6, 0) if place == "memory" else (0, 6))
    answers: list[ReadResult | HocketError] = []
    limited = world.store.read(1, 3, bytes_max=10_000, end_offset=7, done=answers.append)
    world.scheduler.run_for(10_000)
    result = limited or answers[0]
    assert isinstance(result, ReadResult)
    assert (result.start_offset, result.end_offset) == (2, 8), "the batch at 6 begins before 7"
    world.close()


def test_reading_outside_the_log() -> None:
    world = roomy_world()
    for _ in range(4):
        world.append(1, size=10)
    assert world.fetch(1, 4) == ReadResult([], 4, 4, 0)
    assert isinstance(world.fetch(1, 5), OutOfRange)
    world.store.set_log_start(1, 2)
    error = world.fetch(1, 1)
    assert isinstance(error, OutOfRange)
    assert "holds 2 to 4" in str(error)
    with pytest.raises(OutOfRange):
        world.store.set_log_start(1, 5)
    world.close()


def test_the_end_given_hides_what_lies_behind_it() -> None:
    world = roomy_world()
    for _ in range(4):
        world.append(1, size=10, count=2)
    result = world.store.read(1, 0, bytes_max=1000, end_offset=4, done=unwanted)
    assert result is not None
    assert result.end_offset == 4
    assert world.store.read(1, 4, bytes_max=1000, end_offset=4, done=unwanted) == ReadResult(
        [], 4, 4, 0
    )
    world.close()


def test_a_segment_that_is_removed_while_it_is_read() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=0, segment_bytes_max=300))
    for _ in range(6):
        world.append(1, size=100)
    world.settle()
    checkpoint(world)
    world.run(50_000)
    answers: list[ReadResult | HocketError] = []
    assert world.store.read(1, 0, bytes_max=1, end_offset=9, done=answers.append) is None
    world.store.set_log_start(1, 6)
    for name in list(world.disk.files()):
        if name.endswith(".log"):
            world.disk.remove(name)
    world.scheduler.run_for(10_000)
    assert isinstance(answers[0], OutOfRange)
    world.close()


def test_offsets_by_time() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=100_000, segment_bytes_max=700))
    times = []
    for _ in range(30):
        times.append(world.scheduler.now_us())
        world.append(1, size=100, count=2)
        world.store.flush()
        world.run(20_000)
    entries = world.groups[1].entries
    assert world.store.stats(1).memory_start > 0
    world.settle()
    checkpoint(world)
    world.run(50_000)
    for number, entry in enumerate(entries):
        answers: list[int | HocketError] = []
        found = world.store.offset_at_time(1, times[number] - 5000, answers.append)
        world.scheduler.run_for(10_000)
        assert (found if found is not None else answers[0]) == entry.base_offset
    assert world.store.offset_at_time(1, 1 << 60, unwanted) == 60
    world.close()


# --- memory and disk -----------------------------------------------------------------------------


def test_an_idle_group_leaves_memory_and_is_read_from_disk() -> None:
    """By the clock alone: the checkpoint that this needs comes by itself."""
    world = roomy_world(GroupSettings(memory_retention_us=500_000, segment_bytes_max=4000))
    for _ in range(5):
        world.append(1, size=100)
    world.settle()
    stats = world.store.stats(1)
    assert (stats.memory_start, stats.memory_bytes, stats.disk_bytes) == (0, 5 * 160, 0)
    world.run(600_000)
    stats = world.store.stats(1)
    assert (stats.memory_start, stats.memory_bytes, stats.disk_bytes) == (5, 0, 5 * 160)
    world.check_all()
    assert world.store.stats(1).disk_reads > 0
    world.append(1, size=100)
    assert world.store.stats(1).memory_start == 5
    world.close()


def test_old_entries_leave_memory_one_by_one() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=500_000, segment_bytes_max=4000))
    for _ in range(10):
        world.append(1, size=100)
        world.store.flush()
        world.run(100_000)
    assert 4 <= world.store.stats(1).memory_start <= 6
    world.check_all()
    world.close()


def test_the_byte_limit_wins_over_the_time() -> None:
    limit = GroupSettings(memory_retention_us=10**12, memory_bytes_max=1000, segment_bytes_max=4000)
    world = roomy_world(limit)
    for _ in range(50):
        world.append(1, size=100)
        world.store.flush()
        world.run(10_000)
    stats = world.store.stats(1)
    assert 0 < stats.memory_bytes <= 1000
    assert stats.memory_start > 40
    world.check_all()
    world.close()


def test_retention_removes_whole_segments_after_a_checkpoint() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=0, segment_bytes_max=500))
    for _ in range(12):
        world.append(1, size=100)
    world.settle()
    checkpoint(world)
    segments = world.store.segments(1)
    assert [(s.base_offset, s.end_offset, s.bytes) for s in segments] == [
        (0, 3, 480), (3, 6, 480), (6, 9, 480), (9, 12, 480),
    ]  # fmt: skip
    assert segments[0].max_timestamp == max(e.timestamp for e in world.groups[1].entries[:3])
    world.store.set_log_start(1, 7)
    world.groups[1].log_start = 7
    assert len(world.store.segments(1)) == 4
    checkpoint(world)
    world.run(50_000)
    assert [s.base_offset for s in world.store.segments(1)] == [6, 9]
    logs = [n for n in world.disk.files() if n.startswith("groups/")]
    assert len([n for n in logs if n.endswith(".log")]) == 2
    assert not [n for n in logs if n.startswith("groups/1/00000000000000000000-")]
    assert world.store.stats(1).start == 7
    world.crash()
    assert world.store.recovered[1].log_start == 7
    world.check_all()
    world.close()


def test_retention_can_take_everything() -> None:
    world = roomy_world(GroupSettings(memory_retention_us=0, segment_bytes_max=500))
    for _ in range(5):
        world.append(1, size=100)
    world.settle()
    checkpoint(world)
    world.store.set_log_start(1, 5)
    world.groups[1].log_start = 5
    checkpoint(world)
    world.run(50_000)
    assert world.store.segments(1) == []
    stats = world.store.stats(1)
    assert (stats.start, stats.memory_start, stats.disk_bytes) == (5, 5, 0)
    world.crash()
    world.append(1, size=100)
    world.settle()
    world.check_all()
    world.close()
    world.check_offline()


def test_a_deleted_group_leaves_nothing_behind() -> None:
    world = roomy_world()
    world.append(1, size=100)
    other = world.add_group()
    world.append(other, size=100)
    world.settle()
    checkpoint(world)
    world.append(1, size=100)  # staged, never written
    del world.groups[1]
    world.store.delete_group(1)
    checkpoint(world)
    world.run(50_000)
    assert not [n for n in world.disk.files() if n.startswith("groups/1/")]
    world.crash()
    assert list(world.store.recovered) == [other]
    world.close()


def test_wal_files_are_used_again() -> None:
    world = World(1, group=GroupSettings(memory_retention_us=0, segment_bytes_max=10_000))
    number = world.add_group()
    made: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "create" and path.startswith("wal/"):
            made.append(path)

    for life in range(300):
        if life == 50:
            world.disk.before = note
        world.append(number, size=200)
        world.settle()
    files = [n for n in world.disk.files() if n.startswith("wal/")]
    assert len(files) <= 5
    assert int(max(files)[4:-4]) > 20
    assert not made, "to fill a new one with zeros costs as much as to use it"
    world.close()


def test_a_checkpoint_can_be_asked_for_while_one_is_under_way() -> None:
    world = roomy_world()
    world.append(1, size=10)
    world.settle()
    outcomes: list[HocketError | None] = []
    world.store.checkpoint_now(outcomes.append)
    world.append(1, size=10)
    world.store.flush()
    world.store.checkpoint_now(outcomes.append)
    world.run(100_000)
    assert outcomes == [None, None]
    world.close()


class Large(World):
    """Its groups have a state of 1 MiB."""

    def __init__(self, group: GroupSettings) -> None:
        self.snapshots = 0
        super().__init__(1, settings=replace(ROOMY, checkpoint_interval_us=SECOND_US), group=group)
        self.add_group()

    def snapshot(self, number: int) -> tuple[int, bytes]:
        self.snapshots += 1
        return self.groups[number].applied, bytes(1 << 20)

    def check_recovered(self, number: int) -> None:
        assert self.store.recovered[number].snapshot == bytes(1 << 20)

    def trickle(self, seconds: int) -> int:
        """A small entry now and then: how many checkpoints are made meanwhile."""
        before = self.snapshots
        for _ in range(10 * seconds):
            self.append(1, size=10)
            self.settle()
        return self.snapshots - before


def test_a_large_state_is_not_written_again_and_again_for_a_few_entries() -> None:
    world = Large(ROOMY_GROUP)
    world.trickle(2)
    assert world.trickle(20) == 10, "two images of 1 MiB, at 1 MiB a second"
    world.close()
    world.open()
    assert world.trickle(20) <= 10, "a store that was opened knows how large the last one was"
    world.close()


def test_a_large_state_is_written_less_often_for_entries_that_are_to_leave_memory() -> None:
    world = Large(replace(ROOMY_GROUP, memory_retention_us=0))
    world.trickle(2)
    assert world.trickle(2) <= 16, "2 MiB, at 16 MiB a second"
    assert world.store.stats(1).memory_bytes < 500
    world.close()


@pytest.mark.parametrize(
    ("image", "wal", "seconds", "spacing_ms"),
    [
        ((1 << 20) - 1, 32 << 20, 5, 50),
        (8 << 20, 32 << 20, 8, 500),  # half a million delayed messages
        (16 << 20, 64 << 20, 16, 1_000),
        (160 << 20, 128 << 20, 60, 10_000),  # ten million: half of what makes producers wait
        (1 << 40, 128 << 20, 60, 60_000),
    ],
)
def test_how_much_wal_there_is_between_checkpoints_is_bounded(
    image, wal, seconds, spacing_ms
) -> None:
    due = LogSettings().checkpoint_after(image)
    assert due == (wal, seconds * SECOND_US, spacing_ms * 1_000)


def test_closing_makes_everything_durable_and_leaves_no_wal_to_replay() -> None:
    world = roomy_world()
    for _ in range(5):
        world.append(1, size=10)
    world.store.close()
    world.store.close()
    assert world.groups[1].acked == 5
    world.disk.crash(world.random)
    world.open()
    found = world.store.recovered[1]
    assert (found.entries, found.snapshot_index) == ([], 5)
    world.close()


# --- the directory -------------------------------------------------------------------------------


def open_on(disk: SimDisk, world: World) -> LogStore:
    executor = SimExecutor(world.scheduler)
    store = LogStore.open(disk, executor, SimClock(world.scheduler), ROOMY)
    store.report_to(world)
    return store


def write(disk: SimDisk, path: str, text: str) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write([text.encode()], 0)


def test_a_store_is_used_by_one_at_a_time_and_keeps_its_id() -> None:
    world = roomy_world()
    with pytest.raises(DataDirectoryInUse):
        open_on(world.disk, world)
    store_id = world.store.store_id
    world.close()
    store = open_on(world.disk, world)
    assert store.store_id == store_id
    store.close()


def test_a_directory_with_something_else_in_it_is_refused() -> None:
    world = roomy_world()
    disk = SimDisk()
    write(disk, "thesis.tex", "years of work")
    with pytest.raises(NotADataDirectory, match=r"not empty and has no hocket\.json"):
        open_on(disk, world)
    assert disk.list("") == ["thesis.tex"]
    world.close()


def test_a_newer_format_is_refused() -> None:
    world = roomy_world()
    world.close()
    for name in (IDENTITY, COPY):
        write_checked(world.disk, name, {"format": 99, "store": "x"})
    with pytest.raises(NewerFormat, match="format 99"):
        open_on(world.disk, world)
    write_checked(world.disk, IDENTITY, {"format": 99, "store": "y"})
    with pytest.raises(NotADataDirectory, match="name different stores"):
        open_on(world.disk, world)
    for name in (IDENTITY, COPY):
        write(world.disk, name, "{")
    with pytest.raises(NotADataDirectory, match="both damaged"):
        open_on(world.disk, world)
    world.disk.remove(COPY)
    write(world.disk, IDENTITY, json.dumps({"format": 99, "store": "x"}))
    with pytest.raises(NewerFormat, match="format 99"):
        open_on(world.disk, world)


def test_ids_come_by_chance_where_none_is_given() -> None:
    world = roomy_world()
    ids = set()
    for _ in range(2):
        disk = SimDisk()
        executor = SimExecutor(world.scheduler)
        settings = replace(ROOMY, new_store_id="")
        store = LogStore.open(disk, executor, SimClock(world.scheduler), settings)
        store.report_to(world)
        ids.add(store.store_id)
        store.close()
    assert len(ids) == 2
    world.close()
