"""Shared indexes on the production node, in lives full of crashes, cuts and forgetful workers.

A failing seed is replayed with: pytest tests/node/running/test_simulated_shares.py -k "<its
number>"
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partialmethod

import pytest

from hocket.core.partition.events import Replayed
from hocket.core.partition.partition import Partition
from hocket.core.sharing import leases, state as share_state
from hocket.model import Mode
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, Admin, World
from tests.support.node.simulated_shares import (
    KeyedProducer,
    Mortal,
    Office,
    Undertaker,
    Worker,
    check_dead_letters,
)
from tests.support.threads import LONG

SEEDS = range(int(os.environ.get("HOCKET_SEEDS", "40" if LONG else "5")))


def live(
    seed: int | str, mode: Mode, *, crashes: int = 3, batches: int = 8, max_deliveries: int = 4
) -> Counter[str]:
    world = World(seed, settings=tiny)
    office = Office(mode, max_deliveries)
    Admin(world)
    producers = [KeyedProducer(world, name, batches_max=batches) for name in ("a", "b")]
    workers = [Worker(world, name, office) for name in ("kim", "lee", "max")]
    while world.crashes < crashes:
        world.run(world.random.randrange(10_000, 900_000))
        chance = world.random.random()
        if chance < 0.4:
            world.crash()
            world.run(world.random.randrange(1000, 50_000))
            world.start_node()
        elif chance < 0.5 and len(workers) > 2:
            workers.pop().quit()
        elif world.network.connections:
            world.network.cut(world.random.choice(world.network.connections))
    world.until(lambda: all(p.finished for p in producers), 120, "every batch is acknowledged")
    for worker in workers:
        worker.patience = 0.0
    undertaker = Undertaker(world)
    sent = sorted(v for p in producers for made in p.sent.values() for b in made for v in b)

    def everything() -> bool:
        """And quiet: what was said of a message in vain would bring it back."""
        dead = {place for place, _ in undertaker.found.values()}
        quiet = world.scheduler.now_us() - office.last_lease_us > 5 * SECOND
        return quiet and len(office.done | office.given_up | dead) == len(sent)

    world.until(everything, 240, "every message is done, or with the dead letters")
    check_dead_letters(office, undertaker)
    assert sorted(office.values.values()) == sent, "each message was delivered, and nothing else"
    return office.looked


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_with_one_worker_at_a_time_until_it_is_done(seed, mode):
    looked = live(seed, mode)
    assert looked["leased"] > looked["again"] > 0
    assert looked["ack"] > 0


def die_of_poison(seed: int | str, mode: Mode) -> Counter[str]:
    world = World(seed, settings=tiny)
    office = Office(mode, max_deliveries=3)
    Admin(world)
    producers = [KeyedProducer(world, name, batches_max=8) for name in ("a", "b")]
    for name in ("kim", "lee"):
        Mortal(world, name, office)
    for _ in range(2):
        world.run(world.random.randrange(100_000, 3 * SECOND))
        world.crash()
        world.run(world.random.randrange(1000, 50_000))
        world.start_node()
    world.until(lambda: all(p.finished for p in producers), 120, "every batch is acknowledged")
    undertaker = Undertaker(world)
    sent = [v for p in producers for made in p.sent.values() for b in made for v in b]

    def everything() -> bool:
        dead = {place for place, _ in undertaker.found.values()}
        return len(office.done | office.given_up | dead) == len(sent)

    world.until(everything, 240, "every message is done, or with the dead letters")
    check_dead_letters(office, undertaker)
    poisoned = {place for place in office.values if place[1] == Mortal.POISONED}
    assert {place for place, _ in undertaker.found.values()} == poisoned, "and nothing beside it"
    return office.looked


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["shared", "key_shared"])
@pytest.mark.parametrize("seed", SEEDS[:2] if not LONG else SEEDS)
def test_of_a_message_that_kills_each_worker_no_other_message_dies(seed, mode):
    looked = die_of_poison(f"poison {seed}", mode)
    assert looked["died"] >= 3
    assert looked["alone"] > looked["died"] / 2


def test_the_lives_are_eventful():
    total: Counter[str] = Counter()
    for number in range(3):
        total += live(f"eventful {number}", "shared", max_deliveries=2)
        total += live(f"eventful {number}", "key_shared", max_deliveries=2)
    for what in ("passed on", "refused", "nack", "extend", "reject", "release", "dead", "ordered"):
        assert total[what] > 0, what


def test_a_seed_gives_the_same_life_every_time():
    assert live("twice", "key_shared") == live("twice", "key_shared")


# --- planted bugs: the checks must be able to fail ------------------------------------------------


def forget_what_is_settled_in_snapshots(monkeypatch):
    restore = share_state.ShareState.restore

    def forgetful(taken):
        return restore({name: each for name, each in taken.items() if name != "done"})

    monkeypatch.setattr(share_state.ShareState, "restore", staticmethod(forgetful))


def lease_at_once_after_a_restart(monkeypatch):
    hasty = partialmethod(leases.Leases.__init__, grace_us=0)
    monkeypatch.setattr(leases.Leases, "__init__", hasty)


def forget_settlements_at_replay(monkeypatch):
    replayed = Partition._replayed

    def forgetful(self, event):
        effects = replayed(self, event)
        for state in self.shares.values():
            state._done = bytearray(len(state._done))
        return effects

    monkeypatch.setitem(Partition._handlers, Replayed, forgetful)


@pytest.mark.parametrize(
    "plant",
    [
        forget_what_is_settled_in_snapshots,
        lease_at_once_after_a_restart,
        forget_settlements_at_replay,
    ],
)
def test_a_planted_bug_is_found_within_ten_seeds(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(10):
        try:
            live(seed, "shared")
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{plant.__name__} went unnoticed in ten seeds")
