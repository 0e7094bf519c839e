"""Bad bytes: a torn tail is cut, damage is named, and nothing else is touched by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.errors import CorruptData
from hocket.log.directory import salt_of
from hocket.log.model import ReadResult, RecoveredGroup, Report
from hocket.log.recovery import recover
from hocket.log.settings import GroupSettings, LogSettings
from hocket.log.store import LogStore
from hocket.log.verify import accept_loss, verify
from hocket.log.wal_scan import Found, envelopes
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.executor import SimExecutor
from tests.support.log.world import World

CALM = LogSettings(
    wal_file_bytes=1 << 16, wal_file_bytes_min=1 << 14, mark_after_us=20_000, reserve_bytes=512,
    index_interval_bytes=200, scrub_interval_us=0, new_store_id="simulated",
    checkpoint_interval_us=10**12,
)  # fmt: skip  # no checkpoint but those asked for
SMALL_GROUP = GroupSettings(
    memory_retention_us=10**12, memory_bytes_max=1 << 20, segment_bytes_max=1500
)


def calm_world(*, mark: bool, commits: int = 4) -> World:
    """Three groups, a few commits, all of it in the WAL and nothing in segments."""
    world = World(1, settings=CALM, group=SMALL_GROUP)
    for _ in range(3):
        world.add_group()
    for _ in range(commits):
        for number in world.groups:
            world.append(number, size=40, count=2)
            world.append(number, size=5, kind=EntryKind.CURSOR, count=0)
        world.store.flush()
        world.scheduler.run_for(10_000)
    if mark:
        world.run(100_000)
    world.executor.crash()
    world.disk.kill()
    return world


def wal_file(world: World) -> str:
    (name,) = [n for n in world.disk.files() if n.startswith("wal/") and found_in(world, n)]
    return name


def found_in(world: World, name: str) -> list[Found]:
    file = world.disk.open(name)
    data = file.read(file.size(), 0)
    return list(envelopes(data, int(name[4:-4]), salt_of("simulated")))


def recovered(world: World) -> dict[int, RecoveredGroup]:
    return recover(world.disk, "simulated", CALM, now_us=0).recovered


def check_group(world: World, number: int, found: RecoveredGroup) -> tuple[set[int], set[int]]:
    """What is there is right. Returns (indexes that are there, those missing)."""
    group = world.groups[number]
    for header, body in found.entries:
        entry = group.entries[header.index - 1]
        assert (header.base_offset, header.count) == (entry.base_offset, entry.count)
        assert bytes(body) == entry.body
    there = {header.index for header, _ in found.entries}
    return there, set(range(1, len(group.entries) + 1)) - there


def check_named(world: World, number: int, found: RecoveredGroup) -> int:
    """Every record that is missing is named, and none that is there. Returns how many are named."""
    there, missing = check_group(world, number, found)
    named = {
        offset for each in found.damage for offset in range(each.start, each.end or each.start)
    }
    for index in missing:
        entry = world.groups[number].entries[index - 1]
        assert set(range(entry.base_offset, entry.end_offset)) <= named, (number, entry, found)
    for index in there:
        entry = world.groups[number].entries[index - 1]
        assert named.isdisjoint(range(entry.base_offset, entry.end_offset)), (number, entry, found)
    assert all(each.end is not None for each in found.damage), found.damage
    assert found.next_offset == world.groups[number].end_offset
    assert found.next_index == len(world.groups[number].entries) + 1
    if missing:
        assert found.damage
    return len(named)


def test_every_byte_of_a_marked_wal() -> None:
    """Any one bad byte costs at most one record batch, which is named exactly."""
    world = calm_world(mark=True)
    name = wal_file(world)
    used = found_in(world, name)
    assert not used[-1].header.content_bytes, "the last one is a mark"
    end = used[-1].position
    losses = harmless = 0
    for position in range(end):
        world.disk.flip(name, position, 1 << (position % 8))
        named = sum(check_named(world, number, found) for number, found in recovered(world).items())
        world.disk.flip(name, position, 1 << (position % 8))
        assert named <= 2, f"byte {position} cost {named} records"
        losses += named > 0
        harmless += named == 0
    assert losses > 300
    assert harmless > 1000
    assert all(not found.damage for found in recovered(world).values())


def test_a_bad_byte_behind_the_mark_is_nothing() -> None:
    world = calm_world(mark=True)
    name = wal_file(world)
    last = found_in(world, name)[-1]
    for position in range(last.position, last.position + last.header.size):
        world.disk.flip(name, position)
        for number, found in recovered(world).items():
            assert check_named(world, number, found) == 0
        world.disk.flip(name, position)


def test_every_byte_of_the_last_commit_without_a_mark_is_a_torn_tail() -> None:
    """Nothing proves that it was ever durable: it is cut, as a whole, without a word."""
    world = calm_world(mark=False)
    name = wal_file(world)
    last = found_in(world, name)[-1]
    content = last.position + last.header.content_start
    for position in range(content, content + last.header.content_bytes):
        world.disk.flip(name, position)
        for number, found in recovered(world).items():
            there, missing = check_group(world, number, found)
            assert there == set(range(1, 7)), "the commits before it are whole"
            assert missing == {7, 8}
            assert not found.damage
            assert found.next_index == 7
        world.disk.flip(name, position)


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_whole_envelope_lost_is_named_from_the_table_of_the_next(gone: int) -> None:
    world = calm_world(mark=True)
    name = wal_file(world)
    envelope = found_in(world, name)[gone]
    wipe(world, name, envelope.position, envelope.header.size)
    for number, found in recovered(world).items():
        assert check_named(world, number, found) == 2
        assert [(each.start, each.end) for each in found.damage] == [(2 * gone, 2 * gone + 2)]


def test_several_envelopes_lost_are_named_from_the_mark() -> None:
    """The mark's table knows every group since the last checkpoint."""
    world = calm_world(mark=True)
    name = wal_file(world)
    used = found_in(world, name)
    wipe(world, name, used[1].position, used[4].position - used[1].position)
    for number, found in recovered(world).items():
        assert check_named(world, number, found) == 6
        assert [(each.start, each.end) for each in found.damage] == [(2, 8)]


def wipe(world: World, name: str, position: int, length: int) -> None:
    file = world.disk.open(name)
    file.write([b"\xa5" * length], position)
    file.sync()


def reopened(world: World) -> LogStore:
    """Open the store again, damaged or not."""
    world.executor = SimExecutor(world.scheduler)
    clock = SimClock(world.scheduler)
    world.store = LogStore.open(world.disk, world.executor, clock, CALM)
    for number in world.groups:
        world.store.configure(number, SMALL_GROUP)
        world.groups[number].acked = world.store.recovered[number].next_index - 1
    world.store.report_to(world)
    return world.store


def doubtful_world() -> World:
    """Two envelopes lost, and behind them only one that knows of the second."""
    world = calm_world(mark=False, commits=1)
    name = wal_file(world)
    reopened(world)
    for number in (1, 2, 3):
        world.append(number, size=30, count=3)
        world.store.flush()
        world.scheduler.run_for(10_000)
    world.executor.crash()
    world.disk.kill()
    name = max(n for n in world.disk.files() if n.startswith("wal/") and found_in(world, n))
    used = found_in(world, name)
    assert len(used) == 3
    wipe(world, name, 0, used[2].position)
    return world


def test_damage_that_nobody_can_measure_leaves_one_end_in_doubt() -> None:
    world = doubtful_world()
    store = reopened(world)
    (doubt,) = store.recovered[1].damage
    assert (doubt.start, doubt.end) == (2, None)
    (known,) = store.recovered[2].damage
    assert (known.start, known.end) == (2, 5)
    assert store.recovered[3].damage == ()
    del world.groups[1].entries[2:]
    with pytest.raises(CorruptData, match="what followed offset 2"):
        world.append(1, size=1)
    assert world.append(2, size=1)
    assert world.append(3, size=1)
    assert "what followed offset 2" in store.stats(1).problem
    assert world.check_read(1, 0, bytes_max=100) == 2, "what is known can be read"
    world.close()


def test_an_accepted_loss_is_skipped_and_the_group_goes_on() -> None:
    world = doubtful_world()
    reopened(world).close()
    assert [str(damage.end) for damage in accept_loss(world.disk, 1)] == ["None"]
    assert [(d.start, d.end) for d in accept_loss(world.disk, 2)] == [(2, 5)]
    assert accept_loss(world.disk, 3) == []
    assert verify(world.disk).ok
    store = reopened(world)
    del world.groups[1].entries[2:]
    assert world.append(1, size=1)
    assert world.append(2, size=9)
    assert world.check_read(1, 2, bytes_max=100) == 3
    result = world.fetch(2, 3)
    assert isinstance(result, ReadResult)
    assert (result.start_offset, result.end_offset) == (5, 6)
    assert store.stats(1).problem == store.stats(2).problem == ""
    world.close()
    assert accept_loss(world.disk, 2) == []


def test_an_end_in_doubt_is_remembered_when_its_wal_is_gone() -> None:
    """Also for a group that had nothing new to be checkpointed."""
    world = calm_world(mark=False, commits=1)
    reopened(world).close()  # group 1 to 3 are in segments now, and the WAL is empty
    reopened(world)
    for number in (2, 2, 3):
        world.append(number, size=30)
        world.store.flush()
        world.scheduler.run_for(10_000)
    world.executor.crash()
    world.disk.kill()
    name = max(n for n in world.disk.files() if n.startswith("wal/") and found_in(world, n))
    used = found_in(world, name)
    wipe(world, name, 0, used[2].position)
    for _ in range(3):
        store = reopened(world)
        (doubt,) = store.recovered[1].damage
        assert (doubt.start, doubt.end) == (2, None)
        with pytest.raises(CorruptData, match="accept the loss"):
            store.admit(1, 100)
        store.close()


def test_what_recovery_found_is_marked_as_durable() -> None:
    """It has been served to readers since; so it may not pass for a torn write any more."""
    world = calm_world(mark=False)
    name = wal_file(world)
    last = found_in(world, name)[-1]
    reopened(world)
    world.run(100_000)
    world.executor.crash()
    world.disk.kill()
    world.disk.flip(name, last.position + last.header.content_start + 30)
    named = sum(check_named(world, number, found) for number, found in recovered(world).items())
    assert named == 2


def test_readers_come_up_to_damage_and_go_on_behind_it() -> None:
    world = calm_world(mark=True)
    name = wal_file(world)
    lost = found_in(world, name)[1]
    wipe(world, name, lost.position, lost.header.size)
    store = reopened(world)
    for where in ("memory", "segments"):
        assert world.check_read(1, 0, bytes_max=10_000) == 2, where
        for offset in (2, 3):
            error = world.fetch(1, offset)
            assert isinstance(error, CorruptData)
            assert "offsets 2 to 3" in str(error)
        world.check_read(1, 4, bytes_max=10_000)
        store.checkpoint_now()
        world.run(50_000)
        store._groups[1].memory.evict(appended_until_us=1 << 60, bytes_max=0)
    assert store.stats(1).disk_reads > 0
    assert world.append(1, size=10), "damage inside does not stop writing"
    world.close()


def test_damage_is_remembered_when_its_wal_is_gone_and_the_file_is_kept() -> None:
    world = calm_world(mark=True)
    name = wal_file(world)
    lost = found_in(world, name)[1]
    wipe(world, name, lost.position, lost.header.size)
    reopened(world).close()
    files = world.disk.files()
    assert name not in files
    assert f"damaged/{name[4:]}" in files
    for _ in range(2):
        store = reopened(world)
        for number in world.groups:
            (damage,) = store.recovered[number].damage
            assert (damage.start, damage.end) == (2, 4)
            assert store.recovered[number].next_offset == 8
        store.close()
    report = verify(world.disk)
    assert not report.ok
    assert [(group, d.start, d.end) for group, d in report.damage] == [
        (1, 2, 4), (2, 2, 4), (3, 2, 4),
    ]  # fmt: skip


def test_a_wal_file_without_one_good_spot_is_kept_too() -> None:
    world = calm_world(mark=False, commits=1)
    first = wal_file(world)
    for _ in range(2):  # two more files
        reopened(world)
        for number in world.groups:
            world.append(number, size=30)
        world.store.flush()
        world.scheduler.run_for(10_000)
        world.executor.crash()
        world.disk.kill()
    names = [n for n in world.disk.files() if n.startswith("wal/") and found_in(world, n)]
    assert names[0] == first
    assert len(names) == 3
    wipe(world, names[1], 0, world.disk.files()[names[1]])
    for found in recovered(world).values():
        (damage,) = found.damage
        assert (damage.start, damage.end) == (2, 3)
    reopened(world).close()
    assert f"damaged/{names[1][4:]}" in world.disk.files()


def test_a_lost_wal_file_is_noticed() -> None:
    """The checkpoint knows how far the WAL was durable; a WAL that ends before it has lost."""
    world = calm_world(mark=True)
    reopened(world)
    behind = world.store._checkpointer
    world.groups[1].acked = 0  # group 1 has applied nothing, so its entries stay in the WAL
    world.store.checkpoint_now()
    world.scheduler.run_for(50_000)
    assert behind._last.lsn <= 1
    world.executor.crash()
    world.disk.kill()
    for name in list(world.disk.files()):
        if name.startswith("wal/"):
            world.disk.remove(name)
    store = reopened(world)
    assert store.recovered[1].damage[0].end is None
    world.store.close()


# --- segments ------------------------------------------------------------------------------------


def segment_world() -> tuple[World, str]:
    """One group, all of it in one segment file, nothing in memory."""
    world = World(1, settings=CALM, group=SMALL_GROUP)
    number = world.add_group()
    for size in (40, 0, 100, 33):
        world.append(number, size=size, count=2)
        world.append(number, size=5, kind=EntryKind.CURSOR, count=0)
    world.settle()
    world.close()
    world.disk.kill()
    world.open()
    (name,) = [n for n in world.disk.files() if n.endswith(".log")]
    return world, name


def test_every_byte_of_a_segment() -> None:
    """A batch that does not match its checksum is never served; its offsets are named."""
    world, name = segment_world()
    size = world.disk.files()[name]
    pristine = {o: world.check_read(1, o, bytes_max=1) for o in range(8)}
    refused = 0
    for position in range(size):
        world.disk.flip(name, position, 1 << (position % 8))
        world.store._groups[1].damage.clear()
        bad = set()
        for offset in range(8):
            result = world.fetch(1, offset, bytes_max=1)
            if isinstance(result, CorruptData):
                bad.add(offset)
                first = offset - offset % 2
                assert f"offsets {first} to {first + 1}" in str(result)
            else:
                assert world.compare(world.groups[1], offset, result, 1) == pristine[offset]
        assert len(bad) in (0, 2), f"byte {position}: {bad}"
        refused += bool(bad)
        world.disk.flip(name, position, 1 << (position % 8))
    assert refused > 4 * 56
    world.close()


def test_scrub_and_verify_find_what_readers_would() -> None:
    world, name = segment_world()
    reports: list[Report] = []
    world.store.scrub(reports.append)
    world.run(100_000)
    assert reports[0].ok
    assert reports[0].entries == 8
    world.disk.flip(name, 60)
    world.store.scrub(reports.append)
    world.run(100_000)
    assert [(g, d.start, d.end) for g, d in reports[1].damage] == [(1, 0, 2)]
    assert "offsets 0 to 1" in world.store.stats(1).problem
    assert isinstance(world.fetch(1, 0), CorruptData)
    world.close()
    assert [(g, d.start, d.end) for g, d in verify(world.disk).damage] == [(1, 0, 2)]
    accept_loss(world.disk, 1)
    assert verify(world.disk).ok
    world.disk.kill()
    store = reopened(world)
    store.scrub(reports.append)
    world.run(100_000)
    assert reports[2].ok
    assert reports[2].damage
    result = world.fetch(1, 0)
    assert isinstance(result, ReadResult)
    assert result.start_offset == 2
    store.close()


def test_a_scrub_passes_over_what_is_removed_meanwhile() -> None:
    world = World(1, settings=replace(CALM, scrub_step_bytes=100), group=SMALL_GROUP)
    for _ in range(3):
        number = world.add_group()
        for _ in range(15):
            world.append(number, size=100)
    world.settle()
    world.store.checkpoint_now()
    world.run(50_000)
    reports: list[Report] = []
    world.store.scrub(reports.append)
    world.store.set_log_start(2, 15)
    world.store.checkpoint_now()
    world.scheduler.run_for(5000)
    del world.groups[1]
    world.store.delete_group(1)
    world.store.checkpoint_now()
    world.scheduler.run_for(5000)
    world.store.scrub(reports.append)  # from the beginning, for both
    world.run(500_000)
    assert len(reports) == 2
    assert reports[0] is reports[1]
    assert reports[0].ok
    assert reports[0].entries == 15, "group 3 is left"
    (name, *_) = [n for n in world.disk.files() if n.startswith("groups/3/") and "log" in n]
    world.disk.remove(name)
    world.store.scrub(reports.append)
    world.run(500_000)
    (found,) = [damage for _, damage in reports[2].damage]
    assert (found.start, found.end) == (0, 9)
    world.close()


def test_the_scrub_comes_by_itself() -> None:
    settings = replace(CALM, scrub_interval_us=1_000_000, scrub_step_bytes=100)
    world = World(1, settings=settings, group=SMALL_GROUP)
    number = world.add_group()
    for _ in range(10):
        world.append(number, size=100)
    world.settle()
    world.store.checkpoint_now()
    world.run(50_000)
    (name,) = [n for n in world.disk.files() if n.endswith("1.log")]
    world.disk.flip(name, 1000)
    assert not world.store.stats(1).problem
    world.run(2_000_000)
    assert "offsets 6 to 6" in world.store.stats(1).problem
    world.close()


def test_a_missing_or_short_segment_is_named() -> None:
    world, name = segment_world()
    file = world.disk.open(name)
    file.truncate(100)
    error = world.fetch(1, 2)
    assert isinstance(error, CorruptData)
    assert "offsets 2 to 7" in str(error)
    world.store._groups[1].damage.clear()
    world.disk.remove(name)
    error = world.fetch(1, 2)
    assert isinstance(error, CorruptData)
    assert "offsets 2 to 7" in str(error)
    world.close()
    assert not verify(world.disk).ok


def test_a_bad_sparse_index_is_rebuilt() -> None:
    world = World(1, settings=CALM, group=SMALL_GROUP)
    number = world.add_group()
    for _ in range(40):
        world.append(number, size=100, count=3)
    world.settle()
    world.close()
    sidecars = [n for n in world.disk.files() if n.endswith(".index")]
    assert len(sidecars) > 2
    for name in sidecars:
        world.disk.flip(name, world.disk.files()[name] - 1)
    world.disk.remove(sidecars[0])
    world.disk.kill()
    world.open()
    world.check_all()
    assert world.store.stats(1).disk_reads > 3
    world.close()


# --- the checkpoint ------------------------------------------------------------------------------


def test_one_bad_spot_in_the_checkpoint_is_harmless_and_two_are_refused() -> None:
    world, _ = segment_world()
    world.close()
    size = world.disk.files()["checkpoint"]
    for position in range(0, size, 3):
        world.disk.flip("checkpoint", position)
        assert recovered(world)[1].next_offset == 8
        world.disk.flip("checkpoint", position)
    world.disk.flip("checkpoint", 30)
    world.disk.flip("checkpoint", size // 2 + 30)
    world.disk.kill()
    with pytest.raises(CorruptData, match="checkpoint does not match its checksum"):
        reopened(world)
    world.disk.remove("checkpoint")
    with pytest.raises(CorruptData, match="no file 'checkpoint'"):
        reopened(world)
    world.disk.lock()  # the lock was given back
