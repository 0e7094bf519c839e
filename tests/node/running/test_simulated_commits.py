"""What a commit of a shared subscription has confirmed is never delivered again, whatever broke.

The production client and the production node, in lives full of crashes, cuts and long absences.

A failing seed is replayed with: pytest tests/node/running/test_simulated_commits.py -k "<its
number>"
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hocket.client.sharing.progress import SharedProgress
from hocket.client.sharing.settlements import Telling
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.maps import RUNS_OF, SETTLED
from hocket.core.sharing.ranges import clipped, gaps
from hocket.model import Mode
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, Admin, World
from tests.support.node.simulated_commits import Clerk, Ledger
from tests.support.node.simulated_shares import KeyedProducer, Undertaker

SEEDS = range(int(os.environ.get("HOCKET_SEEDS", "10")))


def live(
    seed: int | str, mode: Mode, *, troubles: int = 14, batches: int = 12, max_deliveries: int = 6
) -> Counter[str]:
    world = World(seed, settings=tiny)
    ledger = Ledger()
    admin = Admin(world)
    world.until(lambda: admin.created, 5, "there is a topic")
    producers = [KeyedProducer(world, name, batches_max=batches) for name in ("a", "b")]
    clerks = [
        Clerk(world, name, ledger, mode, max_deliveries=max_deliveries)
        for name in ("ann", "bob", "cyd")
    ]
    for _ in range(troubles):
        world.run(world.random.randrange(10_000, 500_000))
        chance = world.random.random()
        if chance < 0.4:
            world.crash()
            world.run(world.random.choice([1000, 50_000, 400_000]))
            world.start_node()
        if chance < 0.7:
            # For a moment, or so long that what it holds is given to others.
            away_us = world.random.choice([0, 500_000, 2_500_000, 4_000_000])
            world.random.choice(clerks).cut(away_us)
        elif world.network.connections:
            world.network.cut(world.random.choice(world.network.connections))
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


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_committed_never_comes_again(seed, mode):
    looked = live(seed, mode)
    assert looked["committed"] > 0
    assert looked["handed out"] > looked["committed"]


def test_the_lives_are_eventful():
    total: Counter[str] = Counter()
    for number in range(4):
        total += live(f"eventful {number}", "shared", max_deliveries=3)
    for what in ("commits", "lease lost", "again", "ack again", "reject again"):
        assert total[what] > 0, what


# --- planted bugs: the checks must be able to fail ------------------------------------------------


def take_what_is_told_twice_for_granted(monkeypatch):
    """As it was: a refusal of something told again was no news."""
    lenient = property(lambda telling: telling.quiet or telling.doubtful)
    monkeypatch.setattr(Telling, "is_refused_in_vain", lenient)


def take_a_message_with_a_forgotten_count_for_new(monkeypatch):
    monkeypatch.setattr(SharedProgress, "reopened", lambda _progress, _settled: None)


def confirm_what_the_log_may_not_have(monkeypatch):
    """A settled message is settled: but only in memory, if its entry is not durable."""

    def hasty(self, _action, refused):
        left = []
        for start, end in refused:
            settled = clipped([(start, end)], 0, self.start)
            settled += self._maps.runs(RUNS_OF[SETTLED], start, end)
            left += gaps(settled, start, end)
        return left

    monkeypatch.setattr(Leases, "_not_yet", hasty)


@pytest.mark.parametrize(
    ("plant", "lives"),
    [
        (take_what_is_told_twice_for_granted, 10),
        (take_a_message_with_a_forgotten_count_for_new, 30),
        (confirm_what_the_log_may_not_have, 30),
    ],
)
def test_a_planted_bug_is_found(plant, lives, monkeypatch):
    plant(monkeypatch)
    for seed in range(lives):
        try:
            live(seed, "shared")
        except AssertionError as error:
            assert "acked and committed it" in str(error)
            return
    pytest.fail(f"{plant.__name__} went unnoticed in {lives} lives")
