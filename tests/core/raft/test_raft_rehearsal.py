"""Raft on the real replicated log: three nodes, crashes, and what a driver owes.

To replay a seed: `rehearse(SEED)`, of tests/support/core/raft_rehearsal.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

from hocket.core.raft.settings import SECOND
from tests.support.core.raft_driver import GROUP
from tests.support.core.raft_driver_mutants import MUTANTS, RUNS_MAX, found_by, search
from tests.support.core.raft_rehearsal import Broken, Rehearsal, rehearse
from tests.support.threads import LONG

RUNS = 1_500 if LONG else 12


@pytest.mark.timeout(1800 if LONG else 120)
def test_what_is_committed_stays_and_logs_are_the_same_bytes():
    seen = Counter()
    for seed in range(RUNS):
        try:
            seen += rehearse(seed).seen
        except BaseException as error:
            error.add_note(f"replay: tests.support.core.raft_rehearsal.rehearse({seed})")
            raise
    # Nothing was looked at in vain.
    often = {name for name, count in seen.items() if count > RUNS}
    assert {"append", "crash", "compared", "Leads", "Store", "Configured", "ReadReady"} <= often
    assert min(seen["Truncate"], seen["Install"]) >= RUNS / 10


@pytest.mark.parametrize("driver", MUTANTS, ids=lambda driver: driver.__name__)
def test_a_driver_that_does_not_do_what_it_owes_is_found_out(driver):
    """By its known seed. If the core, the log or the rehearsal has changed, search anew."""
    assert found_by(driver, MUTANTS[driver])


@pytest.mark.skipif(not LONG, reason="a search of minutes: HOCKET_STRESS=long")
@pytest.mark.timeout(3600)
def test_every_such_driver_is_found_out_by_searching():
    missed = [driver.__name__ for driver in MUTANTS if not search(driver)[1]]
    assert missed == [], f"not within {RUNS_MAX} runs"


def test_what_was_committed_and_is_gone_is_noticed():
    world = Rehearsal(1)
    world.run_for(10 * SECOND)
    world.heal()
    world.chosen[max(world.chosen) + 1] = 7
    with pytest.raises(Broken, match="has lost"):
        world.compare()


def test_other_bytes_in_the_place_of_what_was_committed_are_noticed():
    world = Rehearsal(1)
    world.run_for(10 * SECOND)
    world.heal()
    last = max(world.chosen)
    node = next(iter(world.nodes.values()))
    crc = world.chosen[last] ^ 1
    with pytest.raises(Broken, match="commits another"):
        world.commits(node.name, last, crc)
    assert node.store.replicated.bounds(GROUP)[2].last_crc == world.chosen[last]
