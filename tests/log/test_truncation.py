"""A log that is cut back: what follows takes the place of what was cut, in memory and on disk."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from hocket.errors import CorruptData
from hocket.log.checkpoint import Checkpoint, GroupRecord
from hocket.log.group import GroupLog
from hocket.log.model import Damage, LogEnd, Truncation
from hocket.log.replay import Replay
from hocket.log.wal_scan import WalEntry
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, unpack_header
from tests.log.test_store import ROOMY, ROOMY_GROUP, checkpoint
from tests.support.log.replica_world import ReplicaWorld
from tests.support.log.world import TINY

GROUP = 7


def entry_after(end: LogEnd, term: int, body: bytes) -> tuple[WalEntry, LogEnd]:
    """A batch of one record, as it stands in the WAL, and how the log ends with it."""
    packed = pack_header(
        length=len(body), kind=EntryKind.BATCH, count=1, term=term, index=end.next_index,
        base_offset=end.next_offset, previous_crc=end.last_crc, body_crc=crc32c(body),
    )  # fmt: skip
    header: Header = unpack_header(packed)
    assert len(packed) == HEADER_BYTES
    entry = WalEntry(GROUP, header, memoryview(packed), memoryview(body))
    return entry, LogEnd(header.index + 1, header.end_offset, header.crc, term)


class Replayed:
    """A log of entries 1 to 5 of term 1, and entries 4 to 6 of term 2 that take their places."""

    def __init__(self, record: GroupRecord | None = None) -> None:
        self.replay = Replay(Checkpoint(groups={GROUP: record} if record else {}), TINY, 0, {})
        self.old = [LogEnd()]
        self.old_entries: list[WalEntry] = []
        for index in range(1, 6):
            entry, end = entry_after(self.old[-1], 1, b"old %d" % index)
            self.old_entries.append(entry)
            self.old.append(end)
        self.new = [self.old[3]]
        self.new_entries: list[WalEntry] = []
        for index in range(4, 7):
            entry, end = entry_after(self.new[-1], 2, b"new %d" % index)
            self.new_entries.append(entry)
            self.new.append(end)

    def feed_old(self) -> None:
        for lsn, entry in enumerate(self.old_entries, start=1):
            self.replay.entry(entry, lsn)

    def bodies(self) -> list[bytes]:
        self.replay.finish()
        return [bytes(body) for _, body in self.replay.recovered[GROUP].entries]

    @property
    def damage(self) -> list[tuple[int, int]]:
        return [(each.first_index, each.end_index) for each in self.replay.recovered[GROUP].damage]


NEW = [b"old 1", b"old 2", b"old 3", b"new 4", b"new 5", b"new 6"]


# --- replay --------------------------------------------------------------------------------------


def test_of_two_entries_of_one_index_the_later_one_counts_and_all_before_it_that_it_follows():
    log = Replayed()
    log.feed_old()
    for lsn, entry in enumerate(log.new_entries, start=6):
        log.replay.entry(entry, lsn)
    assert log.bodies() == NEW
    found = log.replay.recovered[GROUP]
    assert (found.next_index, found.last_crc, found.term) == (7, log.new[3].last_crc, 2)
    assert not found.damage


def test_an_entry_that_was_written_twice_is_there_once():
    log = Replayed()
    log.feed_old()
    for entry in log.old_entries[1:]:
        log.replay.entry(entry, 9)
    assert log.bodies() == [b"old %d" % index for index in range(1, 6)]
    assert not log.damage


def test_a_note_cuts_off_what_nothing_has_replaced():
    log = Replayed()
    log.feed_old()
    log.replay.note(GROUP, Truncation(log.old[3], 6, 6))
    assert log.bodies() == [b"old 1", b"old 2", b"old 3"]


def test_a_note_that_comes_again_leaves_what_came_after_it():
    log = Replayed()
    log.feed_old()
    log.replay.note(GROUP, Truncation(log.old[3], 6, 6))
    for entry in log.new_entries:
        log.replay.entry(entry, 6)
    log.replay.note(GROUP, Truncation(log.old[3], 6, 6))
    log.replay.table([(GROUP, log.new[3])], 6, complete=False)
    assert log.bodies() == NEW
    assert not log.damage


def test_entries_that_the_checkpoint_knows_as_cut_are_not_taken():
    """Entry 4 of term 2 is in a segment already: the old entry 5 follows nothing."""
    log = Replayed(
        GroupRecord(GROUP, Replayed().new[1], 4, truncations=(Truncation(LogEnd(4), 6, 6),))
    )
    log.feed_old()
    log.replay.table([(GROUP, log.old[5])], 5, complete=False)
    for entry in log.new_entries:
        log.replay.entry(entry, 6)
    assert log.bodies() == [b"new 5", b"new 6"]
    assert not log.damage


def test_if_what_took_their_place_is_lost_with_its_envelope_the_old_entries_do_not_stay():
    """The note stands in the next envelope again."""
    log = Replayed()
    log.feed_old()
    log.replay.lost(6)
    log.replay.note(GROUP, Truncation(log.old[3], 6, 6))
    log.replay.table([(GROUP, log.new[3])], 6, complete=False)
    assert log.bodies() == [b"old 1", b"old 2", b"old 3"]
    assert log.damage == [(4, 7)]


@pytest.mark.parametrize("length", [2, 3])
def test_if_the_note_is_lost_as_well_all_that_no_checkpoint_has_is_lost(length):
    """Nobody knows from where on the log is another one."""
    log = Replayed()
    log.feed_old()
    log.replay.lost(6)
    log.replay.table([(GROUP, log.new[length])], 7, complete=True)
    if length == 3:  # the log is longer than the one that was found, and may be the same
        assert log.bodies() == [b"old %d" % index for index in range(1, 6)]
        assert log.damage == [(6, 7)]
    else:
        assert log.bodies() == []
        assert log.damage == [(1, 6)]


def test_an_entry_that_follows_another_log_shows_that_the_one_found_is_not_it():
    log = Replayed()
    log.feed_old()
    log.replay.entry(log.new_entries[2], 8)
    assert log.bodies() == [b"new 6"]
    assert log.damage == [(1, 6)]


def test_the_term_of_the_snapshot_is_that_of_its_last_entry():
    """Segments may hold less than the snapshot knows."""
    log = Replayed(GroupRecord(GROUP, Replayed().old[2], 5))
    log.feed_old()
    for entry in log.new_entries:
        log.replay.entry(entry, 6)
    assert log.bodies() == [b"new 6"]
    assert log.replay.recovered[GROUP].snapshot_term == 2


# --- a live store ------------------------------------------------------------------------------


def world_of(*sizes: int) -> ReplicaWorld:
    """One group, with these entries durable and none of them applied."""
    world = ReplicaWorld("cut", settings=ROOMY, group=ROOMY_GROUP)
    world.add_group()
    for size in sizes:
        world.append(1, size=size)
    world.settle()
    assert world.groups[1].acked == len(sizes)
    return world


def test_a_commit_in_flight_does_not_make_durable_what_was_cut_meanwhile():
    world = world_of(10, 10, 10)
    for _ in range(3):
        world.append(1, size=10)
    world.store.flush()  # entries 4 to 6 are on their way ...
    world.cut(1, 4)  # ... and 5 and 6 are not wanted any more
    world.scheduler.run_for(10_000)
    assert world.groups[1].acked == 4
    _, durable, end = world.store.replicated.bounds(1)
    assert durable == end
    world.append(1, size=20)
    world.settle()
    assert world.groups[1].acked == 5
    world.crash()
    assert len(world.groups[1].entries) == 5
    world.check_all()


def test_what_is_cut_may_be_on_disk_on_its_way_and_staged():
    world = world_of(10, 3000, 10)
    world.append(1, size=50)
    world.store.flush()
    world.append(1, size=3000)
    staged = world.store._wal.staged_bytes
    world.cut(1, 1)
    assert world.store._wal.staged_bytes < staged
    assert world.store.segments(1)[-1].end_offset == 1
    world.append(1, size=70)
    world.settle()
    assert world.store._wal.staged_bytes == 0
    world.apply(1, 2)
    checkpoint(world)
    assert world.store._unwritten == 0
    world.kill()
    world.check_all()
    world.read_raw(1, 1, 10_000)
    world.close()
    world.check_offline()


def test_readers_and_jobs_keep_the_bytes_they_have():
    world = world_of(10, 10)
    result = world.fetch(1, 1)
    before = b"".join(result.slices)
    world.cut(1, 1)
    world.append(1, size=10)
    assert b"".join(result.slices) == before
    assert b"".join(world.fetch(1, 1).slices) != before


def test_times_and_points_of_a_segment_are_those_of_what_is_left():
    world = world_of(10)
    early = world.store.segments(1)[-1].max_timestamp
    world.scheduler.run_for(10**6)
    for _ in range(3):
        world.append(1, size=70_000)
    assert world.store.segments(1)[0].max_timestamp >= early
    world.cut(1, 1)
    assert [each.max_timestamp for each in world.store.segments(1)] == [early]
    assert len(world.store._groups[1].segments[0].points) == 1


def test_what_was_applied_is_never_cut():
    world = world_of(10, 10, 10)
    world.apply(1, 2)
    checkpoint(world)
    with pytest.raises(AssertionError, match="cut behind 1"):
        world.store.replicated.truncate(1, 1)
    files = {name: size for name, size in world.disk.files().items() if "groups/" in name}
    world.cut(1, 2)
    world.settle()
    world.kill()
    assert len(world.groups[1].entries) == 2
    assert files == {name: size for name, size in world.disk.files().items() if "groups/" in name}
    world.check_all()


def test_a_log_cannot_be_cut_where_it_is_not():
    world = world_of(10)
    with pytest.raises(AssertionError, match="cut behind 2"):
        world.store.replicated.truncate(1, 2)
    log = world.store._groups[1]
    log.skip_to(LogEnd(4, 3, 9, 1), Damage(1, 3, "lost", first_index=2, end_index=4))
    with pytest.raises(CorruptData, match="behind entry 2"):
        world.store.replicated.truncate(1, 2)


def test_a_cut_is_durable_with_the_next_commit():
    world = world_of(10, 10, 10)
    world.cut(1, 1)
    world.settle()
    world.crash()
    assert world.store.recovered[1].next_index == 2


def test_recycled_files_bring_nothing_back():
    """Files are used again and again, while what was cut stood in them."""
    world = ReplicaWorld("recycled")
    world.add_group()
    for number in range(40):
        world.append(1, size=200)
        world.append(1, size=200)
        world.store.flush()
        world.run(20_000)
        world.cut(1, world.groups[1].applied + number % 2)
        world.append(1, size=100)
        world.settle()
        world.apply(1, world.groups[1].acked)
        if number % 5 == 4:
            (world.crash if number % 2 else world.kill)()
    assert world.cuts == 40
    world.check_all()
    assert max(int(name[4:-4]) for name in world.disk.files() if name.startswith("wal/0")) > 20


class Unwalked(dict[int, GroupLog]):
    """Groups that nobody may look at but one by one."""

    def values(self) -> Any:
        raise AssertionError("all groups were looked at")


def test_what_befalls_one_group_costs_no_look_at_all_others():
    world = ReplicaWorld("one of many")
    for _ in range(3):
        world.append(world.add_group(), size=50)
    world.store._groups = Unwalked(world.store._groups)
    world.store.replicated.truncate(1, 0)
    world.store.delete_group(2)
