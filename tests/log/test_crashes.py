"""Random lives of a store, with crashes in every place, against a model; and planted mistakes.

To replay a seed: `World(seed).play(STEPS)`.
"""

from __future__ import annotations

import pytest

from hocket.sim.disk import PowerLoss
from tests.support.log.mutants import MUTANTS, Plant
from tests.support.log.world import World
from tests.support.threads import LONG

STEPS = 120
SEEDS_FOR_A_MUTANT = 200  # are enough to find each of them
PARTS = 8
SEEDS_EACH = 1500 if LONG else 8
# Seeds that have found a mistake, for those that are found late: they are tried first.
FOUND_WITH = {
    "forget_deletions": 109, "free_the_wal_before_the_checkpoint_is_published": 19,
    "publish_a_snapshot_before_its_entries_are_durable": 8,
    "take_what_recovery_found_for_durable": 16,
}  # fmt: skip


def live(seed: int) -> World:
    world = World(seed)
    world.play(STEPS)
    world.close()
    world.check_offline()
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_survives_every_crash(part: int) -> None:
    checked = crashes = 0
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        try:
            world = live(seed)
        except BaseException as error:
            error.add_note(f"replay: World({seed}).play({STEPS})")
            raise
        checked += world.checked
        crashes += world.disk.crashes
    assert checked > 10 * SEEDS_EACH
    assert crashes > 3 * SEEDS_EACH


def killed_then_lost(kill_at: int) -> bool:
    """The process is killed before its operation `kill_at`; a while later the power fails.

    What the second run builds on may have been in the page cache only. False: it ended before that.
    """
    world = World(f"killed at {kill_at}")
    left = kill_at

    def count(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss(f"before {operation} of {path}")

    world.disk.before = count
    try:
        busy(world, rounds=8)
    except PowerLoss:
        world.executor.crash()
        world.disk.kill()
        world.open()
        busy(world, rounds=world.random.randint(0, 3))
        world.crash()
        world.check_all()
        return True
    return False


def busy(world: World, *, rounds: int) -> None:
    while len(world.groups) < 2:
        world.add_group()
    for number in range(rounds):
        for group in world.groups:
            world.append(group, size=300)
        world.store.flush()
        if number % 3 == 2:
            world.store.checkpoint_now()
        world.scheduler.run_for(20_000)


def killed_everywhere() -> None:
    kill_at = 0
    while killed_then_lost(kill_at):
        kill_at += 1
    assert kill_at > 80


def test_killed_before_every_operation_and_then_without_power() -> None:
    killed_everywhere()


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    known = FOUND_WITH.get(plant.__name__, 0)
    plant(monkeypatch)
    try:
        live(known)
        for seed in range(SEEDS_FOR_A_MUTANT // 2):
            live(seed)
        killed_everywhere()
        for seed in range(SEEDS_FOR_A_MUTANT // 2, SEEDS_FOR_A_MUTANT):
            live(seed)
    except Exception:
        return
    pytest.fail(f"{plant.__name__} was not found in {SEEDS_FOR_A_MUTANT} seeds")


def test_one_seed_gives_one_run() -> None:
    first, second = live(7), live(7)
    assert first.scheduler.events == second.scheduler.events
    assert first.disk.files() == second.disk.files()
    assert first.groups == second.groups
