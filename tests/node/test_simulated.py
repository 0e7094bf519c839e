"""The production node over a simulated clock, network and disk: a seed is a whole life of crashes.

A failing seed is replayed with: pytest "tests/node/test_simulated.py" -k "<its number>"
"""

from __future__ import annotations

import os

import pytest

from hocket.core.partition.cursors import Cursors
from hocket.core.partition.dedupe import NEW, Dedupe
from hocket.core.partition.partition import Partition
from hocket.log.settings import LogSettings
from tests.support.node.simulated import SECOND, Admin, Consumer, Producer, World, check
from tests.support.threads import LONG

SEEDS = range(int(os.environ.get("HOCKET_SEEDS", "100" if LONG else "10")))


def tiny() -> LogSettings:
    """So small that every border is crossed often."""
    return LogSettings(
        wal_file_bytes=8192,
        wal_file_bytes_min=8192,
        commit_bytes_max=4096,
        checkpoint_bytes=6000,
        checkpoint_interval_us=SECOND,
        mark_after_us=50_000,
        slab_bytes=2048,
        slab_bytes_min=512,
        index_interval_bytes=512,
        reserve_bytes=4096,
    )


def live(seed: int | str, *, crashes: int = 4, batches: int = 25) -> dict[str, int]:
    """One life: produce and consume under crashes and cuts, then heal, finish, and check."""
    world = World(seed, settings=tiny)
    Admin(world)
    producers = [Producer(world, name, batches_max=batches) for name in ("a", "b")]
    consumers = [Consumer(world, index) for index in ("billing", "audit")]
    while world.crashes < crashes:
        world.run(world.random.randrange(10_000, 400_000))
        if world.random.random() < 0.5:
            world.crash()
            world.run(world.random.randrange(1000, 50_000))
            world.start_node()
        elif world.network.connections:
            world.network.cut(world.random.choice(world.network.connections))
    world.until(lambda: all(p.finished for p in producers), 120, "every batch is acknowledged")
    everything = sum(len(v) for p in producers for made in p.sent.values() for v in made)
    world.until(
        lambda: all(sum(map(len, c.seen.values())) == everything for c in consumers),
        120,
        "every consumer has everything",
    )
    looked = check(world, producers, consumers)
    looked["crashes"] = world.crashes
    looked["duplicates"] = sum(producer.duplicates_sent for producer in producers)
    looked["committed"] = sum(sum(consumer.committed.values()) for consumer in consumers)
    return looked


@pytest.mark.stress
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_and_nothing_is_stored_twice(seed):
    looked = live(seed)
    for what in ("batches", "records", "consumed", "committed"):
        assert looked[what] > 0, f"nothing was looked at: {what}"


def test_the_lives_are_eventful():
    """Retries that the broker had stored already are the point of it all; some lives must have."""
    lives = [live(f"eventful {number}", batches=15) for number in range(4)]
    assert sum(looked["duplicates"] for looked in lives) > 0
    assert all(looked["crashes"] >= 4 for looked in lives)


def test_a_seed_gives_the_same_life_every_time():
    assert live("twice", batches=10) == live("twice", batches=10)


# --- planted bugs: the checks must be able to fail ------------------------------------------------


def acknowledge_before_durable(monkeypatch):
    appended = Partition._appended

    def hasty(self, pending, append):
        return [*appended(self, pending, append), *self._advance(pending.index)]

    monkeypatch.setattr(Partition, "_appended", hasty)


def store_duplicates(monkeypatch):
    monkeypatch.setattr(Dedupe, "judge", lambda *_: NEW)


def forget_producers_in_snapshots(monkeypatch):
    monkeypatch.setattr(Dedupe, "snapshot", lambda self, entry: {})


def forget_indexes_at_replay(monkeypatch):
    monkeypatch.setattr(Cursors, "replay", lambda self, changes: None)


def skip_a_record(monkeypatch):
    next_entry = Partition._next_entry

    def skipping(self, count):
        index, base = next_entry(self, count)
        self.end += 1 if count == 3 else 0
        return index, base

    monkeypatch.setattr(Partition, "_next_entry", skipping)


@pytest.mark.parametrize(
    "plant",
    [
        acknowledge_before_durable,
        store_duplicates,
        forget_producers_in_snapshots,
        forget_indexes_at_replay,
        skip_a_record,
    ],
)
def test_a_planted_bug_is_found_within_ten_seeds(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(10, 20):
        try:
            live(seed, batches=15)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{plant.__name__} went unnoticed in ten seeds")
