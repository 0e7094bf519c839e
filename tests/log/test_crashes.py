"""Random lives of a store, with crashes in every place, against a model; and planted mistakes.

To replay a seed: `World(seed).play(STEPS)`.
"""

from __future__ import annotations

import pytest

from tests.log.mutants import MUTANTS, Plant
from tests.log.world import World
from tests.support import LONG

STEPS = 120
SEEDS_EACH = 1500 if LONG else 50
SEEDS_FOR_A_MUTANT = 200


def live(seed: int) -> World:
    world = World(seed)
    world.play(STEPS)
    world.close()
    world.check_offline()
    return world


@pytest.mark.parametrize("part", range(8))
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


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_FOR_A_MUTANT):
        try:
            live(seed)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} was not found in {SEEDS_FOR_A_MUTANT} seeds")


def test_one_seed_gives_one_run() -> None:
    first, second = live(7), live(7)
    assert first.scheduler.events == second.scheduler.events
    assert first.disk.files() == second.disk.files()
    assert first.groups == second.groups
