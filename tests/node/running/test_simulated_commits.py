"""What a commit of a shared subscription has confirmed is never delivered again, whatever broke.

The production client and the production node, in lives full of crashes, cuts and long absences.

A failing seed is replayed with: pytest tests/node/running/test_simulated_commits.py -k "<its
number>"
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.settlements import Telling
from hocket.model import Mode
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, Admin, World
from tests.support.node.simulated_commits import Clerk, Ledger, SlowProducer
from tests.support.node.simulated_shares import Undertaker
from tests.support.threads import LONG

SEEDS = range(int(os.environ.get("HOCKET_SEEDS", "40" if LONG else "3")))


def live(
    seed: int | str, mode: Mode, *, troubles: int = 14, batches: int = 16, max_deliveries: int = 6
) -> Counter[str]:
    world = World(seed, settings=tiny)
    ledger = Ledger()
    admin = Admin(world)
    world.until(lambda: admin.created, 5, "there is a topic")
    producers = [SlowProducer(world, name, batches_max=batches) for name in ("a", "b")]
    clerks = [
        Clerk(world, name, ledger, mode, max_deliveries=max_deliveries)
        for name in ("ann", "bob", "cyd")
    ]
    for _ in range(troubles):
        make_trouble(world, clerks)
    world.until(lambda: all(p.finished for p in producers), 120, "every batch is acknowledged")
    for clerk in clerks:
        clerk.patience = 0.0
    undertaker = Undertaker(world)
    sent = sorted(v for p in producers for made in p.sent.values() for b in made for v in b)

    def everything() -> bool:
        dead = {place for place, _ in undertaker.found.values()}
        quiet = world.scheduler.now_us() - ledger.last_us > 4 * SECOND
        return quiet and len({*ledger.values, *dead}) == len(sent)

    world.until(everything, 240, "every message was delivered, and nothing comes any more")
    assert sorted(ledger.values.values()) == sent
    ledger.looked["committed"] = len(ledger.committed)
    return ledger.looked


def make_trouble(world: World, clerks: list[Clerk]) -> None:
    """Most of it at the worst moment: an ack is on its way, or its answer is."""
    chance, patience = world.random.choice, world.scheduler.now_us() + SECOND
    victim = chance(clerks)
    world.run(world.random.randrange(10_000, 300_000))
    while not victim.is_unanswered and world.scheduler.now_us() < patience:
        world.run(300)
    # For a moment, or so long that what it holds is given to others.
    away_us = chance([0, 500_000, 2_500_000, 4_000_000])
    what = chance(["kill", "kill", "cut", "cut and kill", "kill and cut all"])
    if what in ("cut", "cut and kill"):
        victim.cut(away_us)
    if what == "cut and kill":  # soon after it is back, and has told everything again
        world.run(chance([5_000, 20_000, 40_000]))
    if what != "cut":
        world.crash()
        for clerk in clerks if what == "kill and cut all" else [victim]:
            clerk.away_until_us = world.scheduler.now_us() + away_us
        world.run(chance([1000, 50_000, 400_000]))
        world.start_node()
    assert world.executor is not None
    world.executor.delay_us_max = chance([2000, 200_000])  # the disk may be slow


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_committed_never_comes_again(seed, mode):
    looked = live(seed, mode)
    assert looked["committed"] > 0
    assert looked["handed out"] > looked["committed"]


def test_the_lives_are_eventful():
    missing = {"commits", "lease lost", "again", "ack again", "reject again"}
    for number in range(8):
        looked = live(f"eventful {number}", "shared", max_deliveries=3)
        missing -= {what for what, times in looked.items() if times > 0}
        if not missing:
            return
    pytest.fail(f"in none of eight lives: {missing}")


# --- planted bugs: the checks must be able to fail ------------------------------------------------


def take_what_is_told_twice_for_granted(monkeypatch):
    """As it was: a refusal of something told again was no news."""
    lenient = property(lambda telling: telling.quiet or telling.doubtful)
    monkeypatch.setattr(Telling, "is_refused_in_vain", lenient)


def tell_one_commit_only(monkeypatch):
    """Of two commits under way only the first one raises what was refused."""
    are_committed = SharedCore.are_committed

    def forgetful(core, mark):
        return are_committed(core, mark._replace(raised=core._raised))

    monkeypatch.setattr(SharedCore, "are_committed", forgetful)


# Each with the seed that found it last: the search begins there.
@pytest.mark.parametrize(
    ("plant", "first"), [(take_what_is_told_twice_for_granted, 6), (tell_one_commit_only, 2)]
)
def test_a_planted_bug_is_found_within_ten_lives(plant, first, monkeypatch):
    plant(monkeypatch)
    for seed in (*range(first, 10), *range(first)):
        try:
            live(seed, "shared")
        except AssertionError as error:
            if "acked and committed it" not in str(error):
                raise
            return
    pytest.fail(f"{plant.__name__} went unnoticed in ten lives")
