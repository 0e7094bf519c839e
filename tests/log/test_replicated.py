"""Groups that several nodes keep: terms, votes, raw entries, faults, installed states, formats."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hocket.errors import Busy, CorruptData, HocketError, NewerFormat, OutOfRange
from hocket.log import directory
from hocket.log.model import Damage, DoesNotFollow, HardState, LogEnd, RawEntries, Snapshot
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.log.verify import verify
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import PowerLoss
from hocket.sim.executor import SimExecutor
from tests.log.test_damage import CALM, found_in
from tests.log.test_store import ROOMY, ROOMY_GROUP, checkpoint, unwanted
from tests.support.log.replica_world import ReplicaWorld

ANN, BOB = HardState(4, "ann"), HardState(5, "bob")


def roomy(group: GroupSettings = ROOMY_GROUP, **settings: Any) -> ReplicaWorld:
    world = ReplicaWorld("roomy", settings=replace(ROOMY, **settings), group=group)
    world.add_group()
    return world


def persist(world: ReplicaWorld, state: HardState, number: int = 1) -> list[bool]:
    told: list[bool] = []
    world.group(number).states.append(state)
    world.group(number).state_now = state

    def done() -> None:
        world.group(number).told = state
        told.append(True)

    world.store.replicated.persist(number, state, done)
    return told


def raw(world: ReplicaWorld, first: int, *, bytes_max: int = 1 << 20, end: int = 1 << 40) -> Any:
    answers: list[RawEntries | HocketError] = []
    found = world.store.replicated.read_raw(
        1, first, end_index=end, bytes_max=bytes_max, done=answers.append
    )
    if found is None:
        assert world.scheduler.run_until_true(lambda: answers, within_us=10**7)
        return answers[0]
    return found


def formats(world: ReplicaWorld) -> list[int]:
    names = (directory.COPY, directory.IDENTITY)
    return [json.loads(directory.read_file(world.disk, name))["format"] for name in names]


# --- term and vote -------------------------------------------------------------------------------


def test_a_vote_is_told_when_it_is_durable_and_not_before():
    world = roomy()
    told = persist(world, ANN)
    world.scheduler.run_for(10**6)
    assert not told, "nothing happens before flush"
    assert world.store.replicated.is_persisting(1)
    world.store.flush()
    assert not told
    assert world.store.replicated.is_persisting(1)
    world.scheduler.run_for(10_000)
    assert told == [True]
    assert not world.store.replicated.is_persisting(1)
    world.crash()
    assert world.store.recovered[1].state == ANN


def test_a_vote_that_another_overtakes_is_told_with_it():
    world = roomy()
    first = persist(world, ANN)
    world.store.flush()  # on its way
    second, third = persist(world, HardState(5)), persist(world, BOB)
    world.settle()
    assert first == second == third == [True]
    world.kill()
    assert world.store.recovered[1].state == BOB


def test_a_vote_outlives_checkpoints_recycled_files_and_orderly_ends():
    world = ReplicaWorld("kept")
    for _ in range(2):
        world.add_group()
    persist(world, ANN)
    for _ in range(40):
        world.append(2, size=900)
        world.settle()
        world.apply(2, world.groups[2].acked)
    assert world.store._wal._used == [] or world.store._wal._used[0].number > 3
    world._reopen()
    assert world.store.recovered[1].state == ANN
    persist(world, BOB)
    world.settle()
    checkpoint(world)
    world.crash()
    assert world.store.recovered[1].state == BOB


def test_terms_never_fall_and_a_term_has_one_vote():
    world = roomy()
    persist(world, ANN)
    for wrong in (HardState(3, "ann"), HardState(4, "bob"), HardState(4)):
        with pytest.raises(AssertionError, match="after"):
            world.store.replicated.persist(1, wrong, lambda: None)
    with pytest.raises(OutOfRange, match="40 bytes"):
        world.store.replicated.persist(1, HardState(9, "é" * 21), lambda: None)
    persist(world, ANN)
    world.settle()
    assert world.group(1).told == ANN


def test_a_group_that_is_deleted_takes_its_vote_along():
    world = roomy()
    told = persist(world, ANN)
    del world.groups[1]
    world.store.delete_group(1)
    world.settle()
    world.crash()
    assert not told
    assert 1 not in world.store.recovered


def test_one_bad_envelope_hides_neither_a_vote_nor_a_cut():
    world = ReplicaWorld("hidden", settings=CALM)
    world.add_group()
    for _ in range(3):
        world.append(1, size=30)
    world.settle()
    entries = list(world.groups[1].entries)
    world.cut(1, 1)
    persist(world, ANN)
    world.append(1, size=40)
    world.store.flush()
    world.run(100_000)  # with the mark
    replaced = world.groups[1].entries[1]
    world.executor.crash()
    world.disk.kill()
    (name,) = [n for n in world.disk.files() if n.startswith("wal/") and found_in(world, n)]
    bad = next(each for each in found_in(world, name) if each.header.notes_bytes)
    for position in range(bad.position, bad.position + len(bad.data), 8):
        world.disk.flip(name, position)
    world.executor = SimExecutor(world.scheduler)
    store = LogStore.open(world.disk, world.executor, SimClock(world.scheduler), CALM)
    found = store.recovered[1]
    assert found.state == ANN
    assert [header.index for header, _ in found.entries] == [1], (entries, replaced)
    assert [(each.first_index, each.end_index) for each in found.damage] == [(2, 3)]
    (fault,) = store.replicated.faults(1)
    assert (fault.first_index, fault.end_index, fault.loses_vote) == (2, 3, False)
    store.abandon()


# --- raw entries -----------------------------------------------------------------------------


def test_raw_entries_of_one_log_make_the_same_log_elsewhere():
    leader, follower = roomy(), roomy()
    for count in (2, 0, 3, 1):
        kind = EntryKind.BATCH if count else EntryKind.CURSOR
        leader.append(1, size=30, count=count, kind=kind)
    found = raw(leader, 1)
    assert (found.first_index, found.end_index, found.previous_term) == (1, 5, 0)
    headers = follower.store.replicated.append_raw(1, b"".join(found.slices))
    assert [(each.index, each.term) for each in headers] == [(n, 1) for n in range(1, 5)]
    follower.group(1).entries += leader.groups[1].entries
    follower.settle()
    for world in (leader, follower):
        world.settle()
        world.apply(1, 4)
        checkpoint(world)
    names = [name for name in leader.disk.files() if name.startswith("groups/")]
    assert names
    for name in names:
        assert directory.read_file(leader.disk, name) == directory.read_file(follower.disk, name)
    assert follower.store.replicated.append_raw(1, b"") == []


def test_raw_reads_are_bounded_and_give_one_entry_at_least():
    world = roomy()
    for _ in range(6):
        world.append(1, size=100)
    size = len(world._entries(1)[0].packed)
    assert raw(world, 2, bytes_max=1).end_index == 3
    assert raw(world, 2, bytes_max=2 * size).end_index == 4
    assert raw(world, 2, bytes_max=3 * size - 1).end_index == 4
    assert raw(world, 2, end=4).end_index == 4
    for first, end in ((7, 1 << 40), (0, 3), (3, 3)):
        with pytest.raises(OutOfRange):
            world.store.replicated.read_raw(1, first, end_index=end, bytes_max=9, done=unwanted)


def test_raw_entries_come_from_files_when_memory_has_let_go():
    world = roomy(GroupSettings(memory_retention_us=0, segment_bytes_max=1500))
    for number in range(30):
        world.group(1).term = 1 + number // 4
        world.append(1, size=120)
        world.append(1, size=7, kind=EntryKind.CURSOR, count=0)
    world.settle()
    world.apply(1, 60)
    checkpoint(world)
    world.run(50_000)
    assert world.store.stats(1).memory_bytes == 0
    for bytes_max in (1, 500, 10_000):
        for first in range(1, 61):
            world.read_raw(1, first, bytes_max)
    assert world.raw_reads == 180
    terms = {raw(world, first).previous_term for first in range(2, 61)}
    assert None not in terms
    world.kill()  # with the sparse indexes from their files, or made anew
    for name in list(world.disk.files()):
        if name.endswith(".index"):
            world.disk.remove(name)
            break
    for first in range(1, 61, 7):
        world.read_raw(1, first, 700)


def test_raw_entries_that_are_damaged_or_gone_are_named():
    world = roomy(GroupSettings(memory_retention_us=0, segment_bytes_max=1500))
    for _ in range(20):
        world.append(1, size=120)
    world.settle()
    world.apply(1, 20)
    checkpoint(world)
    world.run(50_000)
    name = next(name for name in world.disk.files() if name.endswith("-00000000000000000001.log"))
    world.disk.flip(name, 2 * 176 + 70)  # the body of entry 3
    found = raw(world, 1)
    assert found.end_index == 3
    assert isinstance(raw(world, 3), CorruptData)
    assert world.store.replicated.faults(1)[0].first_index == 0
    world.disk.flip(name, 3 * 176)  # the header of entry 4
    assert isinstance(raw(world, 4), CorruptData)
    assert raw(world, 5).previous_term is None
    world.disk.remove(name)
    assert isinstance(raw(world, 2), CorruptData)
    log = world.store._groups[1]
    log.skip_to(LogEnd(23, 22, 9, 1), Damage(20, 22, "lost", first_index=21, end_index=23))
    with pytest.raises(CorruptData):
        world.store.replicated.read_raw(1, 21, end_index=23, bytes_max=9, done=unwanted)
    world.store.set_log_start(1, 10)
    checkpoint(world)
    with pytest.raises(OutOfRange):
        world.store.replicated.read_raw(1, 1, end_index=9, bytes_max=9, done=unwanted)


def test_raw_entries_that_do_not_fit_are_refused_and_nothing_is_taken():
    world, other = roomy(), roomy()
    for _ in range(4):
        world.append(1, size=13)
    packed = [each.packed for each in world._entries(1)]
    take = other.store.replicated.append_raw
    take(1, packed[0])
    good = packed[1] + packed[2]
    for position in (0, 30, 60, 71, len(good) - 1):  # headers, bodies, padding
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(CorruptData):
            take(1, bad)
    for cut in (10, 56, 60, len(good) - 1):
        with pytest.raises(CorruptData):
            take(1, good[:cut])
    for wrong in (packed[0], packed[2], packed[1] + packed[3]):
        with pytest.raises(DoesNotFollow, match="does not follow"):
            take(1, wrong)
    older = ReplicaWorld("older")
    older.add_group()
    older.group(1).entries = list(world.groups[1].entries[:1])
    older.group(1).term = 0
    body = older.group(1).make(EntryKind.BATCH, 1, b"x", 0)
    with pytest.raises(DoesNotFollow, match="of term 0"):
        take(1, body.packed)
    empty = older.group(1).make(EntryKind.BATCH, 0, b"x", 0)
    with pytest.raises(CorruptData, match="0 records"):
        take(1, empty.packed)
    assert other.store.replicated.bounds(1)[2].next_index == 2
    take(1, memoryview(good))
    assert other.store.replicated.bounds(1)[2] == world._entries(1)[2].end


# --- faults --------------------------------------------------------------------------------------


def test_a_loss_that_is_cut_off_is_a_fault_until_the_log_has_as_much_again():
    world = roomy()
    for _ in range(6):
        world.append(1, size=20)
    entries = world._entries(1)
    world.cut(1, 2)
    world.settle()
    log = world.store._groups[1]
    lost = Damage(2, 5, "lost", first_index=3, end_index=6)
    log.skip_to(entries[4].end, lost)
    log.durable = log.end
    replicated = world.store.replicated
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(3, 6)]
    replicated.truncate(1, 2)
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(3, 6)]
    checkpoint(world)
    assert world.store._checkpointer._last.groups[1].owed == 5
    replicated.append_raw(1, entries[2].packed + entries[3].packed)
    world.group(1).entries += entries[2:4]
    world.settle()
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(5, 6)]
    world.executor.crash()
    world.disk.kill()
    world.executor = SimExecutor(world.scheduler)
    world.store = LogStore.open(world.disk, world.executor, SimClock(world.scheduler), ROOMY)
    replicated = world.store.replicated
    world.store.configure(1, ROOMY_GROUP)
    world.store.report_to(world)
    assert [(each.first_index, each.end_index) for each in replicated.faults(1)] == [(5, 6)]
    replicated.append_raw(1, entries[4].packed)
    world.group(1).entries.append(entries[4])
    assert replicated.faults(1), "it is not durable yet"
    world.settle()
    assert not replicated.faults(1)
    checkpoint(world)
    assert world.store._checkpointer._last.groups[1].owed == 0


def test_an_end_that_is_not_known_stays_a_fault_until_somebody_knows_better():
    world = roomy()
    world.append(1, size=20)
    world.settle()
    log = world.store._groups[1]
    log.note(Damage(1, None, "lost", first_index=2, end_index=2))
    (fault,) = world.store.replicated.faults(1)
    assert (fault.first_index, fault.loses_vote) == (2, True)
    world.store.replicated.truncate(1, 1)
    (fault,) = world.store.replicated.faults(1)
    assert fault.loses_vote
    world.append(1, size=20)  # it takes entries again
    world.settle()
    assert world.store.replicated.faults(1)
    checkpoint(world)
    world.apply(1, 2)
    world.install(1, 3)
    world.run(100_000)
    assert world.installs == 1
    assert world.store.replicated.faults(1)[0].loses_vote, "a vote does not come back"
    world.store.replicated.mended(1)
    assert not world.store.replicated.faults(1)


def test_a_loss_around_the_cut_is_shortened():
    world = roomy()
    world.append(1, size=20)
    log = world.store._groups[1]
    log.skip_to(LogEnd(6, 5, 9, 1), Damage(1, 5, "lost", first_index=2, end_index=6))
    log.truncate(LogEnd(4, 3, 8, 1))
    assert [(each.first_index, each.end_index, each.end) for each in log.damage] == [(2, 4, 3)]
    assert log.owed == 5


# --- installed states ----------------------------------------------------------------------------


def test_a_snapshot_is_taken_with_its_index_and_term_and_installed_elsewhere():
    leader, follower = roomy(), roomy()
    for number in range(5):
        leader.group(1).term = 1 + number
        leader.append(1, size=30, count=2)
    leader.settle()
    leader.apply(1, 4)
    snapshot = leader.store.replicated.take_snapshot(1)
    assert (snapshot.index, snapshot.term, snapshot.end.next_offset) == (4, 4, 8)
    persist(follower, ANN)
    follower.settle()
    done: list[bool] = []
    follower.store.install_snapshot(1, snapshot, lambda: done.append(True))
    told = persist(follower, BOB)  # meanwhile
    follower.settle()
    assert done == told == [True]
    follower.group(1).entries = leader.groups[1].entries[:4]
    follower.group(1).acked = follower.group(1).applied_index = 4
    follower.group(1).log_start = 8
    take = follower.store.replicated.append_raw
    take(1, b"".join(raw(leader, 5).slices))
    follower.group(1).entries += leader.groups[1].entries[4:]
    follower.settle()
    follower.crash()
    found = follower.store.recovered[1]
    assert (found.snapshot_index, found.snapshot_term, found.log_start) == (4, 4, 8)
    assert (found.next_index, found.state) == (6, BOB)
    assert follower.store.replicated.faults(1) == []


def test_an_installed_log_can_be_filled_from_its_beginning():
    """A newcomer gets the state, and all records that the leader still has."""
    leader = roomy(GroupSettings(memory_retention_us=10**12, segment_bytes_max=300))
    for _ in range(12):
        leader.append(1, size=100)
    leader.settle()
    leader.apply(1, 12)
    leader.store.set_log_start(1, 5)
    checkpoint(leader)
    leader.group(1).log_start = 5
    first = leader.store.replicated.bounds(1)[0]
    assert 1 < first <= 6
    snapshot = leader.store.replicated.take_snapshot(1)
    found = raw(leader, first)
    header = leader._entries(1)[first - 1]
    begin = LogEnd(first, header.base_offset, found.previous_crc, 0)
    newcomer = roomy()
    newcomer.store.install_snapshot(1, snapshot, lambda: None, begin=begin)
    newcomer.settle()
    group = newcomer.group(1)
    group.applied_index = 12
    group.entries = list(leader.groups[1].entries[: first - 1])
    group.acked = first - 1
    newcomer.snapshot = leader.snapshot  # type: ignore[method-assign]
    index = first
    while index < 13:
        piece = raw(leader, index, bytes_max=400)
        newcomer.store.replicated.append_raw(1, b"".join(piece.slices))
        group.entries += leader.groups[1].entries[index - 1 : piece.end_index - 1]
        index = piece.end_index
        newcomer.settle()
        checkpoint(newcomer)  # which waits for nothing, although the state is ahead of the log
    group.log_start = 5
    newcomer.check_all()
    newcomer.kill()
    recovered = newcomer.store.recovered[1]
    assert (recovered.snapshot_index, recovered.next_index) == (12, 13)
    assert recovered.log_start == 5
    newcomer.check_all()
    assert newcomer.checked >= 14


def test_a_tail_of_the_old_log_does_not_come_back_after_the_new_one_was_installed():
    world = roomy()
    world.add_group()
    for number in (2, 1):
        for _ in range(6):
            world.append(number, size=20)
    world.settle()  # group 2 is not applied: the WAL is kept
    world.apply(1, 1)
    world.append(1, size=20)
    world.store.flush()  # one more is on its way
    world.append(1, size=20)  # and one is not
    world.install(1, 2)
    world.settle()
    assert world.installs == 1
    world.crash()
    assert len(world.groups[1].entries) == 3
    assert world.store._wal.next_lsn > 2
    world.append(1, size=30)
    world.settle()
    world.kill()
    assert len(world.groups[1].entries) == 4


def test_a_log_never_goes_back_behind_what_was_applied():
    world = roomy()
    for _ in range(3):
        world.append(1, size=20)
    world.settle()
    world.apply(1, 3)
    checkpoint(world)
    with pytest.raises(AssertionError, match="goes back"):
        world.store.install_snapshot(1, Snapshot(LogEnd(3), 0, b""), lambda: None)


def test_a_group_that_is_deleted_is_not_installed():
    world = roomy()
    world.add_group()
    world.install(1, 2)
    world.store.delete_group(1)
    del world.groups[1]
    world.settle()
    assert world.installs == 0
    world.crash()
    assert 1 not in world.store.recovered


# --- format 2 ------------------------------------------------------------------------------------


def test_a_store_of_one_node_stays_in_format_one():
    world = roomy()
    for _ in range(5):
        world.append(1, size=20)
        world.settle()
        world.apply(1, world.groups[1].acked)
        checkpoint(world)
    assert formats(world) == [1, 1]
    world.install(1, 3)
    world.settle()
    assert formats(world) == [1, 1]
    assert not any(
        each.header.notes_bytes
        for name in world.disk.files()
        if name.startswith("wal/")
        for each in found_in(world, name)
    )


@pytest.mark.parametrize("need", ["vote", "cut"])
def test_format_two_is_written_before_what_needs_it(need):
    world = roomy()
    for _ in range(3):
        world.append(1, size=20)
    world.settle()
    world.store.flush()
    log: list[str] = []
    world.disk.before = lambda operation, path: log.append(f"{operation} {path}")
    if need == "vote":
        persist(world, ANN)
    else:
        world.cut(1, 1)
    world.settle()
    assert formats(world) == [2, 2]
    at = [
        log.index("rename hocket.copy.json"), log.index("rename hocket.json"),
        next(n for n, each in enumerate(log) if each.startswith("write wal/")),
    ]  # fmt: skip
    assert at == sorted(at)
    world._reopen()
    assert formats(world) == [2, 2]


def test_the_power_may_fail_at_every_step_of_raising_the_format():
    seen = set()
    for cut_at in range(100):
        world = roomy()
        world.append(1, size=20)
        world.settle()
        left = cut_at

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss(f"before {operation} of {path}")

        world.disk.before = count
        persist(world, ANN)
        try:
            world.store.flush()
            world.scheduler.run_for(10_000)
        except PowerLoss:
            world.crash()
            found = formats(world)
            seen.add((world.store.recovered[1].state == ANN, *found))
            assert found[0] == found[1]
        else:
            break
    assert seen >= {(False, 1, 1), (False, 2, 2)}


def test_an_older_version_refuses_format_two(monkeypatch):
    world = roomy()
    persist(world, ANN)
    world.settle()
    world.close()
    monkeypatch.setattr(directory, "FORMAT", 1)
    with pytest.raises(NewerFormat, match="format 2, by a newer version of Hocket"):
        verify(world.disk)
    with pytest.raises(NewerFormat, match="reads format 1"):
        LogStore.open(world.disk, SimExecutor(world.scheduler), SimClock(world.scheduler), ROOMY)


# --- a group that is stuck -----------------------------------------------------------------------


def test_a_group_that_is_stuck_is_bounded_is_seen_and_stops_no_other():
    world = ReplicaWorld("stuck")
    stuck, other = world.add_group(), world.add_group()
    while world.append(stuck, size=300):
        world.settle()
        world.run(300_000)
    assert world.busy == 1
    stats = world.store.stats(stuck)
    assert stats.waiting_bytes > world.settings.waiting_bytes_max
    assert stats.kept_lsns > 5
    with pytest.raises(Busy, match="wait to be committed"):
        world.store.admit(stuck, 10)
    most = 0
    for _ in range(150):
        assert world.append(other, size=300)
        assert not world.store.congested
        world.settle()
        world.apply(other, world.groups[other].acked)
        files = world.disk.files()
        most = max(most, sum(size for name, size in files.items() if name.startswith("wal/")))
    written = world.store._wal.next_lsn
    assert written > 200
    assert most < 60_000, "the write-ahead log is bounded"
    assert world.store.stats(stuck).kept_lsns < 100, "its entries were written once more"
    world.crash()
    world.check_all()
    group = world.groups[stuck]
    world.apply(stuck, len(group.entries))
    world.run(1_000_000)
    assert world.store.stats(stuck).waiting_bytes == 0
    assert world.append(stuck, size=300)
    world.settle()
    world.check_all()


def test_what_waits_makes_no_checkpoint_due_although_memory_should_let_it_go():
    world = ReplicaWorld("patient", group=GroupSettings(memory_retention_us=0))
    world.add_group()
    world.append(1, size=100)
    world.settle()
    world.run(1_000_000)
    published: list[str] = []

    def note(operation: str, path: str) -> None:
        if (operation, path) == ("rename", "checkpoint"):
            published.append(path)

    world.disk.before = note
    world.run(3_000_000)
    assert len(published) <= 11  # one in every interval


def test_a_cut_while_entries_are_written_once_more():
    world = ReplicaWorld("both")
    stuck, other = world.add_group(), world.add_group()
    for _ in range(6):
        world.append(stuck, size=200)
        world.settle()
    log = world.store._groups[stuck]
    world.store._wal.carry(log)
    world.cut(stuck, 3)
    world.append(stuck, size=10)
    world.store.flush()
    world.append(other, size=10)
    world.settle()
    assert log.carried is None
    assert world.groups[stuck].acked == 4
    checkpoint(world)
    world.crash()
    assert len(world.groups[stuck].entries) == 4
    world.check_all()
