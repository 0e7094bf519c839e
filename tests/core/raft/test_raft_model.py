"""Three to five Raft cores in a world that loses, doubles and reorders messages, and crashes nodes.

What must hold (L1 to L7 of docs/internals/raft.md) is looked at after every step, by
tests/support/core/raft_world.py. A list of planted mistakes shows that it is found when it breaks.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.core.raft_mutants import MUTANTS, RUNS_MAX, found_by, search
from tests.support.core.raft_runs import ACTIONS, run
from tests.support.core.raft_world import DROWSY, Breach, World
from tests.support.threads import LONG

RUNS = 5_000 if LONG else 40

some = st.integers(0, 4)
numbers = st.integers(0, (1 << 16) - 1)
# Damage is for runs in which somebody else may always vote; see raft_runs.py.
rare = sorted(set(ACTIONS) - {"deliver", "flush", "due", "wait", "damage"})


class RaftInAWorld(RuleBasedStateMachine):
    @initialize(size=st.integers(3, 5), others=st.integers(0, 2))
    def begin(self, size, others):
        self.world = World(size, max(1, size - others))

    @rule(count=st.integers(1, 12), number=numbers)
    def deliver(self, count, number):
        for _ in range(count):
            self.world.do("deliver", 0, number)

    @rule(which=some)
    def flush(self, which):
        self.world.do("flush", which, 0)

    @rule(which=some, number=numbers)
    def wait_until_due(self, which, number):
        self.world.do("wait", which, 4)
        self.world.do("due", which, number)

    @rule(action=st.sampled_from(rare), which=some, number=numbers)
    def something_else(self, action, which, number):
        self.world.do(action, which, number)

    def teardown(self):
        if hasattr(self, "world"):
            self.world.heal(Random(1))


TestRaftInAWorld = pytest.mark.timeout(2400 if LONG else 120)(RaftInAWorld.TestCase)
TestRaftInAWorld.settings = settings(
    max_examples=500 if LONG else 25, stateful_step_count=80 if LONG else 50
)


@pytest.mark.timeout(2400 if LONG else 120)
def test_what_must_hold_holds_in_runs_by_chance():
    seen = Counter()
    for seed in range(RUNS):
        try:
            seen += run(seed).seen
        except Exception as error:
            error.add_note(f"replay: tests.support.core.raft_runs.run({seed})")
            raise
    # Nothing was looked at in vain.
    looked_at = {"message", "vote", "leader", "commit", "read", "configuration", "transfer"}
    assert looked_at <= {name for name, count in seen.items() if count >= RUNS / 40}
    assert seen["healed"] == RUNS


@pytest.mark.timeout(2400 if LONG else 120)
def test_groups_that_fall_quiet_wake_when_their_leader_dies():
    seen = Counter()
    for seed in range(RUNS // 2):
        try:
            world = run(seed, settings=DROWSY)
            world.lose_the_leader(Random(seed))
        except Exception as error:
            error.add_note(f"replay: run({seed}, settings=DROWSY), and lose_the_leader")
            raise
        seen += world.seen
    assert seen["quiet"] > RUNS / 10
    assert seen["lost in quiet"] > RUNS / 10


def test_a_run_follows_from_its_seed():
    one, other = run(7), run(7)
    assert one.chosen == other.chosen
    assert one.seen == other.seen


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant):
    """By its known seed. If the core or the world has changed: see raft_mutants.py."""
    assert found_by(plant, MUTANTS[plant])


def test_there_are_mistakes_enough():
    assert len(MUTANTS) >= 20
    assert max(MUTANTS.values()) < RUNS_MAX


@pytest.mark.skipif(not LONG, reason="a search of minutes: HOCKET_STRESS=long")
@pytest.mark.timeout(3600)
def test_every_planted_mistake_is_found_by_searching():
    missed = [plant.__name__ for plant in MUTANTS if not search(plant)[1]]
    assert missed == [], f"not within {RUNS_MAX} runs"


def test_a_breach_says_what_does_not_hold():
    world = World(3, 3)
    world.disks["a"].term = 4
    world.look()
    world.disks["a"].term = 3
    with pytest.raises(Breach, match="L5: a forgets its term"):
        world.look()
