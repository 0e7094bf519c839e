"""Segments in a storage tier: taken there, read back, removed, with crashes in every place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import cast

import pytest

from hocket.errors import CorruptData
from hocket.log import verify as offline
from hocket.log.checkpointer import Checkpointer
from hocket.log.model import SegmentAway
from hocket.log.store import ReadResult
from hocket.log.tier import jobs, stub, tiering
from hocket.log.tier.place import AwayError, StorageTier, TierRules
from hocket.log.tier.tiering import Tiering
from hocket.sim.disk import PowerLoss
from tests.support.log.tier_world import AT_ONCE, Place, TierWorld
from tests.support.threads import LONG

STEPS = 150
SEEDS = 400 if LONG else 12


def with_segments_away(seed: object, place: Place | None = None) -> TierWorld:
    world = TierWorld(seed, place=place)
    world.add_group()
    world.fill(1, segments=6)
    world.run_until(lambda: world.away(1) >= 3)
    return world


def local_files(world: TierWorld) -> list[str]:
    return [name for name in world.disk.list("groups/1") if name.endswith(".log")]


def test_old_segments_leave_the_disk_and_are_read_all_the_same():
    world = with_segments_away("read")
    assert world.place is not None
    world.run(100_000)
    stats = world.store.stats(1)
    assert len(world.place.kept) >= 3
    assert len(local_files(world)) == len(world.store.segments(1)) - world.away(1)
    assert stats.tier_bytes == sum(
        each.written for each in world.store._groups[1].segments if each.away
    )
    assert stats.disk_bytes + stats.tier_bytes == sum(e.bytes for e in world.store.segments(1))
    world.check_all()
    assert world.store.tier.fetched >= 3


def test_what_was_fetched_is_kept_for_the_next_read_and_no_more_than_fits():
    world = with_segments_away("cache")
    assert world.place is not None
    world.check_all()
    world.place.calls.clear()
    first = world.store._groups[1].segments[0].base_offset
    world.fetch(1, first)
    assert world.place.calls.count("fetch") <= 1
    world.fetch(1, first)
    world.run(100_000)
    assert world.place.calls.count("fetch") <= 1
    cached = sum(world.disk.open(f"fetched/{n}").size() for n in world.disk.list("fetched"))
    assert 0 < cached <= AT_ONCE.cache_bytes


def test_what_leaves_the_cache_and_is_read_again_at_once_is_there():
    """Also if the worker that removes its file is late."""
    world = with_segments_away("again 5")
    first = world.store._groups[1].segments[0]
    assert isinstance(world.fetch(1, first.base_offset), ReadResult)
    world.executor.delay_us_max = 60_000
    world.store.tier._forget(first)
    assert isinstance(world.fetch(1, first.base_offset), ReadResult)
    assert not world.store.tier._leaving


def test_a_start_finds_what_is_away_and_empties_the_cache():
    world = with_segments_away("reopened")
    world.check_all()
    away = world.away(1)
    world.close()
    world.disk.kill()
    world.open()
    assert world.away(1) == away
    assert not world.disk.list("fetched")
    world.check_all()


def test_a_search_by_time_and_raw_reads_fetch_as_well():
    world = with_segments_away("search")
    log = world.store._groups[1]
    second = log.segments[1]
    found: list[object] = []
    stamp = world.groups[1].entries[second.first_index - 1].timestamp
    assert world.store.offset_at_time(1, stamp, found.append) is None
    world.run_until(lambda: bool(found))
    assert isinstance(found[0], int)
    raw: list[object] = []
    answer = world.store.replicated.read_raw(
        1, second.first_index, end_index=second.first_index + 2, bytes_max=10_000, done=raw.append
    )  # the entry before the first is in another segment, which is not fetched for its term
    assert answer is None
    world.run_until(lambda: bool(raw))
    assert getattr(raw[0], "first_index", None) == second.first_index
    assert getattr(raw[0], "previous_term", 0) is None
    bodies: list[object] = []
    indexes = [log.segments[0].first_index, second.first_index]
    assert world.store.read_entries(1, indexes, 0, bodies.append) is None
    world.run_until(lambda: bool(bodies))
    assert isinstance(bodies[0], dict)
    assert sorted(bodies[0]) == indexes


def test_a_lost_place_fails_reads_of_its_offsets_by_name_and_nothing_else():
    world = with_segments_away("lost")
    assert world.place is not None
    world.place.fails = lambda call: True
    segments = world.store._groups[1].segments
    error = world.fetch(1, segments[0].base_offset)
    assert isinstance(error, SegmentAway)
    assert (error.start, error.end) == (segments[0].base_offset, segments[0].end_offset)
    assert f"offsets {error.start} to {error.end - 1} cannot be read" in str(error)
    assert "storage tier 'sim'" in str(error)
    assert "the place is not there" in str(error)
    assert isinstance(world.fetch(1, segments[-1].base_offset), ReadResult)
    assert world.append(1, size=10)
    world.settle()
    assert world.groups[1].acked == len(world.groups[1].entries)
    assert not world.store.stats(1).problem, "what may come back is no damage"
    world.place.fails = lambda call: False
    world.check_all()


def test_entries_of_a_segment_that_is_here_need_no_place():
    """A leader sends them to a follower, whatever has become of the segment before."""
    world = with_segments_away("raw")
    assert world.place is not None
    world.place.fails = lambda call: True
    log = world.store._groups[1]
    here = next(each for each in log.segments if not each.away)
    assert log.segments[log.segments.index(here) - 1].away
    log.memory.evict(appended_until_us=1 << 60, bytes_max=0)
    raw: list[object] = []
    found = world.store.replicated.read_raw(
        1, here.first_index, end_index=here.first_index + 1, bytes_max=1, done=raw.append
    )
    world.run_until(lambda: bool(raw) or found is not None)
    assert getattr(raw[0] if raw else found, "first_index", None) == here.first_index
    away: list[object] = []
    assert world.store.replicated.read_raw(1, 1, end_index=2, bytes_max=1, done=away.append) is None
    world.run_until(lambda: bool(away))
    assert isinstance(away[0], SegmentAway)


def test_a_place_that_hangs_fails_reads_at_their_deadline_and_then_at_once():
    world = with_segments_away("hangs")
    segments = world.store._groups[1].segments
    world.calls.delay_us_max = 0
    world.calls.submit = lambda *_args, **_more: None  # type: ignore[method-assign]
    for segment in segments[:3]:
        began = world.scheduler.now_us()
        error = world.fetch(1, segment.base_offset)
        assert isinstance(error, SegmentAway)
        assert "has not answered within 2 s" in str(error)
        assert world.scheduler.now_us() - began <= 2_000_000
    # All fetchers are stuck once there are as many such segments: nobody waits in vain any more.
    world.store.tier._free.clear()
    began = world.scheduler.now_us()
    assert isinstance(world.fetch(1, segments[0].base_offset), SegmentAway)
    assert world.scheduler.now_us() - began < 100_000


@pytest.mark.parametrize("wrong", ["half", "other", "more"])
def test_a_place_that_hands_out_something_else_is_not_believed(wrong: str):
    world = with_segments_away("wrong")
    assert world.place is not None
    for key, data in world.place.kept.items():
        other = bytes([data[0] ^ 1]) + data[1:]
        world.place.kept[key] = {"half": data[:-8], "other": other, "more": data + b"x"}[wrong]
    error = world.fetch(1, world.store._groups[1].segments[0].base_offset)
    assert isinstance(error, SegmentAway), error


class Forgetful(Place):
    """Says that it has stored what it has not."""

    def store(self, key: str, source: object) -> None:
        super().store(key, source)  # type: ignore[arg-type]
        self.kept[key] = self.kept[key][:-1]


def test_what_the_place_does_not_hand_out_again_stays_on_the_disk():
    world = TierWorld("forgetful", place=Forgetful())
    world.add_group()
    world.fill(1, segments=5)
    world.run(3_000_000)
    assert world.away(1) == 0
    assert len(local_files(world)) == len(world.store.segments(1))
    assert "stays on the disk" in world.store.tier.problem
    world.check_all()


def test_a_place_that_comes_back_is_tried_again_less_and_less_often():
    place = Place(fails=lambda call: True)
    world = TierWorld("back", place=place)
    world.add_group()
    world.fill(1, segments=5)
    world.run(10_000_000)
    assert 2 <= place.calls.count("store") < 20
    assert world.away(1) == 0
    place.fails = lambda call: False
    world.run_until(lambda: world.away(1) >= 2, within_us=400_000_000)
    world.check_all()


def test_retention_removes_segments_there_too():
    world = with_segments_away("retention")
    assert world.place is not None
    log = world.store._groups[1]
    gone = [each for each in log.segments[:2] if each.away]
    assert gone
    world.groups[1].log_start = gone[-1].end_offset
    world.store.set_log_start(1, gone[-1].end_offset)
    world.store.checkpoint_now()
    keys = {stub.key_of("simulated", each.path) for each in gone}
    world.run_until(lambda: not keys & set(world.place.kept))  # type: ignore[union-attr]
    assert not any(name.startswith(gone[0].path[9:29]) for name in world.disk.list("groups/1"))
    world.check_all()


def test_a_deleted_log_is_removed_there_too_also_if_the_place_was_lost_meanwhile():
    world = with_segments_away("deleted")
    assert world.place is not None
    world.place.fails = lambda call: call in ("remove", "keys")
    del world.groups[1]
    world.store.delete_group(1)
    world.store.checkpoint_now()
    world.run(3_000_000)
    assert world.place.kept
    world.crash()
    world.place.fails = lambda call: False
    world.run_until(lambda: not world.place.kept)  # type: ignore[union-attr]


def test_a_sweep_finds_what_a_crash_left_and_what_is_missing():
    world = with_segments_away("swept")
    assert world.place is not None
    stranger = "simulated/7/00000000000000000000-00000000000000000001.log"
    foreign = stranger.replace("simulated", "another")
    lost = next(iter(world.place.kept))
    del world.place.kept[lost]
    world.place.kept |= {stranger: b"left", foreign: b"of another store"}
    world.run_until(lambda: stranger not in world.place.kept)  # type: ignore[union-attr]
    assert foreign in world.place.kept
    assert "missing in storage tier 'sim'" in world.store.stats(1).problem


def test_a_place_whose_list_does_not_end_is_told_so_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    class Endless:
        def keys(self, prefix: str) -> Iterator[str]:
            return (f"{prefix}{number}" for number in itertools.count())

    monkeypatch.setattr(jobs, "KEYS_MAX", 10)
    with pytest.raises(AwayError, match="it lists more than 10 keys"):
        jobs.keys_of(cast(StorageTier, Endless()), "a/")


def test_without_the_plug_in_reads_say_where_the_messages_are():
    world = with_segments_away("without")
    world.place = None
    world.kill()
    error = world.fetch(1, 0)
    assert isinstance(error, SegmentAway)
    assert "plug-in for that is not enabled" in str(error)
    assert world.append(1, size=10)
    world.settle()


def test_the_offline_check_tells_of_segments_that_are_away_and_finds_no_damage():
    world = with_segments_away("offline")
    away = world.away(1)
    world.close()
    report = offline.verify(world.disk)
    assert report.ok
    assert not report.damage
    assert report.away_segments == away
    assert report.away_bytes > 0


def test_the_scrub_leaves_them_out_and_says_so():
    world = with_segments_away("scrubbed")
    world.run(1_000_000)
    reports: list[object] = []
    world.store.scrub(reports.append)
    world.run_until(lambda: bool(reports))
    assert getattr(reports[0], "away_segments", 0) == world.away(1)
    assert getattr(reports[0], "ok", False)


def test_a_damaged_stub_costs_the_comparison_alone():
    world = with_segments_away("damaged stub")
    path = world.store._groups[1].segments[0].path
    file = world.disk.open(stub.stub_path(path))
    file.write([b"#"], 0)
    file.close()
    assert stub.read_stub(world.disk, path) is None
    world.check_all()


def test_a_segment_with_damage_stays():
    place = Place(fails=lambda call: call == "store")
    world = TierWorld("damaged", place=place)
    world.add_group()
    world.fill(1, segments=5)
    world.run(500_000)
    path = world.store._groups[1].segments[0].path
    world.disk.flip(path, 300)
    reports: list[object] = []
    world.store.scrub(reports.append)
    world.run_until(lambda: bool(reports))
    assert world.store.stats(1).problem
    place.fails = lambda call: False
    world.run_until(lambda: world.away(1) >= 2)
    assert not world.store._groups[1].segments[0].away
    assert isinstance(world.fetch(1, 0), CorruptData | ReadResult)


def test_local_bytes_bound_what_a_partition_has_on_disk():
    place = Place(TierRules(after=None, local_bytes=3_000, cache_bytes=3_000))
    world = TierWorld("bytes", place=place)
    world.add_group()
    world.fill(1, segments=8)
    world.run_until(lambda: world.store.stats(1).disk_bytes <= 4_500)
    world.run(1_000_000)
    assert world.store.stats(1).disk_bytes > 1_000, "no more than that has to go"
    world.check_all()


# --- crashes ---------------------------------------------------------------------------------


def life(seed: object, *, crash_at: int) -> bool:
    """Power fails before the operation `crash_at` of the disk, while segments go and are read and
    removed. False: it ended before that."""
    world = TierWorld(seed)
    left = crash_at

    def count(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss(f"before {operation} of {path}")

    world.add_group()
    world.fill(1, segments=4)
    world.disk.before = count
    try:
        world.run(1_200_000)
        world.check_all()
        start = world.store._groups[1].segments[1].base_offset
        world.groups[1].log_start = start
        world.store.set_log_start(1, start)
        world.executor.delay_us_max = 100_000  # the place is quicker than the checkpoint
        world.store.checkpoint_now()
        world.run(600_000)
        world.executor.delay_us_max = 2_000
        world.fill(1, segments=5)
        world.run(600_000)
        is_over = True
    except PowerLoss:
        is_over = False
    world.disk.before = lambda operation, path: None
    world.crash()
    world.check_all()
    world.run(1_500_000)
    world.check_all()
    known = {stub.key_of("simulated", each.path) for each in world.store._groups[1].segments}
    world.run_until(lambda: set(world.place.kept) <= known)  # type: ignore[union-attr]
    world.close()
    world.check_offline()
    return not is_over


def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing_behind():
    at = crashes = 0
    step = 1 if LONG else 5
    while life(f"crash at {at}", crash_at=at):
        at += step
        crashes += 1
    assert crashes > (100 if LONG else 20)


def live(seed: int) -> TierWorld:
    world = TierWorld(seed)
    chance = world.scheduler.random("place")
    assert world.place is not None
    world.place.fails = lambda call: chance.random() < 0.1 and call != "fetch"
    world.play(STEPS)
    world.run(1_000_000)
    world.check_all()
    world.close()
    world.check_offline()
    return world


def test_random_lives_with_a_tier_that_fails_now_and_then():
    stored = checked = crashes = fetched = 0
    for seed in range(SEEDS):
        try:
            world = live(seed)
        except BaseException as error:
            error.add_note(f"replay: tests.log.test_tier.live({seed})")
            raise
        stored += world.stored + world.store.tier.stored
        fetched += world.fetched + world.store.tier.fetched
        checked += world.checked
        crashes += world.disk.crashes
    assert stored > SEEDS
    assert fetched > SEEDS
    assert checked > 10 * SEEDS
    assert crashes > SEEDS


def remove_before_the_stub_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs, "record", lambda *_arguments: None)


def take_what_the_place_says_for_stored(patch: pytest.MonkeyPatch) -> None:
    def copy(disk: object, place: Place, path: str, key: str, size: int) -> int:
        place.calls.append("store")
        return 0

    patch.setattr(jobs, "copy", copy)


def take_the_last_segment_of_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tiering, "_is_closed", lambda self, group, segment: segment.written > 0)


def remove_there_before_the_checkpoint_is_published(patch: pytest.MonkeyPatch) -> None:
    trimmed = Checkpointer._trimmed

    def hasty(self: Checkpointer, log: tiering.GroupLog, lsn: int) -> object:
        before = list(log.segments)
        record = trimmed(self, log, lsn)
        self._tell_gone([each for each in before if each not in log.segments], [])
        return record

    patch.setattr(Checkpointer, "_trimmed", hasty)


def sweep_by_what_is_away_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tiering, "_known", lambda self: iter(()))


MUTANTS = [
    remove_before_the_stub_is_durable, take_what_the_place_says_for_stored,
    take_the_last_segment_of_the_checkpoint, sweep_by_what_is_away_alone,
    remove_there_before_the_checkpoint_is_published,
]  # fmt: skip


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: object, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)  # type: ignore[operator]
    with pytest.raises(BaseException) as found:  # noqa: PT012
        for at in range(0, 400, 3):
            if not life(f"crash at {at}", crash_at=at):
                break
        for seed in range(20):
            live(seed)
    assert "cannot be read" in str(found.value)


def test_what_a_place_has_lost_for_good_can_be_accepted_as_lost():
    world = with_segments_away("lost for good")
    first = world.store._groups[1].segments[0]
    world.close()
    world.disk.remove(stub.stub_path(first.path))  # what the guide tells an operator to do
    assert [each.end for _, each in offline.verify(world.disk).damage] == [first.end_offset]
    assert offline.accept_loss(world.disk, 1)
    assert offline.verify(world.disk).ok
    world.disk.kill()
    world.check_recovered = lambda number: None  # type: ignore[method-assign]
    world.open()
    found = world.fetch(1, 0)
    assert isinstance(found, ReadResult)
    assert found.start_offset == first.end_offset
