"""Runs of a seed as it is, which several tests look at."""

from __future__ import annotations

from functools import cache

from hocket.sim.report import Report
from hocket.sim.run import run


@cache
def report_of(seed: int) -> Report:
    """How the run of this seed ended; it is run once, since a seed gives the same run each time."""
    return run(seed)
