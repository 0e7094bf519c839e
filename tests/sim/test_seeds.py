"""Seeds, with all checkers. A failing one prints what happened and the command that replays it.

HOCKET_SEEDS=500 runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from hocket.sim.report import Summary
from hocket.sim.swarm import options_of
from tests.support.sim.seeds import report_of

# Short ones in which, taken together, every checker has something to look at.
EVENTFUL = (5, 6, 7, 8, 9, 11, 15, 16)
SEEDS: Sequence[int] = range(int(os.environ.get("HOCKET_SEEDS", "0"))) or EVENTFUL
# A majority is lost for good in one run of sixteen, and only where group 0 can bear that.
RARE = {"nothing_is_acknowledged_without_a_majority"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_breaks_nothing(seed: int):
    report = report_of(seed)
    assert report.ok, report.explain()


def test_the_seeds_were_eventful():
    """Runs that see nothing prove nothing."""
    summary = Summary()
    for seed in SEEDS:
        summary.add(report_of(seed))
    assert set(summary.unseen()) <= RARE, "checkers that saw nothing"
    assert {"calm", "wild"} <= {options_of(seed).temper for seed in SEEDS}
    for fault in ("crash", "join", "leave", "loss", "duplication", "reordering", "stall", "cuts"):
        assert summary.faults.get(fault), f"no {fault} in all these runs"
    assert 0 < summary.deceived < summary.runs
