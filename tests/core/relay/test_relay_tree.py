"""Trees of real relay cores in virtual time; what must always hold is checked by the stage."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hocket.core.relay.settings import RelaySettings
from tests.support.core.relay_stage import SECOND, Stage


def crowd(stage, count, within_us, **options):
    for number in range(1, count):
        delay_us = stage.chance.randrange(within_us)
        stage.later(delay_us, lambda name: stage.consume(name, **options), f"node-{number}")


def keep_publishing(stage, every_us, until_us):
    stage.publish()
    if stage.now_us < until_us:
        stage.later(every_us, keep_publishing, stage, every_us, until_us)


def test_a_quiet_partition_is_served_by_its_owner():
    stage = Stage(200)
    stage.own()
    for number in range(1, 17):
        stage.consume(f"node-{number}")
    stage.run(SECOND)
    stage.publish()
    stage.run(SECOND)
    assert stage.complete()
    assert set(stage.parents().values()) == {None, "node-0"}


def test_a_popular_one_has_a_tree_no_deeper_than_need_be():
    stage = Stage(250, settings=RelaySettings(children_max=8))
    stage.own()
    crowd(stage, 250, 3 * SECOND)
    keep_publishing(stage, SECOND, 5 * SECOND)
    stage.run(7 * SECOND)
    assert stage.complete()
    depths = Counter(stage.depths().values())
    assert depths.total() == 250, "all hang on the owner"
    assert max(depths) <= RelaySettings(children_max=8).depth_for(250) + 1
    assert depths[1] == 8
    # The owner reads a batch once, and sends it to its children only.
    assert stage.reads == len(stage.pieces)
    assert stage.to_owner["Fetch"] < 8 * (len(stage.pieces) + 2 * 7) + 250


def test_delivery_goes_on_within_five_seconds_of_a_crash():
    stage = Stage(60, settings=RelaySettings(children_max=3))
    stage.own()
    crowd(stage, 60, 3 * SECOND)
    keep_publishing(stage, 200_000, 12 * SECOND)
    stage.run(6 * SECOND)
    below = [name for name, core in stage.cores.items() if len(core.children) == 3]
    victim = next(name for name in below if stage.depths()[name] == 1)
    orphans = stage.cores[victim].children.contacts
    stage.crash(victim)
    stage.run(5 * SECOND)
    now_us = stage.now_us
    for diary in stage.diaries.values():
        if diary.node is not None:
            assert now_us - diary.last_us < 300_000, f"{diary.node} waits"
    assert all(stage.cores[orphan.node].parent is not None for orphan in orphans)


def test_a_slow_consumer_does_not_slow_its_siblings():
    stage = Stage(5, settings=RelaySettings(window_bytes=300, fetch_bytes=200))
    stage.own()
    slow = stage.consume("node-1", credit_bytes=100, patience_us=400_000)
    others = [stage.consume(f"node-{number}") for number in (1, 2, 3, 4)]
    keep_publishing(stage, 10_000, 2 * SECOND)
    stage.run(2 * SECOND + 200_000)
    assert all(diary.next_offset == stage.end for diary in others)
    assert slow.next_offset < 10
    slow.patience_us = 0
    stage.run(3 * SECOND)
    assert slow.next_offset == stage.end


def test_one_that_never_takes_gets_no_more_than_its_credit():
    stage = Stage(3)
    stage.own()
    stuck = stage.consume("node-1", credit_bytes=250, patience_us=None)
    keep_publishing(stage, 10_000, SECOND)
    stage.run(2 * SECOND)
    assert stuck.next_offset == 2


def test_retention_passes_a_consumer():
    stage = Stage(3, settings=RelaySettings(window_bytes=200))
    for _ in range(20):
        stage.publish()
    stage.log_start = 12
    stage.own()
    diary = stage.consume("node-1")
    stage.run(SECOND)
    assert diary.lost == [(0, 12)]
    assert diary.next_offset == 20


def test_the_owner_comes_back_in_a_new_life():
    stage = Stage(30, settings=RelaySettings(children_max=3))
    stage.own()
    crowd(stage, 30, SECOND)
    stage.run(3 * SECOND)
    stage.crash("node-0")
    stage.run(4 * SECOND)
    stage.restart("node-0")
    stage.publish()
    stage.run(6 * SECOND)
    assert stage.complete()
    assert len(stage.depths()) == 30


def test_an_owner_that_is_away_for_long():
    stage = Stage(12, settings=RelaySettings(children_max=2))
    stage.own()
    crowd(stage, 12, SECOND)
    stage.run(3 * SECOND)
    stage.crash("node-0")
    stage.is_known = False
    stage.run(40 * SECOND)
    stage.restart("node-0")
    stage.is_known = True
    stage.publish()
    stage.run(8 * SECOND)
    assert stage.complete()
    assert len(stage.depths()) == 12


def test_the_partition_moves():
    stage = Stage(12, settings=RelaySettings(children_max=2))
    stage.own()
    crowd(stage, 12, SECOND)
    stage.publish()
    stage.run(3 * SECOND)
    stage.disown("node-0")
    stage.own("node-7")
    stage.publish()
    stage.run(10 * SECOND)
    assert stage.complete()
    assert not stage.cores["node-7"].parent
    assert len(stage.depths()) == len(stage.cores)


def test_when_the_crowd_has_gone_the_tree_goes():
    settings = RelaySettings(children_max=4, collapse_us=3 * SECOND)
    stage = Stage(40, settings=settings)
    stage.own()
    crowd(stage, 40, SECOND)
    stage.run(3 * SECOND)
    assert max(stage.depths().values()) >= 3
    staying = list(stage.diaries.values())[:3]
    for diary in stage.diaries.values():
        if diary not in staying:
            stage.stop(diary)
            diary.node = None
    stage.run(60 * SECOND)
    stage.publish()
    stage.run(SECOND)
    assert stage.complete()
    assert sorted(stage.cores) == sorted({"node-0", *(diary.node for diary in staying)})


def test_a_cycle_is_noticed():
    """Two who hang on each other, though both were told otherwise."""
    stage = Stage(10, settings=RelaySettings(children_max=2))
    stage.own()
    crowd(stage, 10, SECOND)
    stage.run(3 * SECOND)
    name = next(
        name
        for name, parent in stage.parents().items()
        if parent not in (None, "node-0") and stage.cores[name].children.room
    )
    low = stage.cores[name]
    high = stage.cores[low.parent.node]
    # As if `high` had attached at its own child, which had not heard yet of its ancestors.
    low.children.put(type(next(iter(high.children)))(high.me, 0, 0, 1))
    high.lineage.parent = low.me
    high.lineage.ancestors = (low.me, stage.contacts["node-0"])
    assert len(stage.depths()) < 10
    stage.run(4 * SECOND)
    assert len(stage.depths()) == 10
    stage.publish()
    stage.run(SECOND)
    assert stage.complete()


def storm(seed):
    """Everything at once, with tiny limits."""
    chance = random.Random(seed)
    settings = RelaySettings(
        children_max=chance.choice([1, 2, 2, 3, 4]),
        window_bytes=chance.choice([50, 400, 2_000]),
        fetch_bytes=chance.choice([150, 1_000]),
        collapse_us=chance.choice([3, 60]) * SECOND,
    )
    stage = Stage(chance.randint(2, 12), settings=settings, seed=seed)
    names = list(stage.contacts)
    stage.loss = chance.choice([0, 0, 0.02, 0.1])
    stage.repetition = chance.choice([0, 0.1])
    stage.tails = chance.choice([0, 0.05])
    stage.own()

    def begin(offset, credit_bytes, patience_us):
        living = [name for name in names if name not in stage.dead]
        if living:
            stage.consume(chance.choice(living), offset, credit_bytes, patience_us)

    def crash():
        name = chance.choice(names)
        if name not in stage.dead:
            stage.crash(name)
            stage.later(chance.randrange(1, 5 * SECOND), stage.restart, name)
            if chance.random() < 0.5:
                stage.later(SECOND, stage.died, name)

    def cut():
        pair = chance.choice(names), chance.choice(names)
        stage.cut.add(pair)
        stage.later(chance.randrange(6 * SECOND), stage.cut.discard, pair)

    def stop():
        living = [diary for diary in stage.diaries.values() if diary.node is not None]
        if living:
            diary = chance.choice(living)
            stage.stop(diary)
            diary.node = None

    def at_times(count, action, *choices):
        for _ in range(count):
            details = [chance.choice(each) for each in choices]
            stage.later(chance.randrange(15 * SECOND), action, *details)

    at_times(chance.randint(1, 15), begin, [0, 0, 3], [50, 300, 1_000], [0, 1_000, 40_000])
    at_times(80, stage.publish, [1, 2, 4], [10, 100, 100, 400])
    at_times(chance.choice([0, 4, 8]), crash)
    at_times(chance.choice([0, 8]), cut)
    at_times(chance.choice([0, 5]), stop)
    stage.run(21 * SECOND)
    stage.loss = stage.repetition = stage.tails = 0
    stage.cut.clear()
    stage.run(20 * SECOND)
    return stage


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_lost_and_nothing_comes_twice(seed):
    stage = storm(seed)
    assert stage.complete()
    assert len(stage.depths()) == len({*stage.cores, stage.owner}), "all hang on the owner"


def test_the_same_seed_is_the_same_story():
    first, second = storm(3), storm(3)
    assert first.sent == second.sent
    assert first.count == second.count
