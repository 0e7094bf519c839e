"""The chapters of a scale run, by name, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable

from hocket.sim.scale import balance, fanout_run, ring_run, trouble_run
from hocket.sim.scale.figures import Chapter, Options

CHAPTERS: dict[str, Callable[[Options], Chapter]] = {
    "lookups": ring_run.lookups,
    "maintenance": ring_run.maintenance,
    "balance": balance.balance,
    "churn": trouble_run.churn,
    "crash": trouble_run.crashed_at_once,
    "crowd": trouble_run.crowd,
    "cut": trouble_run.cut,
    "fanout": fanout_run.fanout,
}
