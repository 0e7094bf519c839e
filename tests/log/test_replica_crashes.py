"""Random lives of logs that are cut back, with crashes in every place; and planted mistakes.

To replay a seed: `live(SEED)`. To replay a power cut: `cut_once(LIFE, OPERATION)`.
"""

from __future__ import annotations

import pytest

from hocket.sim.disk import PowerLoss
from tests.support.log.replica_mutants import MUTANTS, Plant
from tests.support.log.replica_world import ReplicaWorld
from tests.support.threads import LONG

STEPS = 120
PARTS = 4
SEEDS_EACH = 1500 if LONG else 15
LIVES = 20  # in each of which the power is cut before every operation, one at a time: a mistake is
SEEDS_FOR_A_MUTANT = 100  # found by these, or by so many random lives
LIVES_CUT = range(LIVES) if LONG else range(2)
EVERY = 1 if LONG else 5  # by default, before every fifth operation
# What has found a mistake is tried first: a seed of `live`, or the numbers of a `cut_short`.
FOUND_WITH: dict[str, tuple[int, ...]] = {
    "write_over_what_was_cut": (23,),
    "make_a_cut_known_to_nobody": (40,),
    "forget_cuts_in_checkpoints": (2,),
    "put_a_cut_into_a_checkpoint_that_the_next_envelope_may_undo": (16, 29),
    "free_the_wal_of_what_an_envelope_on_its_way_may_bring_back": (51,),
    "forget_votes_in_checkpoints": (3,),
    "forget_votes_that_are_in_the_wal": (0,),
    "forget_the_vote_when_a_state_is_installed": (13,),
    "install_without_cutting_the_old_log": (5,),
    "install_while_the_old_log_is_on_its_way": (4, 104),
    "go_on_writing_the_old_log_while_another_is_installed": (20,),
    "carry_without_telling_the_checkpoint": (2,),
    "end_carrying_with_a_commit_that_was_under_way": (1, 137),
    "free_the_wal_before_all_is_carried": (38,),
}


def live(seed: int) -> ReplicaWorld:
    world = ReplicaWorld(seed)
    world.play(STEPS)
    world.close()
    world.check_offline()
    return world


@pytest.mark.timeout(1800 if LONG else 120)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_told_survives_every_crash_and_nothing_is_mixed(part: int):
    seen = dict.fromkeys(("cuts", "votes", "installs", "raw_reads", "busy"), 0)
    crashes = 0
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        try:
            world = live(seed)
        except BaseException as error:
            error.add_note(f"replay: live({seed})")
            raise
        for name in seen:
            seen[name] += getattr(world, name)
        crashes += world.disk.crashes
    assert min(seen.values()) > SEEDS_EACH // 4, seen
    assert crashes > 3 * SEEDS_EACH


# --- the power fails before every operation --------------------------------------------------


def busy(world: ReplicaWorld) -> None:
    """Cuts, votes, installs and checkpoints, each while a commit is under way."""
    while len(world.groups) < 3:
        world.add_group()
    random = world.random
    for number in range(8):
        for group in world.groups:
            world.append(group, size=random.choice((50, 150)))
        world.store.flush()
        world.scheduler.run_for(random.choice((0, 500, 3000)))
        for group in (1, 2):
            world.append(group, size=100)
        world.store.flush()
        log = world.store._groups[1]
        if random.random() < 0.3 and log.carried is None and log.unwritten:
            world.store._wal.carry(log)
        if random.random() < 0.7:
            cut_back(world, 1)
        if random.random() < 0.6:
            world.store.checkpoint_now()
        if random.random() < 0.5:
            world.vote(1 + number % 2, "ann")
        world.append(1, size=60)
        world.scheduler.run_for(random.choice((0, 500)))
        world.store.flush()
        if number in (2, 4, 6) and not world.group(2).is_installing:
            world.append(2, size=30)
            world.store.flush()
            world.install(2, 1)
        world.scheduler.run_for(random.choice((500, 3000)))
        for group in (2, 3) if number % 4 else (1, 2, 3):
            model = world.group(group)
            if not model.is_installing and model.applied < model.acked:
                world.apply(group, random.randint(model.applied, model.acked))
    world.settle()


def cut_back(world: ReplicaWorld, number: int) -> None:
    group = world.group(number)
    if len(group.entries) > group.applied and not group.is_installing:
        world.cut(number, max(group.applied, len(group.entries) - 3))


def cut_short(cut_at: int, life: int, *, power: bool) -> bool:
    """The power fails, or the process is killed, before the operation of the disk `cut_at`; then
    the store is used again, and killed. False: it ended before that."""
    world = ReplicaWorld(f"life {life}")
    left = cut_at

    def count(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss(f"before {operation} of {path}")

    world.disk.before = count
    try:
        busy(world)
    except PowerLoss:
        world.executor.crash()
        if power:
            world.disk.crash(world.scheduler.random("crash"))
        else:
            world.disk.kill()
        world.check_offline()
        world.open()
        for group in world.groups:
            world.append(group, size=50)
        world.settle()
        world.crash()
        world.check_all()
        world.close()
        world.check_offline()
        return True
    return False


def cut_once(life: int, cut_at: int) -> bool:
    return cut_short(cut_at, life, power=bool((cut_at + life) % 3))


def cut_everywhere(life: int, step: int) -> int:
    cut_at = life % 3
    while cut_once(life, cut_at):
        cut_at += step
    return cut_at


@pytest.mark.parametrize("life", LIVES_CUT)
def test_the_power_may_fail_before_every_operation(life: int):
    assert cut_everywhere(life, EVERY) > 100


# --- the world can fail --------------------------------------------------------------------------


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    known = FOUND_WITH.get(plant.__name__, ())
    plant(monkeypatch)
    try:
        if len(known) == 1:
            live(*known)
        elif known:
            cut_once(*known)
        for life in range(LIVES):
            cut_everywhere(life, 1)
        for seed in range(SEEDS_FOR_A_MUTANT):
            live(seed)
    except Exception:
        return
    pytest.fail(f"{plant.__name__} was not found")


def test_one_seed_gives_one_run():
    first, second = live(7), live(7)
    assert first.scheduler.events == second.scheduler.events
    assert first.disk.files() == second.disk.files()
