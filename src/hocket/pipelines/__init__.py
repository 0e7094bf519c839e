"""Data pipelines on Spark that people declare as files, and that `hocket pipeline` runs.

The declaration is Spark's own (Declarative Pipelines: `spark-pipeline.yml`, Python and SQL files).
What stands here is what Spark leaves to its users: start-up, a catalogue that outlives a run, the
state of runs, lag, checks, and the built-in pipelines (`templates`). The names below are for the
files of pipelines; each is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.pipelines.reaching import broker
    from hocket.pipelines.values import Fitting, json_values

__all__ = ["Fitting", "broker", "json_values"]

_NAMES = {
    "broker": "hocket.pipelines.reaching",
    "Fitting": "hocket.pipelines.values",
    "json_values": "hocket.pipelines.values",
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'hocket.pipelines' has no attribute {name!r}")
